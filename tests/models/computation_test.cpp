// How a net computes: dtype and memory format of the activations.
#include <cmath>

#include "models/bfloat16.h"
#include "support.h"

namespace renorm::models {
namespace {

using Computing = Seeded;

const std::vector<std::string> kSmall = {"convnet:8/2,max,16,avg,16,pool,32", "inception-small",
                                         "resnet-small"};

// A model whose averages were updated by a few batches.
std::shared_ptr<Classifier> warm_model(const std::string& name, int64_t channels, const MakeNorm& norm) {
  const auto model = make_model(name, images(channels, 24, 10), norm);
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 8; ++i) model->forward(torch::randn({4, channels, 24, 24}));
  return model;
}

TEST_F(Computing, MemoryFormatChangesNoLogit) {
  const torch::NoGradGuard no_grad;
  for (const std::string& name : kSmall) {
    for (const int64_t channels : {1, 3}) {
      for (const bool training : {false, true}) {
        const auto model = make_model(name, images(channels, 24, 10), batchnorm());
        model->train(training);
        const torch::Tensor x = torch::randn({4, channels, 24, 24});
        const torch::Tensor expected = model->forward(x);
        model->computation.memory_format = torch::MemoryFormat::ChannelsLast;
        EXPECT_LT(relative_error(model->forward(x), expected), 1e-5) << name << " " << channels;
      }
    }
  }
}

// Strides of a map of several pixels and channels can only be in one of the orders.
bool tells_its_order(const torch::Tensor& map) { return map.size(1) > 1 && map.size(2) * map.size(3) > 1; }

TEST_F(Computing, ActivationsHaveTheMemoryFormatWhateverTheImagesHave) {
  const torch::NoGradGuard no_grad;
  for (const std::string& name : kSmall) {
    for (const int64_t channels : {1, 3}) {
      const auto model = make_model(name, images(channels, 24, 10), watched(batchnorm_options()));
      const torch::Tensor x = torch::randn({4, channels, 24, 24});
      torch::Tensor last = torch::empty({4, 24, 24, channels}).permute({0, 3, 1, 2});
      last.copy_(x);
      for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
        model->computation.memory_format = format;
        for (const torch::Tensor& given : {x, last}) {
          model->forward(given);
          for (const NamedLayer& named : batch_renorm_layers(*model)) {
            const torch::Tensor& seen = dynamic_cast<WatchedNorm*>(named.layer)->seen;
            ASSERT_TRUE(seen.defined());
            EXPECT_TRUE(!tells_its_order(seen) || seen.is_contiguous(format)) << name << " " << named.path;
          }
        }
      }
    }
  }
}

// Relative to the root mean square of the expected values.
double root_mean_square_error(const torch::Tensor& actual, const torch::Tensor& expected) {
  return ((actual - expected).norm() / expected.norm()).item<double>();
}

torch::Tensor rounded(const torch::Tensor& tensor) { return tensor.to(torch::kBFloat16).to(torch::kFloat); }

// A norm in float that, while `rounds` is set, rounds its input and output to bfloat16.
class RoundingNormImpl : public torch::nn::Module {
 public:
  RoundingNormImpl(torch::nn::AnyModule norm, std::shared_ptr<bool> rounds)
      : norm_(std::move(norm)), rounds_(std::move(rounds)) {
    register_module("norm", norm_.ptr());
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return *rounds_ ? rounded(norm_.forward(rounded(x))) : norm_.forward(x);
  }

 private:
  torch::nn::AnyModule norm_;
  std::shared_ptr<bool> rounds_;
};
TORCH_MODULE(RoundingNorm);

MakeNorm rounding(const MakeNorm& norm, const std::shared_ptr<bool>& rounds) {
  return [=](int64_t channels, Activation activation) {
    return torch::nn::AnyModule(RoundingNorm(norm(channels, activation), rounds));
  };
}

// The logits in float arithmetic with weights, images, and inputs and outputs of the norms rounded to
// bfloat16.
torch::Tensor rounded_logits(Classifier& model, const torch::Tensor& x, bool* rounds) {
  std::vector<torch::Tensor> before;
  for (torch::Tensor& parameter : model.parameters()) {
    before.push_back(parameter.clone());
    if (parameter.dim() > 1) parameter.copy_(rounded(parameter));
  }
  *rounds = true;
  const torch::Tensor logits = model.forward(rounded(x));
  *rounds = false;
  for (size_t i = 0; i < before.size(); ++i) model.parameters()[i].copy_(before[i]);
  return logits;
}

