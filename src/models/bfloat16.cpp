#include "models/bfloat16.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "base/address_space.h"
#include "base/timing.h"

namespace renorm::models {
namespace {

constexpr int64_t kImages = 4;
constexpr int64_t kChannels = 64;
constexpr int64_t kSide = 16;
constexpr int64_t kKernel = 3;
constexpr int64_t kOutputSide = kSide - kKernel + 1;
constexpr int kMinCalls = 3;
// Other processes disturb the caches and let threads wait for each other, so a ratio near the limit is
// measured longer.
constexpr int kMaxCalls = 12;

// A convolution of ones with a kernel of ones, without padding. Its sums are whole numbers that bfloat16
// holds exactly: 64 * 3 * 3 = 576 in the output and in the middle of the input's gradient, and
// 4 * 14 * 14 = 784 in the kernel's gradient.
struct Ones {
  Ones(torch::Dtype dtype, torch::MemoryFormat format)
      : input(torch::ones({kImages, kChannels, kSide, kSide}, dtype).contiguous(format).requires_grad_()),
        kernel(torch::ones({kChannels, kChannels, kKernel, kKernel}, dtype)
                   .contiguous(format)
                   .requires_grad_()) {}

  void compute() {
    input.mutable_grad() = torch::Tensor();
    kernel.mutable_grad() = torch::Tensor();
    output = torch::conv2d(input, kernel);
    output.backward(torch::ones_like(output));
  }

  bool is_exact() const {
    const auto all_are = [](const torch::Tensor& tensor, int64_t value) {
      return tensor.detach().eq(static_cast<double>(value)).all().item<bool>();
    };
    const torch::Tensor middle =
        input.grad().slice(2, kKernel, kSide - kKernel).slice(3, kKernel, kSide - kKernel);
    constexpr int64_t kTerms = kChannels * kKernel * kKernel;
    return all_are(output, kTerms) && all_are(middle, kTerms) &&
           all_are(kernel.grad(), kImages * kOutputSide * kOutputSide);
  }

  torch::Tensor input;
  torch::Tensor kernel;
  torch::Tensor output;
};

double seconds_of(Ones& ones) {
  const double before = cpu_seconds();
  ones.compute();
  return cpu_seconds() - before;
}

}  // namespace

std::string BFloat16Cost::words() const {
  if (!is_available) return "are not available";
  return fmt::format("take {:.{}f} times as long as in float and {}", time_ratio, time_ratio < 10.0 ? 1 : 0,
                     exact_sums ? "keep sums in float" : "round each sum to 8 bits");
}

BFloat16Cost measure_bfloat16(torch::MemoryFormat format) {
  const torch::AutoGradMode with_gradients(true);
  Ones narrow(torch::kBFloat16, format);
  Ones wide(torch::kFloat, format);
  wide.compute();
  try {
    narrow.compute();
  } catch (const std::exception& error) {  // oneDNN without AVX-512, on a CPU that has it
    if (is_out_of_memory(error)) throw;
    BFloat16Cost none;
    none.is_available = false;
    return none;
  }
  double narrow_seconds = std::numeric_limits<double>::infinity();
  double wide_seconds = narrow_seconds;
  BFloat16Cost cost;
  cost.exact_sums = narrow.is_exact();
  for (int i = 0; i < kMaxCalls && (i < kMinCalls || cost.is_borderline()); ++i) {
    narrow_seconds = std::min(narrow_seconds, seconds_of(narrow));
    wide_seconds = std::min(wide_seconds, seconds_of(wide));
    cost.time_ratio = narrow_seconds / wide_seconds;
  }
  return cost;
}

}  // namespace renorm::models
