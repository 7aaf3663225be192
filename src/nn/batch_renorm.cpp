#include "renorm/nn/batch_renorm.h"

#include <torch/serialize/input-archive.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <utility>

#include "nn/account.h"
#include "nn/warnings.h"
#include "ops/batch_renorm.h"

namespace renorm {
namespace {

// Float or wider: LibTorch's default dtype, unless that is narrower.
at::ScalarType held_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

// Adds one to the number of steps. A dispatched addition would cost as much as the rest of the bookkeeping of
// a small layer.
void count_step(at::Tensor* steps) {
  if (steps->is_cpu()) {
    *steps->data_ptr<int64_t>() += 1;
    if (!steps->is_inference()) steps->unsafeGetTensorImpl()->bump_version();
  } else {
    steps->add_(1);
  }
}

// Copies the tensors that have the same names.
void copy_tensors(const std::string& who, const torch::OrderedDict<std::string, torch::Tensor>& from,
                  torch::OrderedDict<std::string, torch::Tensor> to, const Optional<torch::Device>& device) {
  const auto check = [&](bool found, const std::string& name) {
    TORCH_CHECK(found, who, ": clone: the copy must have '", name,
                "' if and only if the original has; build both with the same affine, scale and "
                "track_running_stats");
  };
  for (const auto& held : to) check(from.contains(held.key()), held.key());
  for (const auto& item : from) {
    torch::Tensor* copy = to.find(item.key());
    check(copy != nullptr, item.key());
    const torch::Tensor& original = item.value();
    copy->set_data(original.detach().to(original.options().device(device.value_or(original.device())),
                                        /*non_blocking=*/false, /*copy=*/true));
    copy->set_requires_grad(original.requires_grad());
  }
}

}  // namespace

BatchRenormOptions::BatchRenormOptions(int64_t num_features) : num_features_(num_features) {}

BatchRenormLayer::BatchRenormLayer(BatchRenormOptions given, const Kind& kind)
    : options(std::move(given)),
      kind_(kind),
      channels_(options.num_features()),
      account_(std::make_shared<Account>()) {
  check_options();
  const auto type = held_type(c10::typeMetaToScalarType(at::get_default_dtype()));
  const auto per_channel = [&](bool wanted) {
    return wanted ? torch::empty({channels_}, type) : torch::Tensor();
  };
  const bool has_weight = options.affine() && options.scale();
  const bool tracks = options.track_running_stats();
  weight = register_parameter("weight", per_channel(has_weight), /*requires_grad=*/has_weight);
  bias = register_parameter("bias", per_channel(options.affine()), /*requires_grad=*/options.affine());
  running_mean = register_buffer("running_mean", per_channel(tracks));
  running_std = register_buffer("running_std", per_channel(tracks));
  num_batches_tracked =
      register_buffer("num_batches_tracked", tracks ? torch::zeros({}, torch::kLong) : torch::Tensor());
  reset_parameters();
}

torch::Tensor BatchRenormLayer::forward(const torch::Tensor& input) {
  return run(input, {options.activation(), {}});
}

torch::Tensor BatchRenormLayer::forward_residual(const torch::Tensor& input, const torch::Tensor& residual,
                                                 Activation activation) {
  TORCH_CHECK(input.defined() && residual.defined(), who(),
              ": input and residual must be tensors, got an undefined one");
  check_residual(input, residual);
  return run(input, {activation, residual});
}

torch::Tensor BatchRenormLayer::run(const torch::Tensor& input, const Ending& ending) {
  check_options();
  check_input(input);
  check_averages();
  if (is_training()) return train_on(input, ending);
  if (use_batch_statistics_ || !running_mean.defined()) return infer_by_batch(input, ending);
  const bool can_commit = options.statistics() == Statistics::kDeferred && account_->waiting_groups() > 0;
  if (can_commit && options.warnings()) {
    warn_of_uncommitted(who(), account_->waiting_groups());
  }
  return ops::batch_renorm_inference(input, weight, bias, running_mean, running_std, ending.activation,
                                     ending.residual);
}

torch::Tensor BatchRenormLayer::train_on(const torch::Tensor& input, const Ending& ending) {
  if (options.processes().several() && !input.is_meta()) return train_on_share(input, ending);
  check_groups(input, options.group_size());
  ops::BatchRenormArguments arguments;
  arguments.eps = options.eps();
  arguments.group_size = options.group_size();
  arguments.grouping = options.grouping();
  arguments.activation = ending.activation;
  arguments.residual = ending.residual;
  const auto result = running_mean.defined()
                          ? ops::batch_renorm_step(input, weight, bias, running_mean, running_std,
                                                   num_batches_tracked, options.clip().constants(), arguments)
                          : ops::batch_renorm(input, weight, bias, {}, {}, arguments);
  // Meta tensors have shapes only.
  if (input.numel() > 0 && !input.is_meta()) collect(result);
  return result.output;
}

torch::Tensor BatchRenormLayer::infer_by_batch(const torch::Tensor& input, const Ending& ending) const {
  check_groups(input, /*group_size=*/0);
  ops::BatchRenormArguments arguments;
  arguments.eps = options.eps();
  arguments.activation = ending.activation;
  arguments.residual = ending.residual;
  return ops::batch_renorm(input, weight, bias, {}, {}, arguments).output;
}

void BatchRenormLayer::collect(const ops::BatchRenormResult& result) {
  const torch::NoGradGuard no_grad;
  has_trained_ = running_mean.defined();
  if (!result.batch_mean.is_cpu() || ops::composite_is_forced()) return collect_on_device(result);
  const HostStatistics statistics(result);
  const int64_t bad_channel = statistics.non_finite_channel();
  if (bad_channel >= 0) {
    NonFiniteStatistics error({__func__, __FILE__, __LINE__},
                              c10::str(who(), ": the batch statistics of channel ", bad_channel,
                                       " are not finite; look for overflow or NaN in the input"));
    error.add_context(c10::str("step ", step()));
    throw error;
  }
  if (!running_mean.defined()) return;

  account_->count_clips(statistics, running_mean, running_std, clip_limits());
  if (options.statistics() == Statistics::kDeferred) {
    account_->add(statistics);
  } else {
    move_averages(result);
  }
}

// Nothing is read by the host.
void BatchRenormLayer::collect_on_device(const ops::BatchRenormResult& result) {
  if (!running_mean.defined()) return;
  account_->device.count_clips(result, running_mean, running_std);
  if (options.statistics() == Statistics::kDeferred) {
    account_->device.add(result);
  } else {
    move_averages(result);
  }
}

void BatchRenormLayer::move_averages(const ops::BatchRenormResult& result) {
  discard();
  ops::move_averages_(running_mean, running_std, num_batches_tracked, result.batch_mean, result.batch_std,
                      options.momentum());
}

bool BatchRenormLayer::commit() {
  check_options();
  if (options.statistics() == Statistics::kImmediate || account_->waiting_groups() == 0) return false;
  const torch::NoGradGuard no_grad;
  if (account_->device.groups() > 0) {
    check_collected();
    account_->device.commit(options.momentum(), &running_mean, &running_std, &num_batches_tracked);
    return true;
  }
  const double momentum = options.momentum().value_or(1.0 / static_cast<double>(step() + 1));
  account_->move_averages(momentum, &running_mean, &running_std);
  count_step(&num_batches_tracked);
  return true;
}

// Only on devices other than the CPU can a batch that is not finite have been collected.
void BatchRenormLayer::check_collected() const {
  if (account_->device.groups() == 0 || account_->device.collected_finite()) return;
  account_->discard();
  throw NonFiniteStatistics({__func__, __FILE__, __LINE__},
                            c10::str(who(), ": collected batch statistics are not finite (step ", step(),
                                     "); look for overflow or NaN in the input"));
}

void BatchRenormLayer::discard() { account_->discard(); }

torch::Tensor BatchRenormLayer::collected() const {
  TORCH_CHECK(account_->device.groups() == 0, who(), ": collected: the layer must be on cpu, got ",
              running_mean.device());
  return account_->collected(channels_);
}

void BatchRenormLayer::set_collected(const torch::Tensor& values) {
  check_collected_values(who() + ": set_collected", values, channels_);
  discard();
  account_->set_collected(values);
}

ClipLimits BatchRenormLayer::clip_limits() const {
  return running_mean.defined() ? options.clip().at(step()) : ClipSchedule::batch_norm().at(0);
}

int64_t BatchRenormLayer::step() const {
  if (!num_batches_tracked.defined()) return 0;
  const bool on_host = num_batches_tracked.is_cpu() && !ops::composite_is_forced();
  return on_host ? *num_batches_tracked.data_ptr<int64_t>() : num_batches_tracked.item<int64_t>();
}

void BatchRenormLayer::set_step(int64_t step) {
  TORCH_CHECK(step >= 0, who(), ": step must be >= 0, got ", step);
  TORCH_CHECK(num_batches_tracked.defined(), who(), ": a layer without averages has no step to set");
  const torch::NoGradGuard no_grad;
  num_batches_tracked.fill_(step);
}

ClipTelemetry BatchRenormLayer::clip_telemetry() const { return account_->telemetry(); }

void BatchRenormLayer::clear_clip_telemetry() { account_->clear_telemetry(); }

void BatchRenormLayer::reset_parameters() {
  const torch::NoGradGuard no_grad;
  if (weight.defined()) weight.fill_(1.0);
  if (bias.defined()) bias.zero_();
  reset_running_stats();
}

void BatchRenormLayer::reset_running_stats() {
  const torch::NoGradGuard no_grad;
  if (running_mean.defined()) {
    running_mean.zero_();
    running_std.fill_(1.0);
    num_batches_tracked.zero_();
  }
  forget_process_state();
}

// Collected statistics, telemetry and whether the layer has trained are not saved with the module.
void BatchRenormLayer::forget_process_state() {
  *account_ = Account();
  has_trained_ = false;
}

// A layer that has only ever been batchnorm is probably not what the user wants.
void BatchRenormLayer::train(bool on) {
  const bool leaves_training = is_training() && !on && has_trained_;
  const int64_t hold = options.clip().hold();  // negative: none
  if (leaves_training && options.warnings() && hold >= 0 && step() <= hold + 1) {
    warn_of_hold(who(), step(), hold);
  }
  torch::nn::Module::train(on);
}

void BatchRenormLayer::load(torch::serialize::InputArchive& archive) {
  torch::nn::Module::load(archive);
  forget_process_state();
}

std::shared_ptr<torch::nn::Module> BatchRenormLayer::clone(const Optional<torch::Device>& /*device*/) const {
  TORCH_CHECK(false, who(), ": this class must override clone() with clone_as<Class>() to be cloned");
}

void BatchRenormLayer::clone_(torch::nn::Module& other, const Optional<torch::Device>& device) {
  TORCH_CHECK(typeid(other) == typeid(BatchRenorm1dImpl) || typeid(other) == typeid(BatchRenorm2dImpl) ||
                  typeid(other) == typeid(BatchRenorm3dImpl),
              who(), ": the subclass ", c10::demangle(typeid(other).name()),
              " must override clone_() to be cloned inside of another module");
  copy_state(dynamic_cast<const BatchRenormLayer&>(other), device);
}

// Options may have changed since the layer was built; the tensors have not.
BatchRenormOptions BatchRenormLayer::options_as_built() const {
  BatchRenormOptions built = options;
  built.num_features(channels_)
      .affine(bias.defined())
      .scale(weight.defined())
      .track_running_stats(running_mean.defined());
  return built;
}

void BatchRenormLayer::copy_state(const BatchRenormLayer& other, const Optional<torch::Device>& device) {
  const torch::NoGradGuard no_grad;
  copy_tensors(who(), other.named_parameters(/*recurse=*/false), named_parameters(/*recurse=*/false), device);
  copy_tensors(who(), other.named_buffers(/*recurse=*/false), named_buffers(/*recurse=*/false), device);
  options = other.options;
  channels_ = other.channels_;
  use_batch_statistics_ = other.use_batch_statistics_;
  torch::nn::Module::train(other.is_training());
  *account_ = Account();
  has_trained_ = other.has_trained_;
}

void BatchRenormLayer::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  to(device, non_blocking);
  to(dtype, non_blocking);
}

