// A run's data and its trained model.
#include <torch/torch.h>

#include <utility>

#include "train/run.h"
#include "train/run_folder.h"
#include "train/tensor_file.h"

namespace renorm::train {

data::Dataset open_data(const Config& config, data::OpenOptions options) {
  const int threads = config.loader_threads > 0 ? config.loader_threads : config.threads;
  if (threads > 0) options.threads = threads;
  data::TransformOptions& transform = options.images.transform;
  transform.size = config.image_size > 0 ? config.image_size : models::model_kind(config.model).picture_size;
  transform.min_area = config.crop_area;
  transform.flip = config.flip;
  transform.jitter = {config.jitter, config.jitter, config.jitter};
  options.images.seed = config.seed;
  options.images.val_fraction = config.val_fraction;
  options.images.on_bad_image = config.on_bad_image;
  return data::open_dataset(config.data, options);
}

OpenedRun open_run(const std::string& folder, const std::string& checkpoint) {
  const CheckpointFolder checkpoints(RunPaths(folder).checkpoints);
  const Checkpoint found = checkpoints.read(checkpoints.find(checkpoint));
  OpenedRun opened;
  opened.state = found.state;
  opened.checkpoint = checkpoints.path_of(found.state.step);
  at::set_num_threads(found.state.config.threads);
  opened.model = build_model(found.state.config, found.state.data);
  restore_file(found.tensors, kModelFile, opened.checkpoint, named_state(*opened.model));
  if (found.state.config.ema_decay > 0.0) {
    opened.average = std::make_unique<WeightAverage>(*opened.model, found.state.config.ema_decay);
    restore_file(found.tensors, kAverageFile, opened.checkpoint, opened.average->averages());
  }
  opened.model->eval();
  return opened;
}

}  // namespace renorm::train
