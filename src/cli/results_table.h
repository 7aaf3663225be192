// The outcome of an experiment for the terminal.
#pragma once

#include <string>

#include "record/results.h"

namespace renorm::cli {

// One row an arm, beside the paper's figures.
std::string results_table(const record::Results& results);

// One claim a paragraph: verdict, text, evidence. "" if there are none.
std::string claims_text(const record::Results& results, int columns);

}  // namespace renorm::cli
