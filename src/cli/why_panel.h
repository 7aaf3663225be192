// The images that explain why an image's partner in a minibatch matters.
#pragma once

#include <optional>
#include <string>

#include "report/report.h"

namespace renorm::cli {

// An image with a decoy, what it is composed of, and another image of its class, of the built-in data set
// with this spec. Nothing for data without decoys, for data in files, which are not opened, or for a spec of
// another version. The same for the same spec.
std::optional<report::WhyPanel> why_panel(const std::string& spec);

}  // namespace renorm::cli
