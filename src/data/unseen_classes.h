// A data set whose last classes are for evaluation only.
#pragma once

#include <cstdint>

#include "data/dataset.h"

namespace renorm::data {

// The training images of all classes but the last `unseen`, and the test images of those, with their labels.
// The description has the classes that are trained on. Throws UsageError unless 2 classes are left for
// training and each of the others has 2 test images.
Dataset with_unseen_classes(Dataset dataset, int64_t unseen);

}  // namespace renorm::data
