// Helpers for the tests of the modules.
#pragma once

#include <gtest/gtest.h>
#include <renorm/nn/model.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace renorm::testing {

// Sums of up to a few thousand values of size one, each rounded to the type: a bound on their error.
constexpr double kDoubleTolerance = 1e-12;
constexpr double kFloatTolerance = 1e-5;

class Seeded : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1702); }
};

inline torch::Tensor uniform(at::IntArrayRef shape, double low, double high, at::ScalarType dtype) {
  return torch::rand(shape, dtype) * (high - low) + low;
}

// The maximum of |actual - expected| relative to the maximum of |expected| or 1, whichever is larger.
inline double relative_error(const torch::Tensor& actual, const torch::Tensor& expected) {
  if (actual.sizes() != expected.sizes()) return std::numeric_limits<double>::infinity();
  if (expected.numel() == 0) return 0.0;
  const torch::Tensor a = actual.detach().to(torch::kDouble);
  const torch::Tensor e = expected.detach().to(torch::kDouble);
  return (a - e).abs().max().item<double>() / std::max(1.0, e.abs().max().item<double>());
}

// The first line of the error that `call` throws; empty if it throws none.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  }
  return "";
}

inline void expect_message(const std::function<void()>& call, const std::vector<std::string>& parts) {
  const std::string message = message_of(call);
  EXPECT_NE(message, "") << "nothing was thrown";
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
}

// Averages away from 0 and 1, and parameters away from 1 and 0.
inline void randomize(BatchRenormLayer& layer) {
  const torch::NoGradGuard no_grad;
  if (layer.weight.defined()) layer.weight.uniform_(0.5, 2.0);
  if (layer.bias.defined()) layer.bias.uniform_(-1.0, 1.0);
  if (layer.running_mean.defined()) {
    layer.running_mean.uniform_(-0.5, 0.5);
    layer.running_std.uniform_(0.5, 2.0);
  }
}

// A copy of everything a training forward may change.
struct Snapshot {
  explicit Snapshot(const BatchRenormLayer& layer)
      : running_mean(layer.running_mean.clone()),
        running_std(layer.running_std.clone()),
        step(layer.step()),
        counted(layer.clip_telemetry().values) {}

  bool operator==(const Snapshot& other) const {
    return torch::equal(running_mean, other.running_mean) && torch::equal(running_std, other.running_std) &&
           step == other.step && counted == other.counted;
  }

  torch::Tensor running_mean;
  torch::Tensor running_std;
  int64_t step;
  int64_t counted;
};

// Moves through hold, ramp and plateau within 12 steps.
inline BatchRenormOptions ramping() {
  return BatchRenormOptions(4).momentum(0.1).clip(ClipSchedule::ramp(3, 3.0, 12, 5.0, 10));
}

// The same parameters and buffers, bit by bit.
inline void expect_same_state(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto compare = [](const auto& left, const auto& right) {
    ASSERT_EQ(left.size(), right.size());
    for (const auto& item : left) EXPECT_TRUE(torch::equal(item.value(), right[item.key()])) << item.key();
  };
  compare(a.named_parameters(), b.named_parameters());
  compare(a.named_buffers(), b.named_buffers());
}

}  // namespace renorm::testing
