#include "models/metric_net.h"

#include <torch/nn/functional/normalization.h>
#include <torch/torch.h>

#include <utility>

namespace renorm::models {
namespace {

constexpr double kScale = 16.0;

torch::Tensor unit_length(const torch::Tensor& rows) {
  return torch::nn::functional::normalize(rows, torch::nn::functional::NormalizeFuncOptions().dim(1));
}

}  // namespace

MetricNet::MetricNet(std::shared_ptr<Classifier> net, int64_t dimensions, int64_t classes)
    : net_(register_module("net", std::move(net))),
      proxies_(register_parameter("proxies", torch::randn({classes, dimensions}))) {}

torch::Tensor MetricNet::embed(const torch::Tensor& images) {
  net_->computation = computation;
  net_->image_seeds = image_seeds;
  return unit_length(net_->forward(images));
}

Logits MetricNet::compute(const torch::Tensor& images) {
  return {kScale * embed(images).mm(unit_length(proxies_).t()), {}};
}

}  // namespace renorm::models
