// The part of the program that needs LibTorch, in a library of its own: loading LibTorch takes longer than
// a person waits for --help, so the command line is read first.
#pragma once

#include "cli/errors.h"
#include "cli/options.h"

namespace renorm::cli {

// Each runs one command; throws the errors of base/errors.h, and InternalError for LibTorch's own.
struct Core {
  void (*bench_layer)(const BenchLayerOptions&);
  void (*bench_step)(const bench::StepOptions&);
  void (*train)(const TrainOptions&);
  void (*eval)(const EvalOptions&);
  void (*data)(const DataOptions&);
  void (*models)(const ModelsOptions&);
  void (*doctor)(const DoctorOptions&);
  void (*export_model)(const ExportOptions&);
  void (*predict)(const PredictOptions&);
};

// Loads the library that lies beside the program (or in its lib folder) the first time.
const Core& core();

}  // namespace renorm::cli
