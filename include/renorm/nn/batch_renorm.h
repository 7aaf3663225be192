// BatchRenorm1d, 2d and 3d: drop-in replacements of torch::nn::BatchNorm1d, 2d and 3d.
#pragma once

#include <renorm/export.h>
#include <renorm/nn/clip_schedule.h>
#include <renorm/nn/processes.h>
#include <renorm/ops/batch_renorm.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <typeinfo>
#include <vector>

namespace renorm {

// When the moving averages move. kImmediate: at every training forward. kDeferred: a training forward only
// collects, and commit() moves them once by the mean over all groups collected. Use kDeferred if a training
// step has several forwards (gradient accumulation, timesteps, recomputation).
enum class Statistics { kImmediate, kDeferred };

// Changing `eps`, `momentum`, `group_size`, `grouping`, `activation`, `clip`, `statistics`, `processes`,
// `warnings` or `name` on an existing module takes effect at its next forward; `num_features`, `affine`,
// `scale` and `track_running_stats` are read when the module is built.
struct RENORM_API BatchRenormOptions {
  /* implicit */ BatchRenormOptions(int64_t num_features);

  TORCH_ARG(int64_t, num_features);
  // Inside the root of the batch's standard deviation; above 0 in the dtype of the statistics.
  TORCH_ARG(double, eps) = 1e-5;
  // Weight of the new value in the averages, in [0, 1]; 0 freezes them. Absent: a cumulative average, in
  // which all steps weigh the same.
  TORCH_ARG(Optional<double>, momentum) = 0.01;
  TORCH_ARG(bool, affine) = true;               // false: neither weight nor bias
  TORCH_ARG(bool, scale) = true;                // false: no weight (fixed at 1, as in the paper), bias only
  TORCH_ARG(bool, track_running_stats) = true;  // false: plain batchnorm with batch statistics, always
  TORCH_ARG(int64_t, group_size) = 0;  // examples normalized together in training; 0 = the whole batch
  TORCH_ARG(Grouping, grouping) = Grouping::kContiguous;
  TORCH_ARG(Activation, activation) = Activation::kNone;
  TORCH_ARG(ClipSchedule, clip) = ClipSchedule::paper();
  TORCH_ARG(Statistics, statistics) = Statistics::kImmediate;
  TORCH_ARG(Processes, processes);   // several: one group over all of them in training; needs group_size 0
  TORCH_ARG(bool, warnings) = true;  // false: no warnings about likely mistakes
  TORCH_ARG(std::string, name);      // the module's name in errors; name_layers() sets it for a whole model
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
  // Training forwards whose statistics were not finite. On the CPU these throw; on other devices they change
  // nothing and are counted here.
  int64_t skipped = 0;
  double r_clipped_above = 0.0;
  double r_clipped_below = 0.0;
  double d_clipped = 0.0;
  Summary r;
  Summary d;
};

// The base of all Batch Renorm layers. renorm/nn/model.h has functions for all layers of a model. A subclass
// that is to be cloned overrides clone() with clone_as<Subclass>().
class RENORM_API BatchRenormLayer : public torch::nn::Module {
 public:
  // Training: Batch Renormalization, then the averages move (or collect, see Statistics).
  // Evaluation: inference with the averages, or, after use_batch_statistics(true), batchnorm with the
  // statistics of the whole input, which touches no average (the paper's "training mode" evaluation).
  // A training batch whose statistics are not finite throws NonFiniteStatistics and changes nothing in this
  // layer; layers before it have moved unless their statistics are deferred. On devices other than the CPU
  // the host does not wait for the answer: nothing is thrown before commit(). An empty batch gives an empty
  // output and changes nothing.
  virtual torch::Tensor forward(const torch::Tensor& input);
  // activation(norm(input) + residual) in one pass, as at the end of a residual block, whatever
  // options.activation is. `residual` has the input's sizes, dtype and device. A subclass
  // that changes forward changes this one too.
  virtual torch::Tensor forward_residual(const torch::Tensor& input, const torch::Tensor& residual,
                                         Activation activation = Activation::kRelu);

  // Deferred statistics: moves the averages once by the mean over the groups collected since the last commit,
  // counts one step, and returns true; false if nothing was collected or the statistics are immediate. On
  // devices other than the CPU, throws NonFiniteStatistics if collected statistics are not finite, and
  // discards them.
  // Collected statistics are neither saved with the module nor cloned; loading the module and moving it to
  // another device or dtype discard them: save between steps.
  bool commit();
  // Deferred statistics: discards what was collected, for a step that is not taken. An immediate forward also
  // discards what earlier deferred ones collected.
  void discard();
  // Deferred statistics on the CPU, for a step that several processes share: what was collected, as doubles
  // [1 + 2 * channels]: the number of groups and the sums over them of batch_mean and of batch_std. Their sum
  // over the processes, given to set_collected() of each, makes commit() move the averages alike everywhere.
  torch::Tensor collected() const;
  void set_collected(const torch::Tensor& values);

  void use_batch_statistics(bool on) { use_batch_statistics_ = on; }
  bool uses_batch_statistics() const { return use_batch_statistics_; }

