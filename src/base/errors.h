// What can go wrong above the layer, by whose fault it is. The command turns each kind into its exit code.
#pragma once

#include <stdexcept>

namespace renorm {

// The command line, a config file or a spec asks for something that does not exist or makes no sense.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file was read but does not hold what it should; the message names file and place.
struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file or folder that was named does not exist or may not be read.
struct MissingInputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Training met a value that is not finite; the message names step, layer and tensor.
struct NonFiniteError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An output file or folder cannot be made; found out before any work is done.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Reading or writing failed half-way: disk full, device error.
struct IoError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Somebody asked the program to stop; what was done is saved and can be resumed.
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace renorm
