#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "base/errors.h"
#include "base/text.h"
#include "data/sampler.h"
#include "train/clip_spec.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

constexpr int64_t kDefaultSteps = 2'000;
constexpr int64_t kDefaultMinibatch = 32;
constexpr int64_t kEvaluationsPerRun = 10;
constexpr int64_t kMaxExamplesPerStep = int64_t{1} << 24;

// The sizes of a step, with computed ones filled in.
struct Sizes {
  int64_t minibatch;
  int64_t microbatch;
};

Sizes sizes_of(const Config& config, const data::SamplerSpec& sampler) {
  Sizes sizes = {config.minibatch, config.microbatch};
  if (sizes.minibatch == 0) sizes.minibatch = sampler.minibatch();
  if (sizes.minibatch == 0) sizes.minibatch = kDefaultMinibatch;
  if (sizes.microbatch == 0) sizes.microbatch = sizes.minibatch / (config.split_pairs ? sampler.images : 1);
  return sizes;
}

// 0 if it depends on the data.
int64_t length_of(const Config& config) {
  if (config.steps > 0) return config.steps;
  return config.epochs > 0.0 ? 0 : kDefaultSteps;
}

void check_ranges(const Config& config) {
  Config copy = config;
  for (const Setting& setting : settings()) setting.set(copy, setting.get(config));
}

void check_sampler(const Config& config, const data::SamplerSpec& sampler) {
  if (config.split_pairs && sampler.images < 2) {
    throw UsageError(fmt::format(
        "--split-pairs needs a sampler with two or more images per label, such as labels:16x2, got "
        "--sampler {}",
        printable(config.sampler)));
  }
  if (sampler.minibatch() > 0 && config.minibatch > 0 && sampler.minibatch() != config.minibatch) {
    throw UsageError(fmt::format("--minibatch must be {} with --sampler {}, got {}; leave it out",
                                 sampler.minibatch(), printable(config.sampler), config.minibatch));
  }
}

void check_groups(const Config& config, const data::SamplerSpec& sampler, const Sizes& sizes) {
  if (sizes.minibatch % sizes.microbatch != 0) {
    throw UsageError(fmt::format("--microbatch must divide the minibatch of {}, got {}", sizes.minibatch,
                                 sizes.microbatch));
  }
  const int64_t groups = sizes.minibatch / sizes.microbatch;
  if (config.split_pairs && groups < sampler.images) {
    throw UsageError(
        fmt::format("--split-pairs needs a group for each of the {} images of a label, got {}; --microbatch "
                    "must be at most {}",
                    sampler.images, groups, sizes.minibatch / sampler.images));
  }
}

void check_sizes(const Config& config, const Sizes& sizes) {
  if (config.workers > kMaxExamplesPerStep / sizes.minibatch) {
    throw UsageError(
        fmt::format("a step may have at most {} examples, got {} workers x {}; use fewer --workers",
                    kMaxExamplesPerStep, config.workers, sizes.minibatch));
  }
  if (config.chunk != 0 && config.chunk < sizes.microbatch) {
    throw UsageError(
        fmt::format("--chunk must be at least {}, the examples that are normalized together, got {}; use a "
                    "larger --chunk or a smaller --microbatch",
                    sizes.microbatch, config.chunk));
  }
  if (config.norm == NormKind::kNative && config.chunk > sizes.microbatch) {
    throw UsageError(
        fmt::format("--chunk must be {} with --norm native, which normalizes a whole pass together, got {}; "
                    "leave it out",
                    sizes.microbatch, config.chunk));
  }
}

void check_sync_norm(const Config& config, const Sizes& sizes) {
  if (!config.sync_norm) return;
  const auto refuse = [](const std::string& other) {
    throw UsageError(
        fmt::format("--sync-norm normalizes all images of a step together; leave out {}", other));
  };
  if (sizes.microbatch != sizes.minibatch) refuse(config.split_pairs ? "--split-pairs" : "--microbatch");
  if (config.chunk != 0) refuse("--chunk");
  if (config.norm == NormKind::kNative || config.norm == NormKind::kGroupnorm) {
    refuse("--norm " + name_of(config.norm));
  }
}

void check_step(const Config& config) {
  const data::SamplerSpec sampler = data::parse_sampler(config.sampler);
  check_sampler(config, sampler);
  const Sizes sizes = sizes_of(config, sampler);
  check_groups(config, sampler, sizes);
  check_sync_norm(config, sizes);
  check_sizes(config, sizes);
}

