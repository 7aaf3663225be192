#include "train/step_records.h"

namespace renorm::train {

void StepRecords::add(const StepResult& result) {
  images_ += result.examples;
  load_wait_ += result.times.load;
}

record::StepRecord StepRecords::of(const Trainer& trainer, const StepResult& result, int64_t skipped_images) {
  record::StepRecord record;
  record.step = trainer.steps_done();
  record.epoch = trainer.epochs_done();
  record.loss = result.loss;
  record.accuracy = result.accuracy();
  record.learning_rate = result.learning_rate;
  record.gradient_norm = result.gradient_norm;
  record.r_max = result.r_max;
  record.d_max = result.d_max;
  record.images_per_second = rate_;
  if (images_ > 0) {
    const double seconds = interval_.seconds();
    record.images_per_second = static_cast<double>(images_) / seconds;
    wait_percent_ = 100.0 * load_wait_ / seconds;
  }
  if (trainer.dataset().train->is_slow()) {
    record.data_wait_percent = wait_percent_;
    record.skipped_images = skipped_images;
  }
  record.layers = trainer.clips();
  for (const record::LayerClips& layer : record.layers) {
    const auto share = 1.0 / static_cast<double>(record.layers.size());
    record.r_clipped_above += share * layer.r_clipped_above;
    record.r_clipped_below += share * layer.r_clipped_below;
    record.d_clipped += share * layer.d_clipped;
  }
  return record;
}

void StepRecords::logged(const record::StepRecord& record) {
  rate_ = record.images_per_second;
  images_ = 0;
  load_wait_ = 0.0;
  interval_ = {};
}

}  // namespace renorm::train
