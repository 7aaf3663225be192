#include "frechet.h"

namespace {

// Of a symmetric matrix without negative eigenvalues, but for rounding.
torch::Tensor square_root(const torch::Tensor& matrix) {
  const auto [values, vectors] = torch::linalg_eigh(matrix);
  return vectors.mm(torch::diag(values.clamp_min(0).sqrt())).mm(vectors.t());
}

}  // namespace

Moments moments_of(const torch::Tensor& features) {
  const torch::Tensor values = features.to(torch::kDouble);
  const torch::Tensor mean = values.mean(0);
  const torch::Tensor centred = values - mean;
  return {mean, centred.t().mm(centred) / static_cast<double>(values.size(0) - 1)};
}

double frechet_distance(const Moments& a, const Moments& b) {
  // trace((A B)^(1/2)) = trace((A^(1/2) B A^(1/2))^(1/2)), whose matrix is symmetric.
  const torch::Tensor root = square_root(a.covariance);
  const torch::Tensor product = square_root(root.mm(b.covariance).mm(root));
  const torch::Tensor distance =
      (a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace() - 2 * product.trace();
  return distance.item<double>();
}
