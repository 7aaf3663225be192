// The flags of `renorm doctor`.
#include <memory>

#include "cli/commands.h"
#include "cli/core.h"

namespace renorm::cli {

Command add_doctor(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "doctor", "Versions, CPU, SIMD target, threads, BLAS; what is wrong with them and how to mend it");
  const auto options = std::make_shared<DoctorOptions>();
  app->add_flag("--json", options->json, "print JSON instead of a table");
  app->footer("Findings do not change the exit code.");
  return {app, [options] { core().doctor(*options); }};
}

}  // namespace renorm::cli
