// Shared by the tests of the models.
#pragma once

#include <gtest/gtest.h>
#include <renorm/nn/model.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "models/model.h"

namespace renorm::models {

constexpr uint64_t kSeed = 2017;
inline const std::vector<std::string> kNames = {"convnet", "inception-small", "resnet-small"};

// The nets of torchvision: slow to make, so they are tested where the size matters.
inline const std::vector<std::string> kFullNames = {"inception-v3", "resnet18", "resnet50"};

class Seeded : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(kSeed); }
};

inline InputShape images(int64_t channels, int64_t side, int64_t classes) {
  return {channels, side, side, classes};
}

inline BatchRenormOptions batchnorm_options(bool scale = false) {
  return BatchRenormOptions(1).eps(1e-3).scale(scale).clip(ClipSchedule::batch_norm());
}

inline MakeNorm batchnorm(bool scale = false) { return batch_renorm(batchnorm_options(scale)); }

inline MakeNorm native(bool scale = false) { return native_batch_norm(1e-3, 0.01, scale); }

inline MakeNorm groupnorm(bool scale = false) { return group_norm(1e-3, scale); }

// Batch Renorm that records its last input.
class WatchedNorm : public BatchRenorm2dImpl {
 public:
  using BatchRenorm2dImpl::BatchRenorm2dImpl;

  torch::Tensor forward(const torch::Tensor& input) override {
    seen = input.detach();
    return BatchRenorm2dImpl::forward(input);
  }

  torch::Tensor seen;
};

inline MakeNorm watched(const BatchRenormOptions& like) {
  return [like](int64_t channels, Activation activation) {
    BatchRenormOptions options = like;
    options.num_features(channels).activation(activation);
    return torch::nn::AnyModule(std::make_shared<WatchedNorm>(options));
  };
}

inline std::shared_ptr<Classifier> make_seeded(const std::string& spec, const InputShape& input,
                                               const MakeNorm& make_norm, uint64_t seed = kSeed) {
  torch::manual_seed(seed);
  return make_model(spec, input, make_norm);
}

// The message of the Error that `call` throws; empty if it throws nothing.
template <typename Error = UsageError>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

template <typename Layer>
int64_t count_layers(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& child : module.modules(/*include_self=*/false)) count += child->as<Layer>() != nullptr;
  return count;
}

// The maximum |actual - expected| relative to the maximum |expected|.
inline double relative_error(const torch::Tensor& actual, const torch::Tensor& expected) {
  return ((actual - expected).abs().max() / expected.abs().max()).item<double>();
}

}  // namespace renorm::models
