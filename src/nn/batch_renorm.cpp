#include "renorm/nn/batch_renorm.h"

#include <ATen/Dispatch.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/averages.h"

namespace renorm {
namespace {

// The same tensor if it is contiguous memory of the CPU already, otherwise a copy that is.
at::Tensor on_host(const at::Tensor& tensor) {
  return (tensor.is_cpu() ? tensor : tensor.to(at::kCPU)).contiguous();
}

// A forward's batch statistics, [groups, channels] on the CPU.
struct HostStatistics {
  explicit HostStatistics(const ops::BatchRenormResult& result)
      : mean(on_host(result.batch_mean)),
        std(on_host(result.batch_std)),
        groups(mean.size(0)),
        channels(mean.size(1)) {}

  at::Tensor mean;
  at::Tensor std;
  int64_t groups;
  int64_t channels;
};

// The channel of the first statistic that is not finite, or -1.
int64_t non_finite_channel(const HostStatistics& statistics) {
  int64_t found = -1;
  AT_DISPATCH_FLOATING_TYPES(statistics.mean.scalar_type(), "renorm::find_non_finite", [&] {
    const int64_t count = statistics.groups * statistics.channels;
    found = kernels::find_non_finite(statistics.mean.data_ptr<scalar_t>(), count);
    if (found < 0) found = kernels::find_non_finite(statistics.std.data_ptr<scalar_t>(), count);
  });
  return found < 0 ? found : found % statistics.channels;
}

void count_clips(const HostStatistics& statistics, const at::Tensor& running_mean,
                 const at::Tensor& running_std, const ClipLimits& limits, kernels::ClipCounts* counts) {
  const at::Tensor mean = on_host(running_mean);
  const at::Tensor std = on_host(running_std);
  AT_DISPATCH_FLOATING_TYPES(mean.scalar_type(), "renorm::count_clips", [&] {
    kernels::count_clips(statistics.mean.data_ptr<scalar_t>(), statistics.std.data_ptr<scalar_t>(),
                         mean.data_ptr<scalar_t>(), std.data_ptr<scalar_t>(), statistics.groups,
                         statistics.channels, limits.r_max, limits.d_max, counts);
  });
}

void add_groups(const at::Tensor& value, std::vector<double>* sum) {
  AT_DISPATCH_FLOATING_TYPES(value.scalar_type(), "renorm::add_groups", [&] {
    kernels::add_groups(value.data_ptr<scalar_t>(), value.size(0), value.size(1), sum->data());
  });
}

// In place: the registered buffer keeps its storage. Raw writes are invisible to autograd, hence the version:
// a backward pass that still needs the old value must fail, not compute nonsense.
void move_average(const std::vector<double>& sum, int64_t groups, double momentum, at::Tensor* running) {
  const at::Tensor host = on_host(*running);
  AT_DISPATCH_FLOATING_TYPES(host.scalar_type(), "renorm::move_average", [&] {
    kernels::move_average(sum.data(), static_cast<double>(groups), host.numel(), momentum,
                          host.data_ptr<scalar_t>());
  });
  if (host.is_same(*running)) {
    running->unsafeGetTensorImpl()->bump_version();
  } else {
    running->copy_(host);
  }
}

// One dispatched addition costs as much as all the rest of the bookkeeping of a small layer.
void count_step(at::Tensor* steps) {
  if (steps->is_cpu()) {
    *steps->data_ptr<int64_t>() += 1;
    steps->unsafeGetTensorImpl()->bump_version();
  } else {
    steps->add_(1);
  }
}

ClipTelemetry::Summary summary(double sum, double sum_of_squares, double least, double greatest,
                               int64_t values) {
  const double mean = sum / static_cast<double>(values);
  const double variance = sum_of_squares / static_cast<double>(values) - mean * mean;
  return {mean, std::sqrt(std::max(0.0, variance)), least, greatest};
}

}  // namespace

struct BatchRenormLayer::Account {
  kernels::ClipCounts clips;
  // Sums over the groups that the averages have not seen yet; meaningless while groups is 0.
  std::vector<double> mean_sum;
  std::vector<double> std_sum;
  int64_t groups = 0;
};

BatchRenormOptions::BatchRenormOptions(int64_t num_features) : num_features_(num_features) {}

BatchRenormLayer::BatchRenormLayer(BatchRenormOptions options) : options(std::move(options)) {}

torch::Tensor BatchRenormLayer::forward(const torch::Tensor& input) {
  check_options();
  check_input(input);
  if (is_training()) return forward_training(input);
  if (use_batch_statistics_ || !running_mean.defined()) return forward_batch_statistics(input);
  return ops::batch_renorm_inference(input, weight, bias, running_mean, running_std, options.activation());
}

torch::Tensor BatchRenormLayer::forward_training(const torch::Tensor& input) {
  check_groups(input, options.group_size());
  const ClipLimits limits = clip_limits();
  ops::BatchRenormArguments arguments;
  arguments.eps = options.eps();
  arguments.r_max = limits.r_max;
  arguments.d_max = limits.d_max;
  arguments.group_size = options.group_size();
  arguments.grouping = options.grouping();
  arguments.activation = options.activation();
  const auto result = ops::batch_renorm(input, weight, bias, running_mean, running_std, arguments);
  // Meta tensors have shapes only.
  if (input.numel() > 0 && !input.is_meta()) collect(result, limits);
  return result.output;
}

torch::Tensor BatchRenormLayer::forward_batch_statistics(const torch::Tensor& input) const {
  check_groups(input, /*group_size=*/0);
  ops::BatchRenormArguments arguments;
  arguments.eps = options.eps();
  arguments.activation = options.activation();
  return ops::batch_renorm(input, weight, bias, {}, {}, arguments).output;
}

void BatchRenormLayer::collect(const ops::BatchRenormResult& result, const ClipLimits& limits) {
  const torch::NoGradGuard no_grad;
  const HostStatistics statistics(result);
  const int64_t bad_channel = non_finite_channel(statistics);
  if (bad_channel >= 0) {
    throw NonFiniteStatistics(
        {__func__, __FILE__, __LINE__},
        c10::str(who(), ": the batch statistics of channel ", bad_channel, " are not finite (step ", step(),
                 "); look for overflow or NaN in the input"));
  }
  if (!running_mean.defined()) return;

  Account& account = *account_;
  count_clips(statistics, running_mean, running_std, limits, &account.clips);
  const bool immediate = options.statistics() == Statistics::kImmediate;
  if (immediate || account.groups == 0) {
    account.mean_sum.assign(statistics.channels, 0.0);
    account.std_sum.assign(statistics.channels, 0.0);
    account.groups = 0;
  }
  add_groups(statistics.mean, &account.mean_sum);
  add_groups(statistics.std, &account.std_sum);
  account.groups += statistics.groups;
  if (immediate) move_averages();
}

void BatchRenormLayer::move_averages() {
  const torch::NoGradGuard no_grad;
  Account& account = *account_;
  move_average(account.mean_sum, account.groups, options.momentum(), &running_mean);
  move_average(account.std_sum, account.groups, options.momentum(), &running_std);
  account.groups = 0;
  count_step(&num_batches_tracked);
}

bool BatchRenormLayer::commit() {
  check_options();
  if (options.statistics() == Statistics::kImmediate || account_->groups == 0) return false;
  move_averages();
  return true;
}

void BatchRenormLayer::discard() { account_->groups = 0; }

ClipLimits BatchRenormLayer::clip_limits() const {
  return running_mean.defined() ? options.clip().at(step()) : ClipSchedule::batch_norm().at(0);
}

int64_t BatchRenormLayer::step() const {
  if (!num_batches_tracked.defined()) return 0;
  return num_batches_tracked.is_cpu() ? *num_batches_tracked.data_ptr<int64_t>()
                                      : num_batches_tracked.item<int64_t>();
}

ClipTelemetry BatchRenormLayer::clip_telemetry() const {
  const kernels::ClipCounts& clips = account_->clips;
  ClipTelemetry telemetry;
  if (clips.values == 0) return telemetry;
  const auto fraction = [&clips](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(clips.values);
  };
  telemetry.values = clips.values;
  telemetry.r_clipped_above = fraction(clips.r_above);
  telemetry.r_clipped_below = fraction(clips.r_below);
  telemetry.d_clipped = fraction(clips.d_outside);
  telemetry.r = summary(clips.r_sum, clips.r_sum_of_squares, clips.r_least, clips.r_greatest, clips.values);
  telemetry.d = summary(clips.d_sum, clips.d_sum_of_squares, clips.d_least, clips.d_greatest, clips.values);
  return telemetry;
}

void BatchRenormLayer::clear_clip_telemetry() { account_->clips = {}; }

void BatchRenormLayer::register_state() {
  check_options();
  const bool has_weight = options.affine() && options.scale();
  const int64_t channels = options.num_features();
  const auto per_channel = [channels](bool wanted) {
    return wanted ? torch::empty({channels}, torch::kFloat) : torch::Tensor();
  };
  weight = register_parameter("weight", per_channel(has_weight), /*requires_grad=*/has_weight);
  bias = register_parameter("bias", per_channel(options.affine()), /*requires_grad=*/options.affine());
  const bool tracks = options.track_running_stats();
  running_mean = register_buffer("running_mean", per_channel(tracks));
  running_std = register_buffer("running_std", per_channel(tracks));
  num_batches_tracked =
      register_buffer("num_batches_tracked", tracks ? torch::zeros({}, torch::kLong) : torch::Tensor());
  account_ = std::make_shared<Account>();
  reset_parameters();
}

void BatchRenormLayer::reset_parameters() {
  const torch::NoGradGuard no_grad;
  if (weight.defined()) weight.fill_(1.0);
  if (bias.defined()) bias.zero_();
  if (running_mean.defined()) {
    running_mean.zero_();
    running_std.fill_(1.0);
    num_batches_tracked.zero_();
  }
  *account_ = Account();
}

std::shared_ptr<torch::nn::Module> BatchRenormLayer::clone(const c10::optional<torch::Device>& device) const {
  std::shared_ptr<BatchRenormLayer> copy = make_alike();
  copy->copy_state(*this, device);
  return copy;
}

void BatchRenormLayer::clone_(torch::nn::Module& other, const c10::optional<torch::Device>& device) {
  copy_state(dynamic_cast<const BatchRenormLayer&>(other), device);
}

void BatchRenormLayer::copy_state(const BatchRenormLayer& other, const c10::optional<torch::Device>& device) {
  const torch::NoGradGuard no_grad;
  const auto copy = [&device](const torch::Tensor& from, torch::Tensor* to) {
    TORCH_INTERNAL_ASSERT(from.defined() == to->defined());
    if (!from.defined()) return;
    const bool moves = device.has_value() && *device != from.device();
    to->set_data(moves ? from.to(*device) : from.detach().clone());
    to->set_requires_grad(from.requires_grad());
  };
  copy(other.weight, &weight);
  copy(other.bias, &bias);
  copy(other.running_mean, &running_mean);
  copy(other.running_std, &running_std);
  copy(other.num_batches_tracked, &num_batches_tracked);
  options = other.options;
  use_batch_statistics_ = other.use_batch_statistics_;
  train(other.is_training());
  *account_ = Account();
}

void BatchRenormLayer::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  to(dtype, non_blocking);
}

