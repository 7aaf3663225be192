#include "bench/native.h"

namespace renorm::bench {
namespace {

constexpr double kUnusedMomentum = 0.1;

}  // namespace

Native::Native(const Data& data) : data_(data) {
  auto result = at::native_batch_norm(data_.x, data_.weight, data_.bias, {}, {}, true, kUnusedMomentum, kEps);
  relu_output_ = at::relu(std::get<0>(result));
  saved_mean_ = std::get<1>(result);
  saved_inv_std_ = std::get<2>(result);
}

at::Tensor Native::forward(bool relu) const {
  at::Tensor y = std::get<0>(
      at::native_batch_norm(data_.x, data_.weight, data_.bias, {}, {}, true, kUnusedMomentum, kEps));
  return relu ? at::relu(y) : y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Native::backward(bool relu) const {
  const at::Tensor dy = relu ? at::threshold_backward(data_.dy, relu_output_, 0) : data_.dy;
  return at::native_batch_norm_backward(dy, data_.x, data_.weight, {}, {}, saved_mean_, saved_inv_std_, true,
                                        kEps, {true, true, true});
}

at::Tensor Native::inference(bool relu) const {
  at::Tensor y = std::get<0>(at::native_batch_norm(data_.x, data_.weight, data_.bias, data_.running_mean,
                                                   data_.running_var, false, kUnusedMomentum, kEps));
  return relu ? at::relu(y) : y;
}

}  // namespace renorm::bench
