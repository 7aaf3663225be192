// Everything that determines what a training run computes, as plain values.
// Names, limits and help are in the table of settings (settings.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/choice.h"
#include "data/dataset_kinds.h"

namespace renorm::train {

enum class NormKind { kBatchnorm, kRenorm, kNative, kGroupnorm };
enum class OptimizerKind { kRmspropTf, kRmsprop, kSgd, kAdamw };
enum class LrSchedule { kExponential, kCosine, kConstant };
enum class Objective { kClasses, kMetric };
enum class Dtype { kFloat, kBf16 };
enum class MemoryFormat { kAuto, kNchw, kChannelsLast };

struct Config {
  // data and sampling
  std::string data = "strokes";
  std::string sampler = "iid";
  bool split_pairs = false;
  bool deal = false;
  // images of a folder
  double val_fraction = 0.0;  // of the training images; 0: there is a folder val
  int64_t image_size = 0;     // pixels per side; 0: the size the model is made for
  double crop_area = 0.08;    // minimum share of an image that a training crop takes
  double flip = 0.5;          // probability that a training image is mirrored
  double jitter = 0.4;        // of brightness, contrast and saturation
  data::OnBadImage on_bad_image = data::OnBadImage::kFail;
  int loader_threads = 0;  // 0: as threads
  // objective
  Objective objective = Objective::kClasses;
  int64_t embedding = 64;  // values per image
  int64_t unseen = 0;      // classes, the last ones, that are evaluated on and not trained on; 0: half
  // step
  int64_t workers = 1;
  int64_t minibatch = 0;   // 0: the sampler's size, or 32
  int64_t microbatch = 0;  // 0: the whole minibatch (with split_pairs: one group per image of a label)
  bool sync_norm = false;  // the whole step is one group, over all workers
  int64_t chunk = 0;       // maximum of examples in one pass; 0: chosen by the trainer
  // model
  std::string model = "inception-small";
  NormKind norm = NormKind::kRenorm;
  bool norm_scale = false;
  double norm_eps = 1e-3;
  double norm_momentum = 0.01;
  double norm_bias = 0.0;  // initial bias of the norms of dense layers
  std::string clip = "paper";
  std::string init;             // safetensors file with initial weights; "": none
  Dtype dtype = Dtype::kFloat;  // of the activations
  MemoryFormat memory_format = MemoryFormat::kAuto;
  // length
  int64_t steps = 0;  // either steps or epochs; both 0: 2,000 steps
  double epochs = 0.0;
  // optimization
  OptimizerKind optimizer = OptimizerKind::kRmspropTf;
  double lr = 0.003;
  LrSchedule lr_schedule = LrSchedule::kExponential;
  double lr_final = 0.05;  // fraction of lr at the end
  int64_t warmup = 0;      // steps of linear warm-up
  double momentum = 0.0;   // rmsprop-tf, rmsprop, sgd
  double alpha = 0.9;      // rmsprop-tf, rmsprop: decay of the mean square
  double beta1 = 0.9;      // adamw
  double beta2 = 0.999;
  double optimizer_eps = 1e-8;  // rmsprop-tf, rmsprop, adamw
  double weight_decay = 0.0;
  double label_smoothing = 0.0;
  double clip_gradient = 0.0;  // maximum norm of the gradient; 0: no limit
  double ema_decay = 0.99;     // 0: no average
  // run
  uint64_t seed = 1;  // below 2^63
  int threads = 0;    // 0: all CPUs
  int64_t log_every = 50;
  int64_t eval_every = 0;        // 0: ten evaluations per run
  int64_t checkpoint_every = 0;  // 0: as eval_every
  int64_t keep = 3;              // newest checkpoints kept besides the best
};

// Checks every value against its limits and all against each other, without opening data. Throws UsageError.
// Specs of data and model are checked when they are opened.
void check(const Config& config);

// Fills in the settings that depend on others: minibatch, microbatch, threads, steps (epochs becomes 0),
// eval_every and checkpoint_every. `chunk` stays 0: the trainer chooses it. `config` has passed check(); only
// what depends on the number of images is checked here. Throws UsageError. The result is written to
// DIR/config.toml and compared when a run is resumed; resolving it again changes nothing.
Config resolved(const Config& config, int64_t training_images);

}  // namespace renorm::train

// The names in flags, files and messages.
namespace renorm {

template <>
struct Choices<train::NormKind> {
  static constexpr const char* kWhat = "norm";
  static constexpr Choice<train::NormKind> kAll[] = {
      {train::NormKind::kBatchnorm, "batchnorm"},
      {train::NormKind::kRenorm, "renorm"},
      {train::NormKind::kNative, "native", "LibTorch's own batchnorm and a separate ReLU"},
      {train::NormKind::kGroupnorm, "groupnorm", "LibTorch's group normalization, 16 channels each"}};
};

template <>
struct Choices<train::Objective> {
  static constexpr const char* kWhat = "objective";
  static constexpr Choice<train::Objective> kAll[] = {
      {train::Objective::kClasses, "classes"},
      {train::Objective::kMetric, "metric", "embeddings, evaluated by recall on classes not trained on"}};
};

template <>
struct Choices<train::OptimizerKind> {
  static constexpr const char* kWhat = "optimizer";
  static constexpr Choice<train::OptimizerKind> kAll[] = {
      {train::OptimizerKind::kRmspropTf, "rmsprop-tf", "epsilon inside the root"},
      {train::OptimizerKind::kRmsprop, "rmsprop"},
      {train::OptimizerKind::kSgd, "sgd"},
      {train::OptimizerKind::kAdamw, "adamw"}};
};

template <>
struct Choices<train::LrSchedule> {
  static constexpr const char* kWhat = "lr-schedule";
  static constexpr Choice<train::LrSchedule> kAll[] = {{train::LrSchedule::kExponential, "exponential"},
                                                       {train::LrSchedule::kCosine, "cosine"},
                                                       {train::LrSchedule::kConstant, "constant"}};
};

template <>
struct Choices<train::Dtype> {
  static constexpr const char* kWhat = "dtype";
  static constexpr Choice<train::Dtype> kAll[] = {{train::Dtype::kFloat, "float"},
                                                  {train::Dtype::kBf16, "bf16"}};
};

template <>
struct Choices<train::MemoryFormat> {
  static constexpr const char* kWhat = "memory-format";
  static constexpr Choice<train::MemoryFormat> kAll[] = {
      {train::MemoryFormat::kAuto, "auto", "the faster one for the model"},
      {train::MemoryFormat::kNchw, "nchw"},
      {train::MemoryFormat::kChannelsLast, "channels-last"}};
};

}  // namespace renorm
