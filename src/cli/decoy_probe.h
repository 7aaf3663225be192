// The table of `renorm eval --probe-decoys`.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset_kinds.h"
#include "train/opened_run.h"

namespace renorm::cli {

// Throws UsageError unless the run has data with decoys, enough classes, and norms with averages.
void print_decoy_probe(train::OpenedRun& run, const std::string& folder, uint64_t seed,
                       const data::OpenOptions& open);

}  // namespace renorm::cli
