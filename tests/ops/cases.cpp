#include "cases.h"

#include <limits>
#include <sstream>

namespace renorm::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<int64_t> draw_sizes(Random& random) {
  const int64_t rank = random.integer(2, 5);
  std::vector<int64_t> sizes{random.pick<int64_t>({1, 2, 3, 4, 6, 8, 12}),
                             random.pick<int64_t>({1, 2, 3, 5, 8, 16, 17, 33})};
  if (rank == 3) sizes.push_back(random.pick<int64_t>({1, 2, 7, 16, 33}));
  if (rank > 3) {
    for (int64_t dim = 2; dim < rank; ++dim) sizes.push_back(random.pick<int64_t>({1, 2, 3, 5}));
  }
  return sizes;
}

int64_t draw_divisor(Random& random, int64_t n) {
  int64_t divisor = random.integer(1, n);
  while (n % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

at::Tensor place(const at::Tensor& values, Memory memory) {
  const int64_t last = values.dim() - 1;
  switch (memory) {
    case Memory::kContiguous:
      return values.contiguous();
    case Memory::kMisaligned:
      return at::empty({values.numel() + 1}, values.options())
          .narrow(0, 1, values.numel())
          .view(values.sizes())
          .copy_(values);
    case Memory::kChannelsLast:
      return values.movedim(1, -1).contiguous().movedim(-1, 1);
    case Memory::kSliced:
      return values.repeat_interleave(2, 0)
          .repeat_interleave(2, last)
          .slice(0, 0, {}, 2)
          .slice(last, 0, {}, 2);
    case Memory::kSlicedChannelsLast:
      return place(values.repeat_interleave(2, last), Memory::kChannelsLast).slice(last, 0, {}, 2);
    case Memory::kTransposed:
      return values.transpose(0, 1).contiguous().transpose(0, 1);
    case Memory::kExpanded:
      return values.narrow(last, 0, 1).expand(values.sizes());
    case Memory::kExpandedFromOneValue:
      return values.flatten().narrow(0, 0, 1).squeeze(0).expand(values.sizes());
  }
  return {};
}

Case draw_case(Random& random) {
  const std::vector<Memory> memories{
      Memory::kContiguous,   Memory::kContiguous,         Memory::kChannelsLast,
      Memory::kChannelsLast, Memory::kSlicedChannelsLast, Memory::kMisaligned,
      Memory::kSliced,       Memory::kTransposed,         Memory::kExpanded};
  Case c;
  c.type = random.pick<at::ScalarType>({at::kFloat, at::kDouble, at::kBFloat16, at::kHalf});
  c.sizes = draw_sizes(random);
  c.input_memory = random.pick(memories);
  c.grad_memory = random.chance(0.15)  ? Memory::kExpandedFromOneValue
                  : random.chance(0.3) ? random.pick(memories)
                                       : c.input_memory;
  c.has_weight = random.chance(0.7);
  c.has_bias = random.chance(0.7);
  c.has_averages = random.chance(0.8);
  c.arguments.eps = random.pick<double>({1e-5, 1e-3});
  c.arguments.r_max = random.pick<double>({1.0, 1.2, 3.0, kInfinity});
  c.arguments.d_max = random.pick<double>({0.0, 0.1, 5.0, kInfinity});
  c.arguments.group_size = random.chance(0.5) ? 0 : draw_divisor(random, c.sizes[0]);
  c.arguments.grouping = random.chance(0.5) ? Grouping::kStrided : Grouping::kContiguous;
  c.arguments.activation = random.chance(0.4) ? Activation::kRelu : Activation::kNone;
  c.has_residual = random.chance(0.3);
  return c;
}

std::string describe(const Case& c) {
  std::ostringstream text;
  text << c.type << " " << at::IntArrayRef(c.sizes) << " input memory " << static_cast<int>(c.input_memory)
       << " grad memory " << static_cast<int>(c.grad_memory) << " weight " << c.has_weight << " bias "
       << c.has_bias << " averages " << c.has_averages << " eps " << c.arguments.eps << " r_max "
       << c.arguments.r_max << " d_max " << c.arguments.d_max << " group_size " << c.arguments.group_size
       << " grouping " << static_cast<int64_t>(c.arguments.grouping) << " activation "
       << static_cast<int64_t>(c.arguments.activation) << " residual " << c.has_residual;
  return text.str();
}

Tensors make_tensors(const Case& c) {
  const auto parameter = [&](bool present, double low, double high) {
    if (!present) return at::Tensor();
    return at::rand({c.sizes[1]}, statistics_of(c.type)) * (high - low) + low;
  };
  Tensors t;
  t.input = place((at::randn(c.sizes, at::kDouble) * 2.0 + 0.5).to(c.type), c.input_memory);
  t.grad_output = place(at::randn(c.sizes, at::kDouble).to(c.type), c.grad_memory);
  t.weight = parameter(c.has_weight, 0.5, 2.0);
  t.bias = parameter(c.has_bias, -1.0, 1.0);
  t.running_mean = parameter(c.has_averages, -0.5, 1.5);
  t.running_std = parameter(c.has_averages, 0.5, 4.0);
  if (c.has_residual) t.residual = place(at::randn(c.sizes, at::kDouble).to(c.type), c.grad_memory);
  return t;
}

namespace {

ops::BatchRenormArguments with_residual(ops::BatchRenormArguments arguments, const Tensors& t) {
  arguments.residual = t.residual;
  return arguments;
}

}  // namespace

ops::BatchRenormResult train(const Tensors& t, const ops::BatchRenormArguments& arguments) {
  return ops::batch_renorm(t.input, t.weight, t.bias, t.running_mean, t.running_std,
                           with_residual(arguments, t));
}

at::Tensor infer(const Tensors& t, Activation activation) {
  return ops::batch_renorm_inference(t.input, t.weight, t.bias, t.running_mean, t.running_std, activation,
                                     t.residual);
}

ops::BatchRenormGradients backward(const Tensors& t, const ops::BatchRenormResult& forward,
                                   const ops::BatchRenormArguments& arguments) {
  return ops::batch_renorm_backward(t.grad_output, t.input, t.weight, t.bias, forward,
                                    with_residual(arguments, t));
}

}  // namespace renorm::test
