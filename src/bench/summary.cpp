#include "bench/summary.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "bench/competitors.h"

namespace renorm::bench {

const std::vector<Ratio>& ratios() {
  // Those who allocate are compared with ours as shipped, oneDNN with ours into preallocated memory.
  static const std::vector<Ratio> list = {
      {"native", kNative, kOurs},
      {"native_relu", kNativeRelu, kOursRelu},
      {"onednn", kOneDnn, kOursInto},
      {"onednn_blocked", kOneDnnBlocked, kOursInto},
      {"onednn_vs_shipped", kOneDnn, kOurs},
      {"onednn_blocked_vs_shipped", kOneDnnBlocked, kOurs},
      {"tensor_ops", kTensorOps, kOurs},
      {"native_bf16", kNativeBf16, kOursBf16},
      {"copy_multiple", kOursInto, kCopy},
      {"copy_multiple_shipped", kOurs, kCopy},
      {"copy_multiple_relu", kOursIntoRelu, kCopy},
      {"groups_of_4", kOursGroups, kOurs},
      {"thread_gain", kOursIntoOneThread, kOursInto},
      {"thread_gain_shipped", kOursOneThread, kOurs},
  };
  return list;
}

const Ratio& ratio_named(const std::string& key) {
  for (const Ratio& ratio : ratios()) {
    if (key == ratio.key) return ratio;
  }
  throw std::logic_error("no ratio is called " + key);
}

std::optional<double> value_of(const CaseResult& result, Pass pass, const Ratio& ratio) {
  const Figures& figures = result.passes.at(pass);
  const auto numerator = figures.find(ratio.numerator);
  const auto denominator = figures.find(ratio.denominator);
  if (numerator == figures.end() || denominator == figures.end()) return std::nullopt;
  return numerator->second.best / denominator->second.best;
}

std::optional<Mean> mean_of(const Results& results, Layout layout, Pass pass, const Ratio& ratio,
                            Which which) {
  double log_sum = 0.0;
  std::vector<double> values;
  for (const CaseResult& result : results.cases) {
    if (result.shape_and_layout.layout != layout) continue;
    if (which == Which::kLarge && !result.shape_and_layout.large()) continue;
    const std::optional<double> value = value_of(result, pass, ratio);
    if (!value) continue;
    values.push_back(*value);
    log_sum += std::log(*value);
  }
  if (values.empty()) return std::nullopt;
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  return Mean{std::exp(log_sum / static_cast<double>(values.size())), *least, *greatest};
}

std::vector<Target> targets(int threads) {
  constexpr Layout kNchw = Layout::kNchw, kNhwc = Layout::kNhwc;
  constexpr Pass kForward = Pass::kForward, kBackward = Pass::kBackward, kInference = Pass::kInference;
  std::vector<Target> list;
  const auto floor = [&](const char* key, const char* text, std::vector<double> bounds) {
    const std::pair<Layout, Pass> places[] = {
        {kNchw, kForward}, {kNchw, kBackward}, {kNhwc, kForward}, {kNhwc, kBackward}};
    for (size_t i = 0; i < bounds.size(); ++i) {
      list.push_back({places[i].first, places[i].second, key, bounds[i], true, Which::kAll, text});
    }
  };
  const auto limit = [&](Pass pass, const char* key, const char* text, double nchw, double nhwc,
                         Which which) {
    list.push_back({kNchw, pass, key, nchw, false, which, text});
    list.push_back({kNhwc, pass, key, nhwc, false, which, text});
  };
  if (threads == 1) {
    floor("native", "native batchnorm / ours", {6.0, 1.6, 1.5, 1.2});
    floor("native_relu", "native + ReLU / ours fused", {8.0, 2.5, 2.7, 1.8});
    floor("onednn", "oneDNN, same layout / ours", {7.0, 5.0, 1.8, 1.7});
    floor("onednn_blocked", "oneDNN blocked / ours", {1.7, 1.1});
    floor("tensor_ops", "tensor operations / ours", {22.0, 11.0, 20.0, 10.0});
    floor("native_bf16", "native bf16 / ours bf16", {1.0, 1.0, 1.0, 1.0});
    const char* copy = "ours preallocated / copy, large";
    limit(kForward, "copy_multiple", copy, 1.5, 2.2, Which::kLarge);
    limit(kBackward, "copy_multiple", copy, 2.4, 3.3, Which::kLarge);
    limit(kInference, "copy_multiple", copy, 1.1, 1.1, Which::kLarge);
    limit(kForward, "groups_of_4", "groups of 4 / ungrouped", 1.15, 1.15, Which::kAll);
  } else if (threads == 2) {
    for (const Layout layout : {kNchw, kNhwc}) {
      for (const Pass pass : {kForward, kBackward}) {
        list.push_back(
            {layout, pass, "thread_gain", 1.7, true, Which::kLarge, "one thread / two threads, large"});
      }
    }
  }
  return list;
}

std::vector<Reached> reached(const Results& results) {
  std::vector<Reached> list;
  for (const Target& target : targets(results.threads)) {
    const auto mean = mean_of(results, target.layout, target.pass, ratio_named(target.key), target.which);
    if (!mean) continue;
    const bool met = target.at_least ? mean->geometric >= target.bound : mean->geometric <= target.bound;
    list.push_back({target, *mean, met});
  }
  return list;
}

}  // namespace renorm::bench
