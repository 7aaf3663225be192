#pragma once

#include <string>

#include "cli/core/bench/summary.h"

namespace renorm::cli::bench {

// The results for a person, at most 100 columns wide.
std::string to_table(const Results& results);

}  // namespace renorm::cli::bench
