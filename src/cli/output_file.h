// Files that a command writes where the user says.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

namespace renorm::cli {

// Throws UsageError if `path` is, or would become, a file of a run or the results of an experiment. `flag`
// names the file in the message.
void check_not_of_run(const std::string& path, const std::string& flag);

// Whether a command replaces `path` without --force: it is absent, empty, or an earlier output.
bool is_replaceable(const std::string& path,
                    const std::function<bool(const std::string& bytes)>& is_earlier_output);

// For a file that is replaced only if is_replaceable(), or by --force; never if check_not_of_run() refuses
// it. Throws UsageError, and OutputError unless the file can be written now.
void check_output(const std::string& path, const std::string& flag, bool force,
                  const std::function<bool(const std::string& bytes)>& is_earlier_output);

// check_output() for the figures of a benchmark, whose earlier outputs are JSON objects with these entries.
// Does nothing if there is no path.
void check_figures_output(const std::string& path, bool force, std::initializer_list<const char*> entries);

}  // namespace renorm::cli