  // The limits that the next training forward uses.
  ClipLimits clip_limits() const;
  // The number of training steps so far, which is the position in the schedule. Saved with the module.
  int64_t step() const;
  void set_step(int64_t step);

  ClipTelemetry clip_telemetry() const;
  void clear_clip_telemetry();

  // Weight 1, bias 0, and reset_running_stats().
  void reset_parameters();
  // Averages 0 and 1, step 0, nothing collected or counted.
  void reset_running_stats();

  // An independent copy, on `device` if given: options, parameters, averages, step, train/eval mode; nothing
  // collected or counted. A subclass that does not override it cannot be cloned.
  std::shared_ptr<torch::nn::Module> clone(const Optional<torch::Device>& device = {}) const override;
  void pretty_print(std::ostream& stream) const override;
  void train(bool on = true) override;
  void load(torch::serialize::InputArchive& archive) override;

  // Parameters and averages stay float32 or wider: a narrower dtype (bfloat16, half) makes them float32, and
  // input of that dtype is accepted. num_batches_tracked stays int64.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

  // The number of channels that the layer was built with.
  int64_t channels() const { return channels_; }

  BatchRenormOptions options;
  torch::Tensor weight;        // undefined without affine or scale
  torch::Tensor bias;          // undefined without affine
  torch::Tensor running_mean;  // these three undefined without track_running_stats
  torch::Tensor running_std;
  torch::Tensor num_batches_tracked;  // int64

 protected:
  // The name of a class of layers in errors, and the input that it accepts.
  struct Kind {
    const char* name;  // "BatchRenorm2d"
    int64_t min_rank;
    int64_t max_rank;
    const char* shapes;  // "[N, C, H, W]"
  };
  BatchRenormLayer(BatchRenormOptions options, const Kind& kind);

  // clone() of the class Layer, which has a constructor from BatchRenormOptions. Throws if the dynamic class
  // is another one, whose own members would be lost, or if it has child modules.
  template <class Layer>
  std::shared_ptr<torch::nn::Module> clone_as(const Optional<torch::Device>& device) const {
    check_class(typeid(Layer));
    auto copy = std::make_shared<Layer>(options_as_built());
    copy->copy_state(*this, device);
    return copy;
  }

  // Copies all parameters and buffers by name, options and modes of `other`, which was built with the same
  // affine, scale and track_running_stats. Children and plain members are not copied.
  void copy_state(const BatchRenormLayer& other, const Optional<torch::Device>& device);
  // Called by a Cloneable parent. A subclass with members of its own overrides it as well as clone().
  // LibTorch's own Cloneable is a virtual base in some releases and not in others, so it is not used.
  void clone_(torch::nn::Module& other, const Optional<torch::Device>& device) override;

  std::string who() const;  // kind and name of this module for errors

 private:
  friend RENORM_API int64_t commit(torch::nn::Module& model);
  struct RENORM_LOCAL Account;  // telemetry and the statistics collected for commit()

  BatchRenormOptions options_as_built() const;
  // The operations after the normalization.
  struct Ending {
    Activation activation;
    torch::Tensor residual;  // may be undefined
  };
  torch::Tensor run(const torch::Tensor& input, const Ending& ending);
  torch::Tensor train_on(const torch::Tensor& input, const Ending& ending);
  torch::Tensor train_on_share(const torch::Tensor& input, const Ending& ending);
  torch::Tensor infer_by_batch(const torch::Tensor& input, const Ending& ending) const;
  void collect(const ops::BatchRenormResult& result);
  void collect_on_device(const ops::BatchRenormResult& result);
  void move_averages(const ops::BatchRenormResult& result);
  void check_collected() const;
  void forget_process_state();
  void check_class(const std::type_info& expected) const;
  void check_options() const;
  void check_input(const torch::Tensor& input) const;
  void check_groups(const torch::Tensor& input, int64_t group_size) const;
  void check_averages() const;
  void check_residual(const torch::Tensor& input, const torch::Tensor& residual) const;

  Kind kind_;
  int64_t channels_;
  std::shared_ptr<Account> account_;
  bool use_batch_statistics_ = false;
  bool has_trained_ = false;  // in this process
};

// Input [N, C] or [N, C, L].
class RENORM_API BatchRenorm1dImpl : public BatchRenormLayer {
 public:
  explicit BatchRenorm1dImpl(BatchRenormOptions options);
  std::shared_ptr<torch::nn::Module> clone(const Optional<torch::Device>& device = {}) const override;
};
TORCH_MODULE(BatchRenorm1d);

// Input [N, C, H, W].
class RENORM_API BatchRenorm2dImpl : public BatchRenormLayer {
 public:
  explicit BatchRenorm2dImpl(BatchRenormOptions options);
  std::shared_ptr<torch::nn::Module> clone(const Optional<torch::Device>& device = {}) const override;
};
TORCH_MODULE(BatchRenorm2d);

// Input [N, C, D, H, W].
class RENORM_API BatchRenorm3dImpl : public BatchRenormLayer {
 public:
  explicit BatchRenorm3dImpl(BatchRenormOptions options);
  std::shared_ptr<torch::nn::Module> clone(const Optional<torch::Device>& device = {}) const override;
};
TORCH_MODULE(BatchRenorm3d);

}  // namespace renorm
