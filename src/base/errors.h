// Kinds of errors above the layer, by cause, and the exit code of the command for each.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace renorm {

// The codes of sysexits.h where there is one.
enum ExitCode : int {
  kExitUsage = 2,          // UsageError
  kExitData = 65,          // DataError
  kExitMissingInput = 66,  // MissingInputError
  kExitInternal = 70,      // out of memory, or a defect of the program
  kExitCannotCreate = 73,  // OutputError
  kExitIo = 74,            // IoError
  kExitInterrupted = 75,   // Interrupted
  kExitNotFinite = 76,     // NonFiniteError
};

// The command line, a config file or a spec is invalid.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file was read, but its content is wrong. The message names file and place.
struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An input file or folder does not exist or is unreadable.
struct MissingInputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Training diverged: a value is not finite. The message names step, layer and tensor.
struct NonFiniteError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An output file or folder cannot be created. Detected before any work is done.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Reading or writing failed half-way: disk full, device error.
struct IoError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The program was asked to stop. What was done is saved and can be resumed.
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A defect that another process of the program reported; the message has its words.
struct InternalError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How the command ends with an exception: its exit code and its message.
struct Failure {
  int exit_code = 0;
  std::string message;
};
// kExitInternal for a kind of exception that is none of the above.
Failure failure_of(const std::exception_ptr& error);

// Throws the error that a process with this exit code ended with: InternalError for kExitInternal,
// IoError for a code that is none of the above.
[[noreturn]] void throw_for_exit_code(int exit_code, const std::string& message);

}  // namespace renorm
