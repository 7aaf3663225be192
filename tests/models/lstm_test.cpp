#include <gtest/gtest.h>
#include <renorm/nn/model.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "models/model.h"
#include "models/norm.h"

namespace renorm::models {
namespace {

constexpr int64_t kWidth = 6;
constexpr InputShape kInput = {2, 5, 3, 4};

// Undoes the gain of the normalized products.
struct TenfoldImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return 10.0 * x; }
};
TORCH_MODULE(Tenfold);

MakeNorm tenfold() {
  return [](int64_t /*channels*/, Activation /*activation*/) { return torch::nn::AnyModule(Tenfold()); };
}

MakeNorm batchnorm() {
  return batch_renorm(
      BatchRenormOptions(1).statistics(Statistics::kDeferred).clip(ClipSchedule::batch_norm()));
}

// The gates are in, forget, out, candidate; LibTorch's are in, forget, candidate, out.
torch::Tensor in_their_order(const torch::Tensor& gates) {
  const std::vector<torch::Tensor> parts = gates.chunk(4, 0);
  return torch::cat({parts[0], parts[1], parts[3], parts[2]}, 0);
}

TEST(Lstm, IsLibTorchsWithoutNorms) {
  torch::manual_seed(1);
  const auto model = make_model("lstm:6", kInput, tenfold());
  model->to(torch::kDouble);
  model->computation.dtype = torch::kDouble;
  auto ours = model->named_parameters();
  torch::nn::LSTM theirs(torch::nn::LSTMOptions(6, kWidth));
  theirs->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    auto parameters = theirs->named_parameters();
    parameters["weight_ih_l0"].copy_(in_their_order(ours["input.weight"]));
    parameters["weight_hh_l0"].copy_(in_their_order(ours["state.weight"]));
    parameters["bias_ih_l0"].copy_(in_their_order(ours["bias"]));
    parameters["bias_hh_l0"].zero_();
  }
  const torch::Tensor images = torch::randn({7, 2, 5, 3}, torch::kDouble);
  const torch::Tensor rows = images.permute({2, 0, 1, 3}).flatten(2);
  const torch::Tensor last = std::get<0>(theirs->forward(rows))[4];
  const torch::Tensor expected = torch::linear(last, ours["classifier.weight"], ours["classifier.bias"]);
  EXPECT_TRUE(torch::allclose(model->forward(images), expected, 1e-12, 1e-12));
}

TEST(Lstm, HasOneNormPerProductOrPerRow) {
  const auto shared = make_model("lstm:6", kInput, batchnorm());
  EXPECT_EQ(batch_renorm_layers(*shared).size(), 2U);
  const auto per_row = make_model("lstm:6,steps", kInput, batchnorm());
  EXPECT_EQ(batch_renorm_layers(*per_row).size(), 5U + 4U);
  // The weights are shared by all rows.
  EXPECT_EQ(per_row->named_parameters()["input.weight"].numel(), 4 * kWidth * 6);
}

// Shared norms collect the statistics of all rows, and move their averages once.
TEST(Lstm, SharedAveragesMoveOncePerStep) {
  torch::manual_seed(2);
  const auto model = make_model("lstm:6", kInput, batchnorm());
  model->train();
  model->forward(torch::randn({8, 2, 5, 3}));
  commit(*model);
  for (const NamedLayer& named : batch_renorm_layers(*model)) {
    EXPECT_EQ(named.layer->num_batches_tracked.item<int64_t>(), 1);
  }
}

TEST(Lstm, ReadsMoreRowsThanItWasMadeFor) {
  torch::manual_seed(3);
  for (const char* spec : {"lstm:6", "lstm:6,steps"}) {
    const auto model = make_model(spec, kInput, batchnorm());
    model->eval();
    const torch::NoGradGuard no_grad;
    const torch::Tensor logits = model->forward(torch::randn({2, 2, 9, 3}));
    EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{2, 4})) << spec;
    EXPECT_TRUE(torch::isfinite(logits).all().item<bool>()) << spec;
  }
}

TEST(Lstm, RefusesOtherSpecs) {
  for (const char* spec : {"lstm:", "lstm:0", "lstm:8,rows", "lstm:8,steps,2", "lstm:x"}) {
    EXPECT_THROW(check_model(spec), UsageError) << spec;
  }
  check_model("lstm");
  check_model("lstm:8,steps");
}

}  // namespace
}  // namespace renorm::models
