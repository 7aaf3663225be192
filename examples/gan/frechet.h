// The distance of two sets of images.
#pragma once

#include <torch/torch.h>

// Mean and covariance of features, in double.
struct Moments {
  torch::Tensor mean;
  torch::Tensor covariance;
};
Moments moments_of(const torch::Tensor& features);  // [n, dimensions]

// The Frechet distance of two normal distributions (Dowson and Landau, 1982):
// |mean a - mean b|^2 + trace(A + B - 2 (A B)^(1/2)).
double frechet_distance(const Moments& a, const Moments& b);
