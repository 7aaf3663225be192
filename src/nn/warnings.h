// Warnings about likely mistakes, each given once per process however many layers it concerns.
#pragma once

#include <cstdint>
#include <string>

namespace renorm {

// A layer left training before its schedule left the hold: so far it has been batchnorm.
void warn_of_hold(const std::string& who, int64_t step, int64_t hold);
// A layer is evaluated while statistics of `groups` groups wait for commit().
void warn_of_uncommitted(const std::string& who, int64_t groups);

// Tests only: every warning may be given again.
void reset_warnings();

}  // namespace renorm
