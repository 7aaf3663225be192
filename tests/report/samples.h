// Invented results that look like real ones, for the tests of the report.
#pragma once

#include <string>

#include "record/results.h"

namespace renorm::report::testing {

record::Results whole_experiment();       // 10 arms, 3 seeds, claims, figures of the paper
record::Results unfinished_experiment();  // one arm finished, one under way, the others not begun
record::Results single_run();             // one arm, one seed, nothing of the paper
record::Results hostile_experiment();   // text that would break out of its place, values that are not finite
record::Results settings_experiment();  // recall@1 over steps, over a setting and over two settings

// A grey image as the bytes of a PNG file.
std::string small_png();

}  // namespace renorm::report::testing
