#include "bench/step_contest.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/random.h"
#include "base/timing.h"
#include "bench/peers.h"
#include "export/portable_model.h"
#include "models/model.h"
#include "train/build_model.h"
#include "train/run.h"

namespace renorm::bench {
namespace {

// Nets for large images take seconds per step.
constexpr int64_t kLargeImageSize = 128;
constexpr int64_t kSteps = 30;
constexpr int64_t kLargeSteps = 5;
constexpr int64_t kWarmUpSteps = 2;
constexpr int64_t kLargeWarmUpSteps = 1;
constexpr int64_t kMemorySteps = 2;

bool is_large(const models::ModelKind& kind) { return kind.image_size >= kLargeImageSize; }

// Images of random bytes in the size that the model is designed for.
data::Dataset random_images(const models::ModelKind& kind, int64_t count) {
  data::ByteImages images;
  images.channels = kind.input.channels;
  images.height = kind.image_size;
  images.width = kind.image_size;
  RandomStream stream(1, Purpose::kBench);
  images.pixels.resize(static_cast<size_t>(count * images.image_bytes()));
  for (uint8_t& pixel : images.pixels) pixel = static_cast<uint8_t>(stream.bits() >> 56);
  for (int64_t i = 0; i < count; ++i) images.labels.push_back(i % kind.input.classes);
  data::ByteDataset dataset{kRandomImages, {}, images, images};
  for (int64_t i = 0; i < kind.input.classes; ++i) dataset.classes.push_back(std::to_string(i));
  return data::in_memory(std::move(dataset));
}

data::Dataset open(const StepOptions& options, const models::ModelKind& kind) {
  if (options.data == kRandomImages) return random_images(kind, 2 * options.minibatch * options.workers);
  train::Config config;
  config.data = options.data;
  config.model = options.model;
  config.threads = options.threads;
  return train::open_data(config, {});
}

// LibTorch's own for tensor operations too: trainer_for replaces the layers.
train::NormKind norm_kind(StepNorm norm) {
  switch (norm) {
    case StepNorm::kRenorm:
      return train::NormKind::kRenorm;
    case StepNorm::kBatchnorm:
      return train::NormKind::kBatchnorm;
    case StepNorm::kGroupnorm:
      return train::NormKind::kGroupnorm;
    case StepNorm::kNative:
    case StepNorm::kTensorOps:
      break;
  }
  return train::NormKind::kNative;
}

train::Config config_for(const StepOptions& options, const Contestant& contestant) {
  train::Config config;
  // The name of the data does not affect a step.
  config.data = options.data == kRandomImages ? "strokes" : options.data;
  config.model = options.model;
  config.workers = options.workers;
  config.minibatch = options.minibatch;
  config.norm = norm_kind(contestant.norm);
  if (config.norm == train::NormKind::kRenorm) config.clip = fmt::format("{},{}", kRMax, kDMax);
  config.memory_format = contestant.layout;
  config.threads = options.threads;
  config.steps = kWarmUpSteps + options.steps;
  return config;
}

std::unique_ptr<train::Trainer> trainer_for(const StepOptions& options, const data::Dataset& dataset,
                                            const Contestant& contestant) {
  const train::Config given = config_for(options, contestant);
  train::check(given);
  const train::Config config = train::resolved(given, dataset.train->size());
  const models::MakeNorm norm = contestant.norm == StepNorm::kTensorOps
                                    ? tensor_ops_norm(config.norm_eps, config.norm_momentum, kRMax, kDMax)
                                    : train::norm_of(config);
  return std::make_unique<train::Trainer>(config, dataset, norm);
}

// A field of /proc/self/status in bytes; -1 if it is missing.
double status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string name;
  while (status >> name) {
    double kilobytes = 0.0;
    if (name == field + ":" && status >> kilobytes) return kilobytes * 1024.0;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return -1.0;
}

// Counts the bytes of tensors that LibTorch reports to it.
class TensorBytes : public c10::MemoryReportingInfoBase {
 public:
  // Without `override`: releases of LibTorch have one or the other in the base.
  // NOLINTBEGIN(modernize-use-override, readability-identifier-naming)
  void reportMemoryUsage(void* /*block*/, int64_t bytes, int64_t /*allocated*/, int64_t /*reserved*/,
                         c10::Device /*device*/) {
    count(bytes);
  }
  void reportMemoryUsage(void* /*block*/, int64_t bytes, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device /*device*/) {
    count(bytes);
  }
  bool memoryProfilingEnabled() const { return true; }
  // NOLINTEND(modernize-use-override, readability-identifier-naming)