void BatchRenormLayer::to(torch::Device device, bool non_blocking) {
  const torch::Tensor& held = running_mean.defined() ? running_mean : bias;
  const bool moves = held.defined() && held.device() != device;
  torch::nn::Module::to(device, non_blocking);
  if (moves) forget_process_state();
}

void BatchRenormLayer::to(torch::Dtype dtype, bool non_blocking) {
  TORCH_CHECK(at::isFloatingType(dtype), who(), ": dtype must be a floating one, got ", dtype);
  const torch::NoGradGuard no_grad;
  const auto convert = [non_blocking](const torch::Tensor& tensor, torch::Dtype type) {
    if (!tensor.defined() || !tensor.is_floating_point() || tensor.scalar_type() == type) return false;
    tensor.set_data(tensor.to(type, non_blocking));
    return true;
  };
  const std::array<torch::Tensor, 4> held = {weight, bias, running_mean, running_std};
  bool changes = false;
  for (const torch::Tensor& tensor : held) changes |= convert(tensor, held_type(dtype));
  // Tensors and children of a subclass.
  const auto is_held = [&held](const torch::Tensor& tensor) {
    return std::any_of(held.begin(), held.end(),
                       [&](const torch::Tensor& one) { return one.is_same(tensor); });
  };
  for (const std::vector<torch::Tensor>& tensors :
       {parameters(/*recurse=*/false), buffers(/*recurse=*/false)}) {
    for (const torch::Tensor& tensor : tensors) {
      if (!is_held(tensor)) convert(tensor, dtype);
    }
  }
  for (const auto& child : children()) child->to(dtype, non_blocking);
  if (changes) forget_process_state();
}

