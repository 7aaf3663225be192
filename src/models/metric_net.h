// A net that embeds images on the unit sphere, and a normalized softmax that trains it.
#pragma once

#include <cstdint>
#include <memory>

#include "models/model.h"

namespace renorm::models {

// The outputs of `net`, scaled to length 1, are the embedding. A logit is 16 times its cosine with a trained
// vector of the class.
class MetricNet : public Classifier {
 public:
  MetricNet(std::shared_ptr<Classifier> net, int64_t dimensions, int64_t classes);

  torch::Tensor embed(const torch::Tensor& images);  // [n, dimensions]
  std::vector<torch::Tensor> dense_norm_biases() override { return net_->dense_norm_biases(); }

 protected:
  Logits compute(const torch::Tensor& images) override;

 private:
  std::shared_ptr<Classifier> net_;
  torch::Tensor proxies_;  // [classes, dimensions]
};

}  // namespace renorm::models