  int64_t max() const { return max_; }

 private:
  void count(int64_t bytes) {
    now_ += bytes;
    max_ = std::max(max_, now_);
  }

  int64_t now_ = 0;
  int64_t max_ = 0;
};

PeakMemory peak_memory_here(const StepOptions& options, const data::Dataset& dataset,
                            const Contestant& contestant) {
  // One-time allocations are excluded. They are negligible for large nets.
  if (!is_large(models::model_kind(options.model))) trainer_for(options, dataset, contestant)->step();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const double before = status_bytes("VmRSS");
  const auto counted = std::make_shared<TensorBytes>();
  const c10::DebugInfoGuard counts(c10::DebugInfoKind::PROFILER_STATE, counted);
  const auto trainer = trainer_for(options, dataset, contestant);
  for (int64_t i = 0; i < kMemorySteps; ++i) trainer->step();
  const double peak = status_bytes("VmHWM");
  return {static_cast<double>(counted->max()), before < 0.0 || peak < 0.0 ? -1.0 : peak - before};
}

// The same in a process of its own, so that memory that one contestant leaves in the allocator does not
// affect the next. Call it before this process computes anything: threads do not survive a fork.
PeakMemory peak_memory_of(const StepOptions& options, const data::Dataset& dataset,
                          const Contestant& contestant) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    PeakMemory peak;
    try {
      peak = peak_memory_here(options, dataset, contestant);
    } catch (...) {  // the timed steps report the error
    }
    const bool written = write(ends[1], &peak, sizeof(peak)) == sizeof(peak);
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  PeakMemory peak;
  if (child < 0 || read(ends[0], &peak, sizeof(peak)) != sizeof(peak)) peak = {};
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return peak;
}

using Trainers = std::vector<std::unique_ptr<train::Trainer>>;
using Report = std::function<void(const std::string&)>;

std::string label(const Contestant& contestant) {
  return name_of(contestant.norm) + ", " + name_of(contestant.layout);
}

void time_steps(StepContest* contest, const Trainers& trainers, const Report& progress) {
  const bool large = is_large(models::model_kind(contest->options.model));
  const int64_t warm_up = large ? kLargeWarmUpSteps : kWarmUpSteps;
  const int64_t rounds = warm_up + contest->options.steps;
  for (int64_t i = 0; i < rounds; ++i) {
    for (size_t turn = 0; turn < trainers.size(); ++turn) {
      // Every other round in reverse, so that the order favours none.
      const size_t k = i % 2 == 0 ? turn : trainers.size() - 1 - turn;
      Contestant& contestant = contest->contestants[k];
      progress(fmt::format("round {} of {}: {}", i + 1, rounds, label(contestant)));
      const double before = cpu_seconds();
      const train::StepResult result = trainers[k]->step();
      if (i < warm_up) continue;
      contestant.cpu_seconds.push_back(cpu_seconds() - before);
      contestant.steps.push_back(result.times);
    }
  }
}

// Evaluation with LibTorch's norm, with ours, and with ours folded into the convolutions.
void time_inference(StepContest* contest, const Trainers& trainers, const data::Dataset& dataset,
                    const Report& progress) {
  std::vector<data::Draw> draws;
  for (int64_t i = 0; i < contest->options.minibatch; ++i) draws.push_back({i % dataset.test->size(), 0});
  const torch::Tensor images = dataset.test->load(draws).images;
  const torch::NoGradGuard no_grad;
  std::vector<std::shared_ptr<models::Classifier>> models;
  const auto add = [&](train::MemoryFormat layout, InferenceKind kind,
                       std::shared_ptr<models::Classifier> model) {
    model->eval();
    models.push_back(std::move(model));
    contest->inference.push_back({layout, kind, {}});
  };
  for (size_t k = 0; k < trainers.size(); ++k) {
    const Contestant& contestant = contest->contestants[k];
    const std::shared_ptr<models::Classifier> model = trainers[k]->shared_model();
    if (contestant.norm == StepNorm::kNative) add(contestant.layout, InferenceKind::kNative, model);
    if (contestant.norm != StepNorm::kRenorm) continue;
    add(contestant.layout, InferenceKind::kRenorm, model);
    const data::Description& about = dataset.description;
    const auto folded = exporting::folded(
        *model, {contest->options.model,
                 {about.channels, about.height, about.width, static_cast<int64_t>(about.classes.size())}});
    folded->computation = model->computation;
    add(contestant.layout, InferenceKind::kFolded, folded);
  }
  const int64_t rounds = contest->options.steps;
  for (int64_t round = -1; round < rounds; ++round) {
    for (size_t k = 0; k < models.size(); ++k) {
      progress(fmt::format("inference, round {} of {}", std::max<int64_t>(1, round + 1), rounds));
      const Stopwatch watch;
      models[k]->forward(images);
      const double seconds = watch.seconds();
      if (round >= 0) contest->inference[k].seconds.push_back(seconds);
    }
  }
}

bool takes_part(const StepOptions& options, StepNorm norm) {
  const auto& norms = options.norms;
  return norms.empty() || norm == StepNorm::kNative ||
         std::find(norms.begin(), norms.end(), norm) != norms.end();
}

std::vector<train::MemoryFormat> layouts_of(StepLayouts layouts) {
  switch (layouts) {
    case StepLayouts::kNchw:
      return {train::MemoryFormat::kNchw};
    case StepLayouts::kChannelsLast:
      return {train::MemoryFormat::kChannelsLast};
    case StepLayouts::kBoth:
      break;
  }
  return {train::MemoryFormat::kNchw, train::MemoryFormat::kChannelsLast};
}

void fill_in(StepOptions* options, const models::ModelKind& kind) {
  if (options->data.empty()) options->data = is_large(kind) ? kRandomImages : "strokes";
  if (options->steps == 0) options->steps = is_large(kind) ? kLargeSteps : kSteps;
}

}  // namespace

StepContest run_step_contest(const StepOptions& options, const Report& progress) {
  const models::ModelKind& kind = models::model_kind(options.model);
  StepContest contest;
  contest.options = options;
  fill_in(&contest.options, kind);
  const data::Dataset dataset = open(contest.options, kind);
  for (const train::MemoryFormat layout : layouts_of(options.layouts)) {
    for (const Choice<StepNorm>& norm : Choices<StepNorm>::kAll) {
      if (takes_part(options, norm.value)) contest.contestants.push_back({layout, norm.value, {}, {}, {}});
    }
  }
  for (Contestant& contestant : contest.contestants) {
    progress("memory: " + label(contestant));
    contestant.peak_memory = peak_memory_of(contest.options, dataset, contestant);
  }
  Trainers trainers;
  for (const Contestant& contestant : contest.contestants) {
    trainers.push_back(trainer_for(contest.options, dataset, contestant));
  }
  contest.parameters = trainers.front()->parameter_count();
  time_steps(&contest, trainers, progress);
  time_inference(&contest, trainers, dataset, progress);
  return contest;
}

}  // namespace renorm::bench
