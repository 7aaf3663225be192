#include "nets.h"

namespace {

using torch::nn::Conv2d;
using torch::nn::ConvTranspose2d;
using torch::nn::Functional;

Conv2d halving(int64_t in, int64_t out) {
  return Conv2d(torch::nn::Conv2dOptions(in, out, 4).stride(2).padding(1).bias(false));
}

ConvTranspose2d doubling(int64_t in, int64_t out) {
  return ConvTranspose2d(torch::nn::ConvTranspose2dOptions(in, out, 4).stride(2).padding(1).bias(false));
}

torch::nn::LeakyReLU leaky() {
  return torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2));
}

// As in the paper: weights are normal with standard deviation 0.02.
void start(torch::nn::Module& net) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : net.parameters()) {
    if (parameter.dim() > 1) parameter.normal_(0.0, 0.02);
  }
}

}  // namespace

GeneratorImpl::GeneratorImpl(const MakeNorm& norm) {
  register_module("layers", layers);
  layers->push_back(torch::nn::Linear(torch::nn::LinearOptions(kNoise, 128 * 25).bias(false)));
  layers->push_back(torch::nn::Unflatten(torch::nn::UnflattenOptions(1, {128, 5, 5})));
  layers->push_back(norm(128));
  layers->push_back(torch::nn::ReLU());
  layers->push_back(doubling(128, 64));
  layers->push_back(norm(64));
  layers->push_back(torch::nn::ReLU());
  layers->push_back(doubling(64, 1));
  layers->push_back(torch::nn::Tanh());
  start(*this);
}

DiscriminatorImpl::DiscriminatorImpl(const MakeNorm& norm) {
  register_module("layers", layers);
  layers->push_back(halving(1, 64));
  layers->push_back(leaky());
  layers->push_back(halving(64, 128));
  layers->push_back(norm(128));
  layers->push_back(leaky());
  layers->push_back(torch::nn::Flatten());
  layers->push_back(torch::nn::Linear(128 * 25, 1));
  start(*this);
}

ClassifierImpl::ClassifierImpl(int64_t classes) {
  register_module("body", body);
  const auto norm = [](int64_t channels) {
    return renorm::BatchRenorm2d(renorm::BatchRenormOptions(channels)
                                     .activation(renorm::Activation::kRelu)
                                     .clip(renorm::ClipSchedule::batch_norm()));
  };
  body->push_back(halving(1, 32));
  body->push_back(norm(32));
  body->push_back(halving(32, 64));
  body->push_back(norm(64));
  body->push_back(torch::nn::AdaptiveAvgPool2d(1));
  body->push_back(torch::nn::Flatten());
  head = register_module("head", torch::nn::Linear(64, classes));
}
