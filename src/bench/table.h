#pragma once

#include <string>

#include "bench/summary.h"

namespace renorm::bench {

// The results for a person, at most 100 columns wide.
std::string to_table(const Results& results);

}  // namespace renorm::bench
