// The bodies of the commands: each does what its flags ask for. The front reads the flags.
#pragma once

#include "cli/options.h"

namespace renorm::cli {

void run_bench_layer(const BenchLayerOptions& options);
void run_bench_step(const bench::StepOptions& options);
void run_data(const DataOptions& options);
void run_doctor(const DoctorOptions& options);
void run_eval(const EvalOptions& options);
void run_export(const ExportOptions& options);
void run_models(const ModelsOptions& options);
void run_predict(const PredictOptions& options);
void run_train(const TrainOptions& options);

}  // namespace renorm::cli