// Where convolutions keep their sums in float, bfloat16 costs its roundings and nothing else. Each net makes
// at most twice as many of them as rounded_logits does, pooling and residual sums included, and they add up
// at random: sqrt(2) as much. A different order of sums turns single roundings over, for which 2 leaves room.
// Where sums are rounded too, the error depends on the length of the sums, and no bound is promised: `renorm
// train` refuses bfloat16 there.
TEST_F(Computing, BFloat16CostsItsRoundingsAlone) {
  const auto rounds = std::make_shared<bool>(false);
  for (const std::string& name : kSmall) {
    for (const MakeNorm& norm :
         {batch_renorm(batchnorm_options(true).momentum(0.5)), native_batch_norm(1e-3, 0.5, true)}) {
      const auto model = warm_model(name, 3, rounding(norm, rounds));
      const torch::NoGradGuard no_grad;
      const torch::Tensor x = torch::randn({16, 3, 24, 24});
      for (const bool training : {false, true}) {
        model->train(training);
        model->computation = {};
        const torch::Tensor expected = model->forward(x);
        const double bound = 2.0 * root_mean_square_error(rounded_logits(*model, x, rounds.get()), expected);
        for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
          model->computation = {torch::kBFloat16, format};
          const torch::Tensor actual = model->forward(x);
          EXPECT_EQ(actual.scalar_type(), torch::kFloat) << name;
          EXPECT_FALSE(torch::equal(actual, expected)) << name;
          if (!measure_bfloat16(format).exact_sums) continue;
          EXPECT_LT(root_mean_square_error(actual, expected), bound) << name;
        }
      }
    }
  }
}

TEST_F(Computing, CostOfBFloat16IsMeasuredAndJudged) {
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    const BFloat16Cost cost = measure_bfloat16(format);
    EXPECT_TRUE(std::isfinite(cost.time_ratio));
    EXPECT_GT(cost.time_ratio, 0.0);
  }
  EXPECT_TRUE((BFloat16Cost{true, 0.5}).is_useful());
  EXPECT_FALSE((BFloat16Cost{true, 57.2}).is_useful());
  EXPECT_FALSE((BFloat16Cost{false, 0.5}).is_useful());
  EXPECT_FALSE((BFloat16Cost{true, 0.5, /*is_available=*/false}).is_useful());
  EXPECT_TRUE((BFloat16Cost{true, 3.5}).is_borderline());
  EXPECT_FALSE((BFloat16Cost{true, 0.5}).is_borderline());
  EXPECT_FALSE((BFloat16Cost{true, 57.2}).is_borderline());
  EXPECT_FALSE((BFloat16Cost{false, 3.5}).is_borderline());
  EXPECT_EQ((BFloat16Cost{true, 0.5, /*is_available=*/false}).words(), "are not available");
  EXPECT_EQ((BFloat16Cost{false, 57.2}).words(),
            "take 57 times as long as in float and round each sum to 8 bits");
  EXPECT_EQ((BFloat16Cost{true, 0.52}).words(), "take 0.5 times as long as in float and keep sums in float");
}

TEST_F(Computing, BFloat16LeavesParametersAveragesAndGradientsFloat) {
  for (const std::string& name : kSmall) {
    for (const MakeNorm& norm : {watched(batchnorm_options(true)), native(true)}) {
      const auto model = make_model(name, images(3, 24, 10), norm);
      model->computation = {torch::kBFloat16, torch::MemoryFormat::ChannelsLast};
      torch::cross_entropy_loss(model->forward(torch::randn({8, 3, 24, 24})), torch::arange(8)).backward();
      for (const NamedLayer& named : batch_renorm_layers(*model)) {
        EXPECT_EQ(dynamic_cast<WatchedNorm*>(named.layer)->seen.scalar_type(), torch::kBFloat16);
      }
      for (const auto& item : model->named_parameters()) {
        EXPECT_EQ(item.value().scalar_type(), torch::kFloat) << name << " " << item.key();
        const torch::Tensor grad = item.value().grad();
        ASSERT_TRUE(grad.defined()) << name << " " << item.key();
        EXPECT_EQ(grad.scalar_type(), torch::kFloat) << name << " " << item.key();
        EXPECT_TRUE(torch::isfinite(grad).all().item<bool>()) << name << " " << item.key();
        EXPECT_GT(grad.abs().max().item<double>(), 0.0) << name << " " << item.key();
      }
      for (const torch::Tensor& buffer : model->buffers()) {
        EXPECT_TRUE(buffer.scalar_type() == torch::kFloat || buffer.scalar_type() == torch::kLong) << name;
      }
    }
  }
}

}  // namespace
}  // namespace renorm::models
