// A small DCGAN (Radford et al., 2015) whose norm is an argument, and the classifier that measures its
// images.
#pragma once

#include <renorm/renorm.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>

constexpr int64_t kNoise = 64;

// Makes the norm of so many channels.
using MakeNorm = std::function<torch::nn::AnyModule(int64_t channels)>;

// [n, 64] -> [n, 1, 20, 20], from -1 to 1.
struct GeneratorImpl : torch::nn::Module {
  explicit GeneratorImpl(const MakeNorm& norm);
  torch::Tensor forward(const torch::Tensor& noise) { return layers->forward(noise); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Generator);

// [n, 1, 20, 20] -> [n], positive for a real image.
struct DiscriminatorImpl : torch::nn::Module {
  explicit DiscriminatorImpl(const MakeNorm& norm);
  torch::Tensor forward(const torch::Tensor& images) { return layers->forward(images).view({-1}); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Discriminator);

// Its features [n, 64] are the space in which sets of images are compared.
struct ClassifierImpl : torch::nn::Module {
  explicit ClassifierImpl(int64_t classes);
  torch::Tensor features(const torch::Tensor& images) { return body->forward(images); }
  torch::Tensor forward(const torch::Tensor& images) { return head(features(images)); }
  torch::nn::Sequential body;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Classifier);
