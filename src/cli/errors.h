// What the command adds to the errors of base/errors.h.
#pragma once

#include <stdexcept>

#include "base/errors.h"

namespace renorm::cli {

// A defect: what LibTorch threw, in a type that can be caught without LibTorch.
struct InternalError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace renorm::cli
