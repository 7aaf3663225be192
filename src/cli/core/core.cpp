// The one symbol that the front looks up.
#include "cli/core.h"

#include <c10/util/Exception.h>
#include <torch/torch.h>

#include <cstdlib>
#include <new>
#include <thread>

#include "base/errors.h"
#include "cli/core/commands.h"

namespace renorm::cli {
namespace {

// LibTorch 1.13 takes half of the CPUs unless it is told otherwise.
void use_all_cpus() {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const unsigned cpus = std::thread::hardware_concurrency();
  if (cpus > 0) at::set_num_threads(static_cast<int>(cpus));
}

// The front knows nothing of LibTorch's exceptions.
template <typename Options, void (*kRun)(const Options&)>
void guarded(const Options& options) {
  use_all_cpus();
  try {
    kRun(options);
  } catch (const c10::Error& error) {
    throw InternalError(error.what_without_backtrace());
  }
}

}  // namespace
}  // namespace renorm::cli

extern "C" {
extern const renorm::cli::Core renorm_core;  // NOLINT(readability-identifier-naming): a symbol's name
const renorm::cli::Core renorm_core = {
    renorm::cli::guarded<renorm::cli::BenchLayerOptions, renorm::cli::run_bench_layer>,
    renorm::cli::guarded<renorm::bench::StepOptions, renorm::cli::run_bench_step>,
    renorm::cli::guarded<renorm::cli::TrainOptions, renorm::cli::run_train>,
    renorm::cli::guarded<renorm::cli::EvalOptions, renorm::cli::run_eval>,
    renorm::cli::guarded<renorm::cli::DataOptions, renorm::cli::run_data>,
    renorm::cli::guarded<renorm::cli::ModelsOptions, renorm::cli::run_models>,
    renorm::cli::guarded<renorm::cli::DoctorOptions, renorm::cli::run_doctor>,
    renorm::cli::guarded<renorm::cli::ExportOptions, renorm::cli::run_export>,
    renorm::cli::guarded<renorm::cli::PredictOptions, renorm::cli::run_predict>,
};
}