void BatchRenormLayer::to(torch::Dtype dtype, bool non_blocking) {
  TORCH_CHECK(at::isFloatingType(dtype), who(), ": dtype must be a floating one, got ", dtype);
  if (dtype != torch::kFloat && dtype != torch::kDouble) return;
  const torch::NoGradGuard no_grad;
  for (torch::Tensor* held : {&weight, &bias, &running_mean, &running_std}) {
    if (held->defined()) held->set_data(held->to(dtype, non_blocking));
  }
}

void BatchRenormLayer::pretty_print(std::ostream& stream) const {
  stream << "renorm::" << kind() << "(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=" << options.momentum() << std::boolalpha << ", affine=" << options.affine()
         << ", scale=" << options.scale() << ", track_running_stats=" << options.track_running_stats();
  if (options.group_size() > 0) {
    stream << ", group_size=" << options.group_size()
           << (options.grouping() == Grouping::kStrided ? " strided" : " contiguous");
  }
  if (options.activation() == Activation::kRelu) stream << ", activation=relu";
  if (options.statistics() == Statistics::kDeferred) stream << ", statistics=deferred";
  stream << ", clip=(" << options.clip().to_string() << "))";
}

BatchRenorm1dImpl::BatchRenorm1dImpl(BatchRenormOptions options) : BatchRenormLayer(std::move(options)) {
  register_state();
}

BatchRenorm2dImpl::BatchRenorm2dImpl(BatchRenormOptions options) : BatchRenormLayer(std::move(options)) {
  register_state();
}

BatchRenorm3dImpl::BatchRenorm3dImpl(BatchRenormOptions options) : BatchRenormLayer(std::move(options)) {
  register_state();
}

}  // namespace renorm
