// BatchRenorm1d, 2d and 3d: drop-in replacements of torch::nn::BatchNorm1d, 2d and 3d.
#pragma once

#include <c10/util/Exception.h>
#include <renorm/nn/clip_schedule.h>
#include <renorm/ops/batch_renorm.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace renorm {

// When the moving averages move. kImmediate: at every training forward. kDeferred: a training forward only
// collects, and commit() moves them once by the mean over all groups collected. Use kDeferred if a training
// step has several forwards (gradient accumulation, timesteps, recomputation).
enum class Statistics { kImmediate, kDeferred };

// Changing `eps`, `momentum`, `group_size`, `grouping`, `activation`, `clip`, `statistics` or `name` on an
// existing module takes effect at its next forward; `num_features`, `affine`, `scale` and
// `track_running_stats` are read when the module is built.
struct BatchRenormOptions {
  /* implicit */ BatchRenormOptions(int64_t num_features);

  TORCH_ARG(int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;                // inside the root of the batch's standard deviation, > 0
  TORCH_ARG(double, momentum) = 0.01;           // weight of the new value in the averages, in (0, 1]
  TORCH_ARG(bool, affine) = true;               // false: neither weight nor bias
  TORCH_ARG(bool, scale) = true;                // false: no weight (fixed at 1, as in the paper), bias only
  TORCH_ARG(bool, track_running_stats) = true;  // false: plain batchnorm with batch statistics, always
  TORCH_ARG(int64_t, group_size) = 0;  // examples normalized together in training; 0 = the whole batch
  TORCH_ARG(Grouping, grouping) = Grouping::kContiguous;
  TORCH_ARG(Activation, activation) = Activation::kNone;
  TORCH_ARG(ClipSchedule, clip) = ClipSchedule::paper();
  TORCH_ARG(Statistics, statistics) = Statistics::kImmediate;
  TORCH_ARG(std::string, name);  // the module's name in errors; name_layers() sets it for a whole model
};

// How the limits clipped r and d since the telemetry was last cleared. Fractions are of all (group, channel)
// pairs; r and d are the values before clipping.
struct ClipTelemetry {
  struct Summary {
    double mean = 0.0;
    double std = 0.0;
    double min = 0.0;
    double max = 0.0;
  };
  int64_t values = 0;
  double r_clipped_above = 0.0;
  double r_clipped_below = 0.0;
  double d_clipped = 0.0;
  Summary r;
  Summary d;
};

// Thrown by a training forward if the statistics of its batch are not finite.
class NonFiniteStatistics : public c10::Error {
 public:
  using c10::Error::Error;
};

// The base of all Batch Renorm layers. To reach every layer of a model:
//   for (const NamedLayer& named : batch_renorm_layers(*model)) named.layer->commit();
class BatchRenormLayer : public torch::nn::Module {
 public:
  explicit BatchRenormLayer(BatchRenormOptions options);

  // Training: Batch Renormalization, then the averages move (or collect, see Statistics).
  // Evaluation: inference with the averages, or, after use_batch_statistics(true), batchnorm with the
  // statistics of the whole input, which touches no average (the paper's "training mode" evaluation).
  // A training batch whose statistics are not finite throws NonFiniteStatistics and changes nothing. An empty
  // batch gives an empty output and changes nothing.
  torch::Tensor forward(const torch::Tensor& input);

  // Deferred statistics: moves the averages once by the mean over the groups collected since the last commit,
  // counts one step, and returns true; false if nothing was collected or the statistics are immediate.
  // Collected statistics are neither saved with the module nor cloned: save between steps.
  bool commit();
  // Deferred statistics: discards what was collected, for a step that is not taken. An immediate forward also
  // discards what earlier deferred ones collected.
  void discard();

  void use_batch_statistics(bool on) { use_batch_statistics_ = on; }
  bool uses_batch_statistics() const { return use_batch_statistics_; }

  // The limits that the next training forward uses.
  ClipLimits clip_limits() const;
  // The number of training steps so far, which is the position in the schedule. Saved with the module.
  int64_t step() const;

  ClipTelemetry clip_telemetry() const;
  void clear_clip_telemetry();

