// What main turns into an exit code.
#pragma once

#include <stdexcept>

namespace renorm::cli {

enum ExitCode : int { kExitUsage = 2, kExitInternal = 70, kExitCannotWrite = 73 };

// The command line asks for something that does not exist or makes no sense.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file the user named cannot be written.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace renorm::cli
