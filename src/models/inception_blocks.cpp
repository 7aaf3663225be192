#include "models/inception_blocks.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <utility>

namespace renorm::models {
namespace {

using Pooling = InceptionBranch::Pooling;

ConvShape halving(int64_t in, int64_t out, int64_t padding) {
  return {in, out, {3, 3}, /*stride=*/2, {padding, padding}};
}

InceptionBranch plain(std::string name, std::vector<ConvShape> chain, std::vector<ConvShape> fan = {}) {
  return {std::move(name), Pooling::kNone, std::move(chain), std::move(fan)};
}

InceptionBranch average_pool(int64_t in, int64_t out) {
  return {"branch_pool", Pooling::kAverage, {square(in, out, 1)}, {}};
}

InceptionBranch max_pool() { return {"branch_pool", Pooling::kMax, {}, {}}; }

// The two ends of a branch of block E.
std::vector<ConvShape> crossed(int64_t in, int64_t out) {
  return {rectangle(in, out, {1, 3}), rectangle(in, out, {3, 1})};
}

}  // namespace

InceptionBlockImpl::InceptionBlockImpl(int64_t in, const std::vector<InceptionBranch>& branches,
                                       int64_t padding, const MakeNorm& make_norm)
    : padding_(padding) {
  for (const InceptionBranch& branch : branches) add(branch, in, make_norm);
}

void InceptionBlockImpl::add(const InceptionBranch& plan, int64_t in, const MakeNorm& make_norm) {
  Branch branch{plan.pooling, {}, {}};
  const bool alone = plan.chain.size() == 1 && plan.fan.empty();
  for (const ConvShape& shape : plan.chain) {
    const std::string name = alone ? plan.name : fmt::format("{}_{}", plan.name, branch.chain.size() + 1);
    branch.chain.push_back(register_module(name, ConvNorm(shape, make_norm)));
  }
  char letter = 'a';
  for (const ConvShape& shape : plan.fan) {
    const std::string name = fmt::format("{}_{}{}", plan.name, plan.chain.size() + 1, letter++);
    branch.fan.push_back(register_module(name, ConvNorm(shape, make_norm)));
    out_channels += shape.out;
  }
  if (plan.fan.empty()) out_channels += plan.chain.empty() ? in : plan.chain.back().out;
  branches_.push_back(std::move(branch));
}

torch::Tensor InceptionBlockImpl::pool(Pooling pooling, const torch::Tensor& x) const {
  switch (pooling) {
    case Pooling::kAverage:
      return torch::avg_pool2d(x, 3, /*stride=*/1, /*padding=*/1);
    case Pooling::kMax:
      return torch::max_pool2d(x, 3, /*stride=*/2, padding_);
    case Pooling::kNone:
      break;
  }
  return x;
}

torch::Tensor InceptionBlockImpl::forward(const torch::Tensor& x) {
  std::vector<torch::Tensor> outputs;
  for (Branch& branch : branches_) {
    torch::Tensor y = pool(branch.pooling, x);
    for (ConvNorm& conv : branch.chain) y = conv->forward(y);
    if (branch.fan.empty()) outputs.push_back(y);
    for (ConvNorm& conv : branch.fan) outputs.push_back(conv->forward(y));
  }
  return torch::cat(outputs, 1);
}

InceptionBlock inception_a(int64_t in, const InceptionAWidths& widths, const MakeNorm& make_norm) {
  const int64_t twice = widths.out_3x3dbl;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch1x1", {square(in, widths.out_1x1, 1)}),
          plain("branch5x5", {square(in, widths.inner_5x5, 1), square(widths.inner_5x5, widths.out_5x5, 5)}),
          plain("branch3x3dbl", {square(in, widths.inner_3x3dbl, 1), square(widths.inner_3x3dbl, twice, 3),
                                 square(twice, twice, 3)}),
          average_pool(in, widths.out_pool)},
      /*padding=*/0, make_norm);
}

InceptionBlock inception_b(int64_t in, const InceptionBWidths& widths, int64_t padding,
                           const MakeNorm& make_norm) {
  const int64_t twice = widths.out_3x3dbl;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch3x3", {halving(in, widths.out_3x3, padding)}),
          plain("branch3x3dbl", {square(in, widths.inner_3x3dbl, 1), square(widths.inner_3x3dbl, twice, 3),
                                 halving(twice, twice, padding)}),
          max_pool()},
      padding, make_norm);
}

InceptionBlock inception_c(int64_t in, const InceptionCWidths& widths, const MakeNorm& make_norm) {
  const int64_t inner = widths.inner_7x7;
  const int64_t out = widths.out;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch1x1", {square(in, out, 1)}),
          plain("branch7x7",
                {square(in, inner, 1), rectangle(inner, inner, {1, 7}), rectangle(inner, out, {7, 1})}),
          plain("branch7x7dbl",
                {square(in, inner, 1), rectangle(inner, inner, {7, 1}), rectangle(inner, inner, {1, 7}),
                 rectangle(inner, inner, {7, 1}), rectangle(inner, out, {1, 7})}),
          average_pool(in, out)},
      /*padding=*/0, make_norm);
}

InceptionBlock inception_d(int64_t in, const InceptionDWidths& widths, int64_t padding,
                           const MakeNorm& make_norm) {
  const int64_t seven = widths.out_7x7x3;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch3x3",
                {square(in, widths.inner_3x3, 1), halving(widths.inner_3x3, widths.out_3x3, padding)}),
          plain("branch7x7x3", {square(in, seven, 1), rectangle(seven, seven, {1, 7}),
                                rectangle(seven, seven, {7, 1}), halving(seven, seven, padding)}),
          max_pool()},
      padding, make_norm);
}

InceptionBlock inception_e(int64_t in, const InceptionEWidths& widths, const MakeNorm& make_norm) {
  const int64_t out = widths.out_3x3;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch1x1", {square(in, widths.out_1x1, 1)}),
          plain("branch3x3", {square(in, out, 1)}, crossed(out, out)),
          plain("branch3x3dbl", {square(in, widths.inner_3x3dbl, 1), square(widths.inner_3x3dbl, out, 3)},
                crossed(out, out)),
          average_pool(in, widths.out_pool)},
      /*padding=*/0, make_norm);
}

}  // namespace renorm::models