  // Weight 1, bias 0, averages 0 and 1, step 0, nothing collected or counted.
  void reset_parameters();

  // An independent copy, on `device` if given: options, parameters, averages, step, train/eval mode; nothing
  // collected or counted.
  std::shared_ptr<torch::nn::Module> clone(const Optional<torch::Device>& device = {}) const override;
  void pretty_print(std::ostream& stream) const override;

  // Parameters and averages stay float32 or wider: a narrower dtype (bfloat16, half) leaves them as they are,
  // and input of that dtype is accepted. num_batches_tracked stays int64.
  using torch::nn::Module::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

  BatchRenormOptions options;
  torch::Tensor weight;        // undefined without affine or scale
  torch::Tensor bias;          // undefined without affine
  torch::Tensor running_mean;  // these three undefined without track_running_stats
  torch::Tensor running_std;
  torch::Tensor num_batches_tracked;  // int64

 protected:
  // Throws unless this layer accepts the rank of the input.
  virtual void check_input_dim(const torch::Tensor& input) const = 0;
  virtual const char* kind() const = 0;  // "BatchRenorm2d"
  std::string who() const;               // kind and name of this module for errors
  // A new layer of the same kind with the same options.
  virtual std::shared_ptr<BatchRenormLayer> make_alike() const = 0;
  // Registers parameters and buffers, once, in the constructor of the kind.
  void register_state();

 private:
  struct Account;  // telemetry and the statistics collected for commit()

  // LibTorch's own Cloneable is a virtual base in some releases and not in others, so it is not used.
  void clone_(torch::nn::Module& other, const Optional<torch::Device>& device) override;
  void copy_state(const BatchRenormLayer& other, const Optional<torch::Device>& device);
  torch::Tensor forward_training(const torch::Tensor& input);
  torch::Tensor forward_batch_statistics(const torch::Tensor& input) const;
  void collect(const ops::BatchRenormResult& result, const ClipLimits& limits);
  void move_averages();
  void check_options() const;
  void check_input(const torch::Tensor& input) const;
  void check_groups(const torch::Tensor& input, int64_t group_size) const;

  std::shared_ptr<Account> account_;
  bool use_batch_statistics_ = false;
};

// Input [N, C] or [N, C, L].
class BatchRenorm1dImpl : public BatchRenormLayer {
 public:
  explicit BatchRenorm1dImpl(BatchRenormOptions options);

 protected:
  void check_input_dim(const torch::Tensor& input) const override;
  const char* kind() const override { return "BatchRenorm1d"; }
  std::shared_ptr<BatchRenormLayer> make_alike() const override {
    return std::make_shared<BatchRenorm1dImpl>(options);
  }
};
TORCH_MODULE(BatchRenorm1d);

// Input [N, C, H, W].
class BatchRenorm2dImpl : public BatchRenormLayer {
 public:
  explicit BatchRenorm2dImpl(BatchRenormOptions options);

 protected:
  void check_input_dim(const torch::Tensor& input) const override;
  const char* kind() const override { return "BatchRenorm2d"; }
  std::shared_ptr<BatchRenormLayer> make_alike() const override {
    return std::make_shared<BatchRenorm2dImpl>(options);
  }
};
TORCH_MODULE(BatchRenorm2d);

// Input [N, C, D, H, W].
class BatchRenorm3dImpl : public BatchRenormLayer {
 public:
  explicit BatchRenorm3dImpl(BatchRenormOptions options);

 protected:
  void check_input_dim(const torch::Tensor& input) const override;
  const char* kind() const override { return "BatchRenorm3d"; }
  std::shared_ptr<BatchRenormLayer> make_alike() const override {
    return std::make_shared<BatchRenorm3dImpl>(options);
  }
};
TORCH_MODULE(BatchRenorm3d);

// All Batch Renorm layers of a model, each once, in registration order, with their path ("stem.norm"; empty
// if the model itself is the layer).
struct NamedLayer {
  std::string path;
  BatchRenormLayer* layer;  // owned by the model
};
std::vector<NamedLayer> batch_renorm_layers(const torch::nn::Module& model);

// Sets every layer's `name` to its path in the model, so that errors name the layer.
void name_layers(const torch::nn::Module& model);

}  // namespace renorm
