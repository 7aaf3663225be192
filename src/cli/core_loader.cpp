// Finds the library of the commands' bodies by the program's RUNPATH.
#include <dlfcn.h>
#include <fmt/format.h>

#include "cli/core.h"
#include "cli/errors.h"

namespace renorm::cli {
namespace {

constexpr const char* kLibrary = "librenorm_core.so";

[[noreturn]] void fail(const char* action) {
  const char* reason = dlerror();
  throw InternalError(fmt::format("cannot {} {}, which is installed with this program: {}; install it again",
                                  action, kLibrary, reason == nullptr ? "no reason given" : reason));
}

const Core& load() {
  // Never closed: LibTorch does not survive it.
  void* library = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) fail("load");
  const void* symbol = dlsym(library, "renorm_core");
  if (symbol == nullptr) fail("use");
  return *static_cast<const Core*>(symbol);
}

}  // namespace

const Core& core() {
  static const Core& loaded = load();
  return loaded;
}

}  // namespace renorm::cli
