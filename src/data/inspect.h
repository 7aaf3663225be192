// What somebody wants to know about a data set before training on it. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/byte_images.h"

namespace renorm::data {

std::vector<int64_t> images_per_class(const std::vector<int64_t>& labels, int64_t classes);

// Each entry is a sentence.
struct Inspection {
  std::vector<std::string> faults;  // a class without training images, images of a single value
  std::vector<std::string> notes;  // worth knowing: a class without test images, test images seen in training
};
Inspection inspect(const ByteDataset& data);

}  // namespace renorm::data
