// How a net computes: dtype and memory format of the activations.
#include "support.h"

namespace renorm::models {
namespace {

using Computing = Seeded;

const std::vector<std::string> kSmall = {"convnet:8/2,max,16,avg,16,pool,32", "inception-small",
                                         "resnet-small"};

// A model whose averages have seen a few batches and moved quickly.
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

// Bfloat16 has 8 bits of precision, so each of a few dozen layers rounds by 0.2 to 0.4 %: 3 % of the greatest
// logit in evaluation, and 6 % in training, where the statistics of the batch are of rounded values too.
TEST_F(Computing, BFloat16ComesCloseToFloat) {
  for (const std::string& name : kSmall) {
    for (const MakeNorm& norm :
         {batch_renorm(batchnorm_options(true).momentum(0.5)), native_batch_norm(1e-3, 0.5, true)}) {
      const auto model = warm_model(name, 3, norm);
      const torch::NoGradGuard no_grad;
      const torch::Tensor x = torch::randn({16, 3, 24, 24});
      for (const bool training : {false, true}) {
        model->train(training);
        model->computation = {};
        const torch::Tensor expected = model->forward(x);
        for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
          model->computation = {torch::kBFloat16, format};
          const torch::Tensor actual = model->forward(x);
          EXPECT_EQ(actual.scalar_type(), torch::kFloat) << name;
          EXPECT_LT(relative_error(actual, expected), training ? 0.06 : 0.03) << name;
          EXPECT_FALSE(torch::equal(actual, expected)) << name;
        }
      }
    }
  }
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
