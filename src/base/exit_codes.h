// The exit codes of the command, one for each kind of base/errors.h; those of sysexits.h where there is one.
#pragma once

namespace renorm {

enum ExitCode : int {
  kExitUsage = 2,          // the command line, a config file or a spec is wrong
  kExitData = 65,          // an input file does not hold what it should
  kExitMissingInput = 66,  // an input file or folder is missing or unreadable
  kExitInternal = 70,      // a value that is not finite, or a defect of the program
  kExitCannotCreate = 73,  // an output cannot be made; found out before any work is done
  kExitIo = 74,            // reading or writing failed half-way
  kExitInterrupted = 75,   // stopped by a signal; can be resumed
};

}  // namespace renorm
