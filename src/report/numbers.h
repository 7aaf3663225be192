// Figures as people read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "record/results.h"

namespace renorm::report {

constexpr const char* kNothing = "–";

// "1 arm", "3 arms".
std::string counted(size_t number, const std::string& noun);

// 78.34 -> "78.3"; "NaN" if it is not finite.
std::string percent(double value);

// "78.3 ± 0.4", "78.3" of one seed, "–" of none.
std::string percent(const record::Measure& measure);

// The same in whole steps.
std::string steps(const record::Measure& measure);

// duration_text; "–" if it is not known.
std::string duration(double seconds);

}  // namespace renorm::report
