#include "base/errors.h"

namespace renorm {

void throw_for_exit_code(int exit_code, const std::string& message) {
  switch (exit_code) {
    case kExitUsage:
      throw UsageError(message);
    case kExitData:
      throw DataError(message);
    case kExitMissingInput:
      throw MissingInputError(message);
    case kExitInternal:
      throw InternalError(message);
    case kExitCannotCreate:
      throw OutputError(message);
    case kExitInterrupted:
      throw Interrupted(message);
    case kExitNotFinite:
      throw NonFiniteError(message);
    default:
      throw IoError(message);
  }
}

}  // namespace renorm
