// Models in training: every parameter changes, statistics can be deferred, and the norms agree.
#include "support.h"

namespace renorm::models {
namespace {

using Training = Seeded;

torch::Tensor loss_of(Classifier& model, const torch::Tensor& x, const torch::Tensor& labels) {
  return torch::cross_entropy_loss(model.forward(x), labels);
}

TEST_F(Training, EveryParameterGetsAFiniteGradient) {
  for (const std::string& name : kNames) {
    for (const MakeNorm& norm :
         {batchnorm(), batchnorm(true), native(), native(true), groupnorm(), groupnorm(true)}) {
      const auto model = make_model(name, images(1, 20, 10), norm);
      loss_of(*model, torch::randn({8, 1, 20, 20}), torch::arange(8)).backward();
      for (const auto& item : model->named_parameters()) {
        const torch::Tensor grad = item.value().grad();
        ASSERT_TRUE(grad.defined()) << name << " " << item.key();
        EXPECT_TRUE(torch::isfinite(grad).all().item<bool>()) << name << " " << item.key();
        EXPECT_GT(grad.abs().max().item<double>(), 0.0) << name << " " << item.key();
      }
    }
  }
}

TEST_F(Training, DeferredStatisticsMoveOnceAStep) {
  const auto options =
      BatchRenormOptions(1).eps(1e-3).scale(false).group_size(4).statistics(Statistics::kDeferred);
  for (const std::string& name : kNames) {
    const auto model = make_model(name, images(1, 20, 10), batch_renorm(options));
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    for (int step = 1; step <= 2; ++step) {
      optimizer.zero_grad();
      for (int chunk = 0; chunk < 2; ++chunk) {
        loss_of(*model, torch::randn({8, 1, 20, 20}), torch::arange(8)).backward();
      }
      for (const NamedLayer& named : batch_renorm_layers(*model)) {
        EXPECT_EQ(named.layer->step(), step - 1) << name << " " << named.path;
        EXPECT_TRUE(named.layer->commit()) << name << " " << named.path;
        EXPECT_EQ(named.layer->step(), step) << name << " " << named.path;
      }
      optimizer.step();
    }
  }
}

// Same weights, biases away from 0 so that the ReLU does not sit at the mean.
void copy_parameters(const torch::nn::Module& from, torch::nn::Module* to) {
  const torch::NoGradGuard no_grad;
  const auto source = from.named_parameters();
  for (auto& item : to->named_parameters()) item.value().copy_(source[item.key()]);
}

// In double, because rounding in float moves a few activations across the kink of the ReLU. Sums differ by
// some 1e-14 of their size, and nets of ten to forty layers amplify that some thousandfold.
TEST_F(Training, NativeAndOurBatchnormAgree) {
  constexpr double kTolerance = 1e-9;
  for (const std::string& name : kNames) {
    const auto ours = make_model(name, images(3, 20, 10), batchnorm());
    {
      const torch::NoGradGuard no_grad;
      for (const NamedLayer& named : batch_renorm_layers(*ours)) named.layer->bias.uniform_(-0.5, 0.5);
    }
    const auto theirs = make_model(name, images(3, 20, 10), native());
    copy_parameters(*ours, theirs.get());
    for (Classifier* model : {ours.get(), theirs.get()}) {
      model->to(torch::kDouble);
      model->computation.dtype = torch::kDouble;
    }
    const torch::Tensor x = torch::randn({8, 3, 20, 20}, torch::kDouble);
    const torch::Tensor expected = theirs->forward(x);
    const torch::Tensor actual = ours->forward(x);
    EXPECT_LT(relative_error(actual, expected), kTolerance) << name;
    torch::cross_entropy_loss(expected, torch::arange(8)).backward();
    torch::cross_entropy_loss(actual, torch::arange(8)).backward();
    const auto gradients = theirs->named_parameters();
    for (const auto& item : ours->named_parameters()) {
      EXPECT_LT(relative_error(item.value().grad(), gradients[item.key()].grad()), kTolerance)
          << name << " " << item.key();
    }
  }
}

TEST_F(Training, LossFallsOnAFewImages) {
  for (const std::string& name : kNames) {
    const auto model = make_model(name, images(1, 20, 10), batchnorm());
    const torch::Tensor x = torch::randn({20, 1, 20, 20});
    const torch::Tensor labels = torch::arange(20).remainder(10);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const double first = loss_of(*model, x, labels).item<double>();
    double last = first;
    for (int step = 0; step < 30; ++step) {
      optimizer.zero_grad();
      const torch::Tensor loss = loss_of(*model, x, labels);
      loss.backward();
      optimizer.step();
      last = loss.item<double>();
    }
    EXPECT_LT(last, 0.3 * first) << name;
  }
}

TEST_F(Training, ConvnetPoolsAsItsSpecSays) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::randn({2, 1, 6, 6});
  const auto classify = [](Classifier& model, const torch::Tensor& pooled) {
    const auto parameters = model.named_parameters();
    return torch::linear(pooled, parameters["classifier.weight"], parameters["classifier.bias"]);
  };
  const auto max = make_model("convnet:max", images(1, 6, 5), batchnorm());
  EXPECT_LT(relative_error(max->forward(x), classify(*max, torch::max_pool2d(x, 2).mean({2, 3}))), 1e-5);
  const auto average = make_model("convnet:avg,pool", images(1, 6, 5), batchnorm());
  EXPECT_LT(relative_error(average->forward(x), classify(*average, x.mean({2, 3}))), 1e-5);
}

}  // namespace
}  // namespace renorm::models