void BatchRenormLayer::pretty_print(std::ostream& stream) const {
  stream << "renorm::" << kind_.name << "(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  options.momentum().has_value() ? stream << *options.momentum() : stream << "cumulative";
  stream << std::boolalpha << ", affine=" << options.affine() << ", scale=" << options.scale()
         << ", track_running_stats=" << options.track_running_stats();
  if (options.group_size() > 0) {
    stream << ", group_size=" << options.group_size()
           << (options.grouping() == Grouping::kStrided ? " strided" : " contiguous");
  }
  if (options.activation() == Activation::kRelu) stream << ", activation=relu";
  if (options.statistics() == Statistics::kDeferred) stream << ", statistics=deferred";
  if (options.processes().several()) stream << ", processes=" << options.processes().count;
  stream << ", clip=(" << options.clip().to_string() << "))";
}

std::string BatchRenormLayer::who() const {
  const std::string kind_name = std::string("renorm::") + kind_.name;
  return options.name().empty() ? kind_name : kind_name + " \"" + options.name() + "\"";
}

BatchRenorm1dImpl::BatchRenorm1dImpl(BatchRenormOptions options)
    : BatchRenormLayer(std::move(options), {"BatchRenorm1d", 2, 3, "[N, C] or [N, C, L]"}) {}

BatchRenorm2dImpl::BatchRenorm2dImpl(BatchRenormOptions options)
    : BatchRenormLayer(std::move(options), {"BatchRenorm2d", 4, 4, "[N, C, H, W]"}) {}

BatchRenorm3dImpl::BatchRenorm3dImpl(BatchRenormOptions options)
    : BatchRenormLayer(std::move(options), {"BatchRenorm3d", 5, 5, "[N, C, D, H, W]"}) {}

std::shared_ptr<torch::nn::Module> BatchRenorm1dImpl::clone(const Optional<torch::Device>& device) const {
  return clone_as<BatchRenorm1dImpl>(device);
}

std::shared_ptr<torch::nn::Module> BatchRenorm2dImpl::clone(const Optional<torch::Device>& device) const {
  return clone_as<BatchRenorm2dImpl>(device);
}

std::shared_ptr<torch::nn::Module> BatchRenorm3dImpl::clone(const Optional<torch::Device>& device) const {
  return clone_as<BatchRenorm3dImpl>(device);
}

}  // namespace renorm
