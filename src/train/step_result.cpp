#include "train/step_result.h"

#include <ATen/Functions.h>
#include <torch/utils.h>

#include <utility>

namespace renorm::train {
namespace {

// The statistics of the layers follow.
enum Value : int64_t { kFailed, kStop, kLoss, kCorrect, kSkipped, kValues };

// The number of values that a layer collects.
int64_t statistics_of(const BatchRenormLayer& layer) { return 1 + 2 * layer.channels(); }

}  // namespace

StepSum::StepSum(dist::Group& group, std::vector<NamedLayer> layers)
    : group_(group), layers_(std::move(layers)) {
  int64_t size = kValues;
  for (const NamedLayer& named : layers_) size += statistics_of(*named.layer);
  values_ = torch::zeros({size}, torch::kDouble);
}

void StepSum::begin() {
  wait_ = nullptr;
  group_.expect_sum(values_);
}

void StepSum::start(const StepResult& result, bool failed) {
  if (wait_) return;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts = {torch::zeros({kValues}, torch::kDouble)};
  auto* own = parts[0].data_ptr<double>();
  own[kFailed] = failed ? 1.0 : 0.0;
  own[kStop] = result.stop ? 1.0 : 0.0;
  own[kLoss] = result.loss;
  own[kCorrect] = static_cast<double>(result.correct);
  own[kSkipped] = static_cast<double>(result.skipped_images);
  for (const NamedLayer& named : layers_) parts.push_back(named.layer->collected());
  torch::cat_out(values_, parts);
  wait_ = group_.start_sum(values_);
}

bool StepSum::finish(StepResult* result) {
  wait_();
  const auto* sums = values_.data_ptr<double>();
  result->stop = sums[kStop] > 0.0;
  result->loss = sums[kLoss];
  result->correct = static_cast<int64_t>(sums[kCorrect]);
  result->skipped_images = static_cast<int64_t>(sums[kSkipped]);
  int64_t first = kValues;
  for (const NamedLayer& named : layers_) {
    const int64_t count = statistics_of(*named.layer);
    named.layer->set_collected(values_.slice(0, first, first + count));
    first += count;
  }
  return sums[kFailed] > 0.0;
}

}  // namespace renorm::train
