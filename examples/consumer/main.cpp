// A small net with BatchRenorm2d where BatchNorm2d would stand, trained on batches of 4, saved and loaded
// again. The task: which half of a noisy image is the brighter one?
#include <renorm/renorm.h>
#include <torch/torch.h>

#include <cstdio>

namespace {

constexpr int64_t kSteps = 200;
constexpr int64_t kBatch = 4;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const renorm::ClipSchedule& clip)
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).bias(false)))),
        norm1(register_module("norm1", renorm::BatchRenorm2d(options(8, clip)))),
        conv2(register_module("conv2",
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).stride(2).bias(false)))),
        norm2(register_module("norm2", renorm::BatchRenorm2d(options(16, clip)))),
        head(register_module("head", torch::nn::Linear(16 * 2, 2))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = norm1(conv1(x));
    x = norm2(conv2(x));
    return head(torch::adaptive_avg_pool2d(x, {1, 2}).flatten(1));
  }

  // The layer does the ReLU that follows it, which saves one pass over the data.
  static renorm::BatchRenormOptions options(int64_t channels, const renorm::ClipSchedule& clip) {
    return renorm::BatchRenormOptions(channels).clip(clip).activation(renorm::Activation::kRelu);
  }

  torch::nn::Conv2d conv1;
  renorm::BatchRenorm2d norm1;
  torch::nn::Conv2d conv2;
  renorm::BatchRenorm2d norm2;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);

struct Batch {
  torch::Tensor images;
  torch::Tensor labels;
};

Batch draw(int64_t size) {
  const auto labels = torch::randint(0, 2, {size}, torch::kLong);
  auto images = torch::randn({size, 1, 16, 16});
  for (int64_t i = 0; i < size; ++i) {
    images[i].narrow(2, 8 * labels[i].item<int64_t>(), 8) += 0.3;
  }
  return {images, labels};
}

void train(Net& net) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  net->train();
  for (int64_t step = 1; step <= kSteps; ++step) {
    const Batch batch = draw(kBatch);
    optimizer.zero_grad();
    const auto loss = torch::cross_entropy_loss(net(batch.images), batch.labels);
    loss.backward();
    optimizer.step();
    if (step % 50 == 0) {
      const renorm::ClipLimits limits = net->norm1->clip_limits();
      std::printf("step %3lld   loss %.3f   r_max %.2f   d_max %.2f\n", static_cast<long long>(step),
                  loss.item<double>(), limits.r_max, limits.d_max);
    }
  }
}

}  // namespace

int main() {
  torch::manual_seed(1);
  const auto clip = renorm::ClipSchedule::paper(kSteps);
  std::printf("renorm %s, clip schedule: %s\n", RENORM_VERSION, clip.to_string().c_str());

  Net net(clip);
  train(net);
  torch::save(net, "consumer.pt");
  Net loaded(clip);
  torch::load(loaded, "consumer.pt");

  torch::NoGradGuard no_grad;
  net->eval();
  loaded->eval();
  const Batch test = draw(500);
  const auto scores = loaded(test.images);
  const double accuracy = scores.argmax(1).eq(test.labels).to(torch::kDouble).mean().item<double>();
  const bool same = torch::equal(scores, net(test.images)) && loaded->norm1->step() == kSteps;
  std::printf("test accuracy %.1f %%\n", 100.0 * accuracy);
  std::printf("saved and loaded: %s\n", same ? "the same net" : "NOT the same net");
  return same && accuracy > 0.9 ? 0 : 1;
}
