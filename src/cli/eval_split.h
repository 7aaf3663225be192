// Changes to the images that `renorm eval` sees.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"

namespace renorm::cli {

// Images that were standardized by the moments of `own`, by those of `target` instead.
std::shared_ptr<const data::Split> restandardized(std::shared_ptr<const data::Split> split,
                                                  const data::Description& own,
                                                  const data::Description& target);

// Images with rows of background below, for models that read rows.
std::shared_ptr<const data::Split> lengthened(std::shared_ptr<const data::Split> split, int64_t rows);

}  // namespace renorm::cli
