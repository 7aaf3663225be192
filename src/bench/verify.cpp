#include "bench/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace renorm::bench {
namespace {

// Errors are relative to the largest value. `exceptions` is the fraction of values that may exceed `error`.
struct Tolerance {
  double error;
  double exceptions;
  double parameter_error;             // of dweight and dbias
  double parameter_exceptions = 0.0;  // the fraction of channels that may exceed it
};

// Peers sum in plain float: over the million values of the largest channels their error reaches a few 1e-4. A
// wrong formula gives far larger errors.
constexpr Tolerance kFloat{2e-3, 0.0, 2e-3};
// Behind a ReLU, a value that rounds to the other side of zero gains or loses its whole gradient.
constexpr Tolerance kFloatMasked{2e-3, 1e-3, 2e-2};
// Results have 8 bits, and native batchnorm also rounds on the way.
constexpr Tolerance kBf16{3e-2, 0.0, 3e-2};
constexpr Tolerance kBf16Masked{3e-2, 2e-2, 1e-1};
// Separate calls round before and after the addition. A sign that changes is a large part of a sum of few
// values.
constexpr Tolerance kBf16Added{3e-2, 2e-2, 1e-1, 2e-2};

constexpr int64_t kExamplesPerPiece = 4;

class Comparison {
 public:
  explicit Comparison(const Case& shape_and_layout)
      : where_(shape_and_layout.shape_name() + " " + name_of(shape_and_layout.layout)) {}

  void expect_equal(const std::string& what, const at::Tensor& ours, const at::Tensor& theirs,
                    const Tolerance& tolerance) const {
    const double scale = std::max(theirs.max().item<double>(), -theirs.min().item<double>());
    int64_t off = 0;
    double max_error = 0.0;
    // In pieces: fresh memory for whole tensors costs more than the comparison.
    const int64_t piece = theirs.dim() > 1 ? kExamplesPerPiece : theirs.size(0);
    const auto our_pieces = ours.detach().split(piece), their_pieces = theirs.detach().split(piece);
    for (size_t i = 0; i < their_pieces.size(); ++i) {
      const at::Tensor error = (our_pieces[i].to(at::kFloat) - their_pieces[i].to(at::kFloat)).abs_();
      // Not `greater`: NaN must count too.
      off += error.numel() - error.le(tolerance.error * scale).sum().item<int64_t>();
      max_error = std::max(max_error, error.max().item<double>());
    }
    if (static_cast<double>(off) <= tolerance.exceptions * static_cast<double>(theirs.numel())) return;
    throw std::runtime_error(fmt::format(
        "{}: {}: {} of {} values differ by more than {} of the largest value {:.3g}, at most by {:.3g}",
        where_, what, off, theirs.numel(), tolerance.error, scale, max_error));
  }

 private:
  std::string where_;
};

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

void expect_equal(const Comparison& comparison, const std::string& who, const Gradients& ours,
                  const Gradients& theirs, const Tolerance& tolerance) {
  comparison.expect_equal(who + ", dx", std::get<0>(ours), std::get<0>(theirs), tolerance);
  const Tolerance of_sums{tolerance.parameter_error, tolerance.parameter_exceptions, 0.0};
  comparison.expect_equal(who + ", dweight", std::get<1>(ours), std::get<1>(theirs), of_sums);
  comparison.expect_equal(who + ", dbias", std::get<2>(ours), std::get<2>(theirs), of_sums);
}

void verify_against_native(const Comparison& comparison, const std::string& who, const Data& data,
                           const Native& native, const Tolerance& plain, const Tolerance& masked,
                           const Tolerance& added) {
  const Ours batch_norm(data, 1.0, 0.0);
  for (const auto& [ending, name] : {std::pair{Ending::kNone, who},
                                     {Ending::kRelu, who + " with ReLU"},
                                     {Ending::kAddRelu, who + " with addition and ReLU"}}) {
    comparison.expect_equal(name + ", forward", batch_norm.forward(ending).output, native.forward(ending),
                            plain);
    expect_equal(comparison, name, batch_norm.backward(ending), native.backward(ending),
                 ending == Ending::kNone   ? plain
                 : ending == Ending::kRelu ? masked
                                           : added);
    comparison.expect_equal(name + ", inference", batch_norm.inference(ending), native.inference(ending),
                            plain);
  }
}

void verify_preallocated(const Comparison& comparison, const Ours& ours, OursInto& into) {
  for (const auto& [activation, ending] :
       {std::pair{Activation::kRelu, Ending::kRelu}, {Activation::kNone, Ending::kNone}}) {
    into.forward(activation);
    comparison.expect_equal("ours shipped and preallocated, forward", into.output,
                            ours.forward(ending).output, kFloat);
    into.backward(activation);
    expect_equal(comparison, "ours shipped and preallocated", {into.input_gradient, into.dweight, into.dbias},
                 ours.backward(ending), kFloat);
    into.inference(activation);
    comparison.expect_equal("ours shipped and preallocated, inference", into.output, ours.inference(ending),
                            kFloat);
  }
}

void verify_onednn(const Comparison& comparison, const std::string& who, OneDnn& onednn,
                   const Native& native) {
  onednn.inference();
  comparison.expect_equal(who + ", inference", onednn.output(), native.inference(Ending::kNone), kFloat);
  onednn.forward();
  comparison.expect_equal(who + ", forward", onednn.output(), native.forward(Ending::kNone), kFloat);
  onednn.backward();
  comparison.expect_equal(who + ", dx", onednn.input_gradient(), std::get<0>(native.backward(Ending::kNone)),
                          kFloat);
}

}  // namespace

void verify(Field& field) {
  const Comparison comparison(field.shape_and_layout);
  verify_against_native(comparison, "ours and native", field.data, field.native, kFloat, kFloatMasked,
                        kFloatMasked);
  comparison.expect_equal("ours and tensor operations, forward", field.ours.forward(Ending::kNone).output,
                          field.tensor_ops.forward(), kFloat);
  expect_equal(comparison, "ours and tensor operations", field.ours.backward(Ending::kNone),
               field.tensor_ops.backward(), kFloat);
  comparison.expect_equal("ours and tensor operations, inference", field.ours.inference(Ending::kNone),
                          field.tensor_ops.inference(), kFloat);
  comparison.expect_equal("ours fused and separately, forward", field.ours.forward(Ending::kAddRelu).output,
                          field.ours.forward_separately(), kFloat);
  expect_equal(comparison, "ours fused and separately", field.ours.backward(Ending::kAddRelu),
               field.ours.backward_separately(), kFloatMasked);
  verify_preallocated(comparison, field.ours, field.ours_into);
  if (field.onednn) verify_onednn(comparison, "oneDNN and native", *field.onednn, field.native);
  if (field.onednn_blocked) {
    verify_onednn(comparison, "blocked oneDNN and native", *field.onednn_blocked, field.native);
  }
  if (field.native_bf16) {
    verify_against_native(comparison, "ours and native in bf16", field.data_bf16, *field.native_bf16, kBf16,
                          kBf16Masked, kBf16Added);
  }
}

}  // namespace renorm::bench
