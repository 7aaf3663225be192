#include "train/pass_stream.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "train/tensors.h"

namespace renorm::train {
namespace {

void check_images(const torch::Tensor& images, const std::vector<data::Draw>& draws, int64_t step) {
  // One sum detects it; the search for the place is slower.
  if (std::isfinite(images.sum().item<double>())) return;
  const int64_t place = first_non_finite(images);
  if (place < 0) return;  // finite values whose sum overflows
  const int64_t example = draws[place / (images.numel() / images.size(0))].index;
  throw NonFiniteError(fmt::format(
      "step {}: the input of training example {} is not finite; check the data with 'renorm data'", step,
      example));
}

}  // namespace

PassStream::PassStream(const data::Split& split, data::Sampler sampler, const PassPlan& plan)
    : split_(split), sampler_(std::move(sampler)), plan_(plan) {
  restart(0);
}

void PassStream::restart(int64_t steps_done) {
  steps_done_ = steps_done;
  drawn_step_ = steps_done;
  drawn_ = 0;
  examples_.clear();
  stream_ = std::make_unique<data::BatchStream>(split_, [this] { return next_draws(); });
}

std::vector<data::Draw> PassStream::next_draws() {
  if (drawn_ == plan_.share || examples_.empty()) {
    if (!examples_.empty()) ++drawn_step_;
    if (drawn_step_ >= plan_.steps && drawn_step_ > steps_done_) return {};
    examples_ = sampler_.step(drawn_step_);
    drawn_ = 0;
  }
  std::vector<data::Draw> draws;
  for (const int64_t last = std::min(plan_.share, drawn_ + plan_.pass); drawn_ < last; ++drawn_) {
    const auto place = static_cast<uint64_t>(plan_.first + drawn_);
    draws.push_back({examples_[place], static_cast<uint64_t>(drawn_step_) * examples_.size() + place});
  }
  return draws;
}

data::DrawnBatch PassStream::next(int64_t steps_done) {
  steps_done_ = steps_done;
  std::optional<data::DrawnBatch> drawn = stream_->next();
  if (!drawn) {  // a step beyond the end of the run
    restart(steps_done);
    drawn = stream_->next();
  }
  check_images(drawn->batch.images, drawn->draws, steps_done + 1);
  return std::move(*drawn);
}

}  // namespace renorm::train
