#include "train/gradient_sum.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <algorithm>
#include <utility>

namespace renorm::train {
namespace {

constexpr int64_t kMinBufferBytes = int64_t{1} << 20;
constexpr int64_t kMaxBufferBytes = int64_t{4} << 20;

int64_t default_buffer_bytes(const std::vector<NamedTensor>& parameters) {
  int64_t bytes = 0;
  for (const NamedTensor& parameter : parameters) bytes += static_cast<int64_t>(parameter.tensor.nbytes());
  return std::clamp(bytes / 4, kMinBufferBytes, kMaxBufferBytes);
}

}  // namespace

struct GradientSum::Buffer {
  torch::Tensor values;
  int64_t size = 0;
  std::vector<std::pair<size_t, int64_t>> parts;  // parameter and its place
  size_t missing = 0;                             // gradients of this step
  dist::Group::Wait wait;
};

// Called after a gradient was added to a parameter's.
class GradientSum::Hook : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::shared_ptr<GradientSum*> owner, size_t parameter)
      : owner_(std::move(owner)), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    if (*owner_ != nullptr) (*owner_)->completed(parameter_);
    return outputs;
  }

 private:
  std::shared_ptr<GradientSum*> owner_;
  size_t parameter_;
};

GradientSum::GradientSum(dist::Group& group, std::vector<NamedTensor> parameters, int64_t buffer_bytes)
    : group_(group),
      parameters_(std::move(parameters)),
      buffer_of_(parameters_.size()),
      self_(std::make_shared<GradientSum*>(this)) {
  if (buffer_bytes == 0) buffer_bytes = default_buffer_bytes(parameters_);
  for (size_t i = parameters_.size(); i-- > 0;) {
    const torch::Tensor& parameter = parameters_[i].tensor;
    if (buffers_.empty() || !fits(buffers_.back(), parameter, buffer_bytes)) buffers_.emplace_back();
    Buffer& buffer = buffers_.back();
    buffer.parts.emplace_back(i, buffer.size);
    buffer.size += parameter.numel();
    buffer_of_[i] = buffers_.size() - 1;
    auto node =
        torch::autograd::impl::grad_accumulator(parameter);  // its type of pointer depends on LibTorch
    node->add_post_hook(std::make_unique<Hook>(self_, i));
    nodes_.push_back(std::make_shared<decltype(node)>(std::move(node)));
  }
  ++buffers_.back().size;  // the number of processes that failed, behind the gradients
  for (Buffer& buffer : buffers_) {
    const torch::Tensor& like = parameters_[buffer.parts.front().first].tensor;
    buffer.values = torch::zeros({buffer.size}, like.options().requires_grad(false));
  }
}

bool GradientSum::fits(const Buffer& buffer, const torch::Tensor& parameter, int64_t buffer_bytes) const {
  const torch::Tensor& other = parameters_[buffer.parts.front().first].tensor;
  const int64_t bytes = (buffer.size + parameter.numel()) * static_cast<int64_t>(parameter.element_size());
  return other.scalar_type() == parameter.scalar_type() && bytes <= buffer_bytes;
}

GradientSum::~GradientSum() { *self_ = nullptr; }

void GradientSum::begin() {
  is_last_pass_ = false;
  started_ = 0;
  for (Buffer& buffer : buffers_) {
    buffer.values.zero_();
    group_.expect_sum(buffer.values);
    buffer.missing = buffer.parts.size();
    buffer.wait = nullptr;
    for (const auto& [index, place] : buffer.parts) {
      torch::Tensor& parameter = parameters_[index].tensor;
      torch::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined() && gradient.storage().is_alias_of(buffer.values.storage())) continue;
      gradient = is_dense(parameter)
                     ? buffer.values.as_strided(parameter.sizes(), parameter.strides(), place)
                     : buffer.values.narrow(0, place, parameter.numel()).view(parameter.sizes());
    }
  }
}

void GradientSum::expect_last_pass() { is_last_pass_ = true; }

void GradientSum::completed(size_t parameter) {
  if (!is_last_pass_) return;
  Buffer& buffer = buffers_[buffer_of_[parameter]];
  if (buffer.missing > 0) --buffer.missing;
  start_complete_buffers(/*all=*/false);
}

// In order, because all processes must start the same sums in the same order.
void GradientSum::start_complete_buffers(bool all) {
  for (; started_ < buffers_.size(); ++started_) {
    Buffer& buffer = buffers_[started_];
    if (buffer.missing > 0 && !all) return;
    buffer.wait = group_.start_sum(buffer.values);
  }
}

void GradientSum::finish_backward(bool failed) {
  TORCH_CHECK(!failed || started_ < buffers_.size(), "a step failed after its last sum had started");
  if (failed) buffers_.back().values[-1] = 1.0;
  start_complete_buffers(/*all=*/true);
}

bool GradientSum::wait() {
  for (Buffer& buffer : buffers_) {
    if (buffer.wait) buffer.wait();
    buffer.wait = nullptr;
  }
  return buffers_.back().values[-1].item<double>() > 0.0;
}

}  // namespace renorm::train
