// Faults of a data set that are worth knowing before training on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/byte_images.h"

namespace renorm::data {

std::vector<int64_t> images_per_class(const std::vector<int64_t>& labels, int64_t classes);

// Each entry is a sentence.
struct Inspection {
  std::vector<std::string> faults;  // classes without training images, images of a single value
  std::vector<std::string> notes;   // classes without test images, test images that are also training images
};
Inspection inspect(const ByteDataset& data);

}  // namespace renorm::data
