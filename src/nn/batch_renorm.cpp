#include "renorm/nn/batch_renorm.h"

#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "nn/account.h"

namespace renorm {
namespace {

// Adds one to the number of steps. A dispatched addition would cost as much as the rest of the bookkeeping of
// a small layer.
void count_step(at::Tensor* steps) {
  if (steps->is_cpu()) {
    *steps->data_ptr<int64_t>() += 1;
    steps->unsafeGetTensorImpl()->bump_version();
  } else {
    steps->add_(1);
  }
}

// Whether a module of dtype `held` accepts input of dtype `given`.
bool accepts(at::ScalarType held, at::ScalarType given) {
  if (held == at::kFloat) return given == at::kFloat || given == at::kBFloat16 || given == at::kHalf;
  return held == given;
}

}  // namespace

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
  const int64_t bad_channel = statistics.non_finite_channel();
  if (bad_channel >= 0) {
    NonFiniteStatistics error({__func__, __FILE__, __LINE__},
                              c10::str(who(), ": the batch statistics of channel ", bad_channel,
                                       " are not finite; look for overflow or NaN in the input"));
    error.add_context(c10::str("step ", step()));
    throw error;
  }
  if (!running_mean.defined()) return;

  account_->count_clips(statistics, running_mean, running_std, limits);
  const bool immediate = options.statistics() == Statistics::kImmediate;
  if (immediate) discard();
  account_->add(statistics);
  if (immediate) move_averages();
}

void BatchRenormLayer::move_averages() {
  const torch::NoGradGuard no_grad;
  account_->move_averages(options.momentum(), &running_mean, &running_std);
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

ClipTelemetry BatchRenormLayer::clip_telemetry() const { return account_->telemetry(); }

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

std::shared_ptr<torch::nn::Module> BatchRenormLayer::clone(const Optional<torch::Device>& device) const {
  std::shared_ptr<BatchRenormLayer> copy = make_alike();
  copy->copy_state(*this, device);
  return copy;
}

void BatchRenormLayer::clone_(torch::nn::Module& other, const Optional<torch::Device>& device) {
  copy_state(dynamic_cast<const BatchRenormLayer&>(other), device);
}

void BatchRenormLayer::copy_state(const BatchRenormLayer& other, const Optional<torch::Device>& device) {
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

std::string BatchRenormLayer::who() const {
  const std::string kind_name = std::string("renorm::") + kind();
  return options.name().empty() ? kind_name : kind_name + " \"" + options.name() + "\"";
}

// ClipSchedule checks the limits.
void BatchRenormLayer::check_options() const {
  TORCH_CHECK(options.num_features() > 0, who(), ": num_features must be > 0, got ", options.num_features());
  TORCH_CHECK(options.eps() > 0.0, who(), ": eps must be > 0, got ", options.eps());
  TORCH_CHECK(options.momentum() > 0.0 && options.momentum() <= 1.0, who(),
              ": momentum must be in (0, 1], got ", options.momentum());
  TORCH_CHECK(options.group_size() >= 0, who(), ": group_size must be >= 0, got ", options.group_size());
}

void BatchRenormLayer::check_input(const torch::Tensor& input) const {
  TORCH_CHECK(input.defined(), who(), ": input must be a tensor, got an undefined one");
  check_input_dim(input);
  TORCH_CHECK(at::isFloatingType(input.scalar_type()), who(), ": input must have a floating dtype, got ",
              input.scalar_type());
  TORCH_CHECK(input.size(1) == options.num_features(), who(), ": input must have ", options.num_features(),
              " channels in dimension 1, got ", input.size(1));
  const torch::Tensor& held = running_mean.defined() ? running_mean : bias;
  if (!held.defined()) return;
  TORCH_CHECK(input.device() == held.device(), who(), ": input must be on ", held.device(),
              " like the module, got ", input.device());
  TORCH_CHECK(
      accepts(held.scalar_type(), input.scalar_type()), who(), ": input must be ",
      held.scalar_type() == at::kFloat ? "Float, BFloat16 or Half" : c10::toString(held.scalar_type()),
      " for a module of dtype ", held.scalar_type(), ", got ", input.scalar_type());
}

void BatchRenormLayer::check_groups(const torch::Tensor& input, int64_t group_size) const {
  const int64_t batch = input.size(0);
  if (input.numel() == 0) return;
  TORCH_CHECK(group_size == 0 || batch % group_size == 0, who(),
              ": group_size must divide the batch, got group_size ", group_size, " and a batch of ", batch);
  const int64_t examples = group_size == 0 ? batch : group_size;
  const int64_t positions = input.numel() / (batch * input.size(1));
  const char* remedy = is_training() && running_mean.defined() ? "use a larger batch or group_size, or eval()"
                                                               : "use a larger batch or group_size";
  TORCH_CHECK(
      examples * positions > 1, who(),
      ": input must have more than one value per channel and group when it is normalized with its own "
      "statistics, got shape ",
      input.sizes(), " and group_size ", group_size, "; ", remedy);
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

void BatchRenorm1dImpl::check_input_dim(const torch::Tensor& input) const {
  TORCH_CHECK(input.dim() == 2 || input.dim() == 3, who(),
              ": input must have 2 or 3 dimensions [N, C] or [N, C, L], got ", input.dim());
}

void BatchRenorm2dImpl::check_input_dim(const torch::Tensor& input) const {
  TORCH_CHECK(input.dim() == 4, who(), ": input must have 4 dimensions [N, C, H, W], got ", input.dim());
}

void BatchRenorm3dImpl::check_input_dim(const torch::Tensor& input) const {
  TORCH_CHECK(input.dim() == 5, who(), ": input must have 5 dimensions [N, C, D, H, W], got ", input.dim());
}

std::vector<NamedLayer> batch_renorm_layers(const torch::nn::Module& model) {
  std::vector<NamedLayer> layers;
  const auto add = [&layers](const std::string& path, BatchRenormLayer* layer) {
    const bool known =
        std::any_of(layers.begin(), layers.end(), [&](const NamedLayer& n) { return n.layer == layer; });
    if (layer != nullptr && !known) layers.push_back({path, layer});
  };
  // named_modules() can include the model itself only if a shared pointer owns it.
  add("", const_cast<BatchRenormLayer*>(dynamic_cast<const BatchRenormLayer*>(&model)));
  for (const auto& module : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    add(module.key(), dynamic_cast<BatchRenormLayer*>(module.value().get()));
  }
  return layers;
}

void name_layers(const torch::nn::Module& model) {
  for (const NamedLayer& named : batch_renorm_layers(model)) named.layer->options.name(named.path);
}

}  // namespace renorm
