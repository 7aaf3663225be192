#include "base/errors.h"

#include <fmt/format.h>

#include <new>
#include <system_error>

#include "base/address_space.h"

namespace renorm {

Failure failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& error) {
    return {kExitUsage, error.what()};
  } catch (const DataError& error) {
    return {kExitData, error.what()};
  } catch (const MissingInputError& error) {
    return {kExitMissingInput, error.what()};
  } catch (const NonFiniteError& error) {
    return {kExitNotFinite, error.what()};
  } catch (const OutputError& error) {
    return {kExitCannotCreate, error.what()};
  } catch (const IoError& error) {
    return {kExitIo, error.what()};
  } catch (const Interrupted& error) {
    return {kExitInterrupted, error.what()};
  } catch (const InternalError& error) {
    return {kExitInternal, error.what()};
  } catch (const MemoryError& error) {
    return {kExitInternal, error.what()};
  } catch (const std::bad_alloc&) {
    return {kExitInternal, "out of memory; smaller batches or images need less"};
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      return {
          kExitInternal,
          "cannot start a thread: too little memory or too many processes; raise the limits 'ulimit -v' and "
          "'ulimit -u', or use fewer --threads"};
    }
    return {kExitIo, error.what()};
  } catch (const std::exception& error) {
    return {kExitInternal, fmt::format("internal error: {}", error.what())};
  }
}

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
