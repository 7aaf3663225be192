// Config files: a part of TOML.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"

namespace renorm::train {

// Lines NAME = VALUE with the names of settings, in TOML's notation for strings, numbers, true, false and
// comments. Sections, dotted names, lists, tables, dates and strings over several lines are refused, and so
// are unknown and repeated names, wrong types and values out of range: UsageError "FILE:LINE:COLUMN: ...",
// after which `config` is unchanged. The settings in the file override `config`; their names are returned in
// the order of the file.
std::vector<std::string> read_toml(const std::string& text, const std::string& file, Config* config);

// All settings, under their groups as comments, readable by read_toml to the same config.
std::string to_toml(const Config& config);

}  // namespace renorm::train
