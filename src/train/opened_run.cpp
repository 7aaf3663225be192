#include "train/opened_run.h"

#include <fmt/format.h>

#include <utility>

#include "models/bfloat16.h"
#include "models/weight_limit.h"
#include "train/bfloat16_check.h"
#include "train/build_model.h"
#include "train/checkpoint.h"
#include "train/run_folder.h"
#include "train/tensor_file.h"
#include "train/tensors.h"

namespace renorm::train {

OpenedRun open_run(const std::string& folder, const std::string& checkpoint) {
  const CheckpointFolder checkpoints(RunPaths(folder).checkpoints);
  std::vector<std::string> refused;
  const Checkpoint found = checkpoints.read(checkpoints.find(checkpoint, &refused));
  OpenedRun opened;
  for (const std::string& sentence : refused) {
    opened.notes.push_back(fmt::format("{}; using step {}", sentence, found.state.step));
  }
  opened.state = found.state;
  opened.checkpoint = checkpoints.path_of(found.state.step);
  const auto weights = found.tensors.find(kModelFile);
  const size_t bytes = weights == found.tensors.end() ? 0 : weights->second.size();
  const models::FileWeightLimit limit(static_cast<int64_t>(bytes), opened.checkpoint + "/" + kModelFile);
  opened.model = build_model(found.state.config, found.state.data);
  restore_file(found.tensors, kModelFile, opened.checkpoint, named_state(*opened.model));
  if (found.state.config.ema_decay > 0.0) {
    opened.average = std::make_unique<WeightAverage>(*opened.model, found.state.config.ema_decay);
    restore_file(found.tensors, kAverageFile, opened.checkpoint, opened.average->averages());
  }
  opened.model->eval();
  return opened;
}

void choose_dtype(OpenedRun* run) {
  models::Computation& computation = run->model->computation;
  if (computation.dtype != torch::kBFloat16) return;
  std::string note = float_instead(models::measure_bfloat16(computation.memory_format));
  if (note.empty()) return;
  computation.dtype = torch::kFloat;
  run->notes.push_back(std::move(note));
}

}  // namespace renorm::train
