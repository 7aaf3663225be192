// The cases: shapes, layouts, passes and tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/choice.h"

namespace renorm::bench {

enum class Layout { kNchw, kNhwc, kDense };
enum class Pass { kForward, kBackward, kInference };
// The operations after the norm: none, a ReLU, or the end of a residual block, relu(norm(x) + residual).
enum class Ending { kNone, kRelu, kAddRelu };

inline constexpr Layout kLayouts[] = {Layout::kNchw, Layout::kNhwc, Layout::kDense};
inline constexpr Pass kPasses[] = {Pass::kForward, Pass::kBackward, Pass::kInference};

struct Case {
  std::vector<int64_t> sizes;  // [n, c] for kDense, else [n, c, h, w]
  Layout layout;

  std::string shape_name() const;  // "32x64x56x56"
  int64_t values() const;
  double megabytes() const;  // of one float tensor, 10^6 bytes
  // Larger than the caches of most CPUs.
  bool large() const { return megabytes() >= 8.0; }
};

// Inception-v3 and ResNet-50 at batch 32, small and dense shapes; `quick`: five of them.
std::vector<Case> standard_cases(bool quick);

// "32x64x56x56,32x1024": four sizes are measured as nchw and as nhwc, two as dense. Throws UsageError.
std::vector<Case> parse_cases(const std::string& shapes);

inline constexpr double kEps = 1e-5;
// The limits at the end of the paper's schedule, so that r and d take effect.
inline constexpr double kRMax = 3.0;
inline constexpr double kDMax = 5.0;

// Reproducible input of a case. The averages differ from the batch statistics, so that (r, d) is not (1, 0).
struct Data {
  Data(const Case& shape_and_layout, at::ScalarType type);

  at::Tensor x;                                                     // of the type, in the layout
  at::Tensor dy;                                                    // the same
  at::Tensor residual;                                              // the same
  at::Tensor weight, bias, running_mean, running_std, running_var;  // float [c]; running_var = std^2 - eps
};

}  // namespace renorm::bench

// The keys in the JSON and the titles of tables.
namespace renorm {

template <>
struct Choices<bench::Layout> {
  static constexpr const char* kWhat = "layout";
  static constexpr Choice<bench::Layout> kAll[] = {
      {bench::Layout::kNchw, "nchw"}, {bench::Layout::kNhwc, "nhwc"}, {bench::Layout::kDense, "dense"}};
};

template <>
struct Choices<bench::Pass> {
  static constexpr const char* kWhat = "pass";
  static constexpr Choice<bench::Pass> kAll[] = {{bench::Pass::kForward, "forward"},
                                                 {bench::Pass::kBackward, "backward"},
                                                 {bench::Pass::kInference, "inference"}};
};

}  // namespace renorm