void check_length(const Config& config) {
  if (config.steps > 0 && config.epochs > 0.0) {
    throw UsageError("--steps and --epochs both give the length of the run; use one of them");
  }
  const int64_t length = length_of(config);
  if (length == 0) return;
  if (config.warmup >= length && config.warmup > 0) {
    throw UsageError(
        fmt::format("--warmup must be shorter than the run of {} steps, got {}", length, config.warmup));
  }
  const ClipSpec clip = parse_clip(config.clip);
  if (clip.kind == ClipSpec::Kind::kRamp) clip_steps(clip, length);
}

// A value that differs from the default and that nothing reads would be ignored silently.
void check_used(const Config& config, const std::string& name, bool used, const std::string& because) {
  const Setting& setting = find_setting(name);
  if (used || setting.get(config) == setting.get(Config())) return;
  throw UsageError(fmt::format("--{} has no effect with --{}; leave it out", name, because));
}

// The settings among momentum, alpha, beta1, beta2 and optimizer-eps that an optimizer reads.
std::set<std::string> settings_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kRmspropTf:
    case OptimizerKind::kRmsprop:
      return {"momentum", "alpha", "optimizer-eps"};
    case OptimizerKind::kSgd:
      return {"momentum"};
    case OptimizerKind::kAdamw:
      return {"beta1", "beta2", "optimizer-eps"};
  }
  return {};
}

void check_all_used(const Config& config) {
  const std::set<std::string> used = settings_of(config.optimizer);
  for (const char* name : {"momentum", "alpha", "beta1", "beta2", "optimizer-eps"}) {
    check_used(config, name, used.count(name) > 0, "optimizer " + name_of(config.optimizer));
  }
  check_used(config, "lr-final", config.lr_schedule != LrSchedule::kConstant, "lr-schedule constant");
  check_used(config, "clip", config.norm == NormKind::kRenorm, "norm " + name_of(config.norm));
  check_used(config, "norm-momentum", config.norm != NormKind::kGroupnorm, "norm groupnorm");
  for (const char* name : {"embedding", "unseen"}) {
    check_used(config, name, config.objective == Objective::kMetric, "objective classes");
  }
  const std::string data = split_spec(config.data).first;
  for (const char* name :
       {"val-fraction", "image-size", "crop-area", "flip", "jitter", "on-bad-image", "loader-threads"}) {
    check_used(config, name, data == "folder", "data " + printable(data));
  }
  if (config.lr_schedule == LrSchedule::kExponential && config.lr_final == 0.0) {
    throw UsageError("--lr-final must be above 0 with --lr-schedule exponential, which never reaches 0");
  }
}

// A product of decimal fractions that should be whole may exceed it by a rounding error.
int64_t steps_of(const Config& config, int64_t minibatch, int64_t training_images) {
  if (config.epochs == 0.0) return length_of(config);
  const double examples = static_cast<double>(config.workers * minibatch);
  const double steps = config.epochs * static_cast<double>(training_images) / examples;
  return std::max(int64_t{1}, static_cast<int64_t>(std::ceil(std::min(steps, 1e15) * (1.0 - 1e-12))));
}

}  // namespace

void check(const Config& config) {
  check_ranges(config);
  check_step(config);
  check_length(config);
  check_all_used(config);
}

Config resolved(const Config& config, int64_t training_images) {
  Config result = config;
  const Sizes sizes = sizes_of(config, data::parse_sampler(config.sampler));
  // By the table, which has the limits: what a sampler makes may be beyond them.
  const auto set = [&result](const char* name, int64_t value) {
    find_setting(name).set(result, fmt::format("{}", value));
  };
  set("minibatch", sizes.minibatch);
  set("microbatch", sizes.microbatch);
  set("steps", steps_of(config, sizes.minibatch, training_images));
  result.epochs = 0.0;
  if (result.threads == 0) {
    result.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 1024U));
  }
  if (result.eval_every == 0) {
    result.eval_every = (result.steps + kEvaluationsPerRun - 1) / kEvaluationsPerRun;
  }
  if (result.checkpoint_every == 0) result.checkpoint_every = result.eval_every;
  check_length(result);
  return result;
}

}  // namespace renorm::train
