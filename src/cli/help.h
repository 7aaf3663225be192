// The texts of --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace renorm::cli {

// Usage, description, arguments, flags by group, commands and footer; wrapped to the terminal's width. The
// parser's own layout differs between its versions.
std::string help_text(const CLI::App& app, const std::string& name);

// The exit codes, one per line, for the footers of commands with more exit codes than 0 and 2.
std::string exit_codes_text();

}  // namespace renorm::cli
