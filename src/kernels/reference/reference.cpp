#include "kernels/reference/reference.h"

#include <algorithm>
#include <cmath>

namespace renorm::kernels::reference {
namespace {

int64_t offset_of(Layout layout, const Shape& shape, int64_t example, int64_t channel, int64_t position) {
  return layout == Layout::kNcs ? (example * shape.c + channel) * shape.s + position
                                : (example * shape.s + position) * shape.c + channel;
}

// Calls visit(offset) for every value of one channel in one group.
template <typename Visit>
void for_each_value(Layout layout, const Shape& shape, const Groups& groups, int64_t group, int64_t channel,
                    const Visit& visit) {
  for (int64_t j = 0; j < groups.size; ++j) {
    const int64_t example = group * groups.group_step + j * groups.example_step;
    for (int64_t position = 0; position < shape.s; ++position) {
      visit(offset_of(layout, shape, example, channel, position));
    }
  }
}

double value_or(const double* values, int64_t index, double otherwise) {
  return values == nullptr ? otherwise : values[index];
}

// NaN stays NaN.
double activate(Activation activation, double value) {
  return activation == Activation::kRelu ? std::max(value, 0.0) : value;
}

void forward_channel(const Forward<double>& p, int64_t group, int64_t channel) {
  const auto visit = [&](const auto& body) {
    for_each_value(p.layout, p.shape, p.groups, group, channel, body);
  };
  const auto m = static_cast<double>(p.groups.size * p.shape.s);

  double sum = 0.0;
  visit([&](int64_t i) { sum += p.x[i]; });
  const double rough_mean = sum / m;
  // The second pass removes the rounding error of the first: the mean of a constant channel is exact.
  double rest = 0.0;
  visit([&](int64_t i) { rest += p.x[i] - rough_mean; });
  const double batch_mean = rough_mean + rest / m;

  double sum_of_squares = 0.0;
  visit([&](int64_t i) { sum_of_squares += (p.x[i] - batch_mean) * (p.x[i] - batch_mean); });
  const double batch_std = std::sqrt(p.eps + sum_of_squares / m);

  double r = 1.0;
  double d = 0.0;
  if (p.running_std != nullptr) {
    const double running_mean = p.running_mean[channel];
    const double running_std = p.running_std[channel];
    r = std::clamp(batch_std / running_std, 1.0 / p.r_max, p.r_max);
    d = std::clamp((batch_mean - running_mean) / running_std, -p.d_max, p.d_max);
  }

  const double weight = value_or(p.weight, channel, 1.0);
  const double bias = value_or(p.bias, channel, 0.0);
  visit([&](int64_t i) {
    const double x_hat = (p.x[i] - batch_mean) / batch_std * r + d;
    p.y[i] = activate(p.activation, weight * x_hat + bias + value_or(p.residual, i, 0.0));
    if (p.mask != nullptr && p.y[i] <= 0.0) p.mask[i / 8] |= static_cast<uint8_t>(1 << i % 8);
  });

  const int64_t statistic = group * p.shape.c + channel;
  p.batch_mean[statistic] = batch_mean;
  p.batch_mean_low[statistic] = 0.0;
  p.batch_std[statistic] = batch_std;
  p.r[statistic] = r;
  p.d[statistic] = d;
}

void backward_channel(const Backward<double>& p, int64_t group, int64_t channel) {
  const auto visit = [&](const auto& body) {
    for_each_value(p.layout, p.shape, p.groups, group, channel, body);
  };
  const auto m = static_cast<double>(p.groups.size * p.shape.s);
  const int64_t statistic = group * p.shape.c + channel;
  const double mean = p.batch_mean[statistic] + value_or(p.batch_mean_low, statistic, 0.0);
  const double std = p.batch_std[statistic];
  const double r = value_or(p.r, statistic, 1.0);
  const double d = value_or(p.d, statistic, 0.0);
  const double weight = value_or(p.weight, channel, 1.0);
  const double bias = value_or(p.bias, channel, 0.0);

  const auto x_hat = [&](int64_t i) { return (p.x[i] - mean) / std * r + d; };
  const auto dl_dy = [&](int64_t i) {
    const auto passes_mask = [&] { return (p.mask[i / 8] >> i % 8 & 1) == 0; };
    const bool passes = p.activation == Activation::kNone ||
                        (p.mask != nullptr ? passes_mask() : !(weight * x_hat(i) + bias <= 0.0));
    return passes ? p.dy[i] : 0.0;
  };
  const auto dl_dxhat = [&](int64_t i) { return dl_dy(i) * weight; };

  double dl_dstd = 0.0;
  double dl_dmean = 0.0;
  double dl_dweight = 0.0;
  double dl_dbias = 0.0;
  visit([&](int64_t i) {
    dl_dstd += dl_dxhat(i) * (p.x[i] - mean) * (-r / (std * std));
    dl_dmean += dl_dxhat(i) * (-r / std);
    dl_dweight += dl_dy(i) * x_hat(i);
    dl_dbias += dl_dy(i);
  });
  if (p.frozen) dl_dstd = dl_dmean = 0.0;

  if (p.dx != nullptr) {
    visit([&](int64_t i) {
      p.dx[i] = dl_dxhat(i) * r / std + dl_dstd * (p.x[i] - mean) / (m * std) + dl_dmean / m;
    });
  }
  if (p.dresidual != nullptr) visit([&](int64_t i) { p.dresidual[i] = dl_dy(i); });
  if (p.dweight != nullptr) p.dweight[channel] += dl_dweight;
  if (p.dbias != nullptr) p.dbias[channel] += dl_dbias;
}

}  // namespace

void forward(const Forward<double>& problem) {
  if (problem.mask != nullptr) {
    std::fill_n(problem.mask, mask_bytes(problem.shape.n * problem.shape.c * problem.shape.s), uint8_t{0});
  }
  for (int64_t group = 0; group < problem.groups.count; ++group) {
    for (int64_t channel = 0; channel < problem.shape.c; ++channel) forward_channel(problem, group, channel);
  }
}

void backward(const Backward<double>& problem) {
  // Groups share their parameters, so each group adds its part.
  if (problem.dweight != nullptr) std::fill_n(problem.dweight, problem.shape.c, 0.0);
  if (problem.dbias != nullptr) std::fill_n(problem.dbias, problem.shape.c, 0.0);
  for (int64_t group = 0; group < problem.groups.count; ++group) {
    for (int64_t channel = 0; channel < problem.shape.c; ++channel) backward_channel(problem, group, channel);
  }
}

void inference(const Inference<double>& problem) {
  const Shape& shape = problem.shape;
  const Groups whole_batch = contiguous_groups(shape.n, shape.n);
  for (int64_t channel = 0; shape.n > 0 && channel < shape.c; ++channel) {
    const double weight = value_or(problem.weight, channel, 1.0);
    const double bias = value_or(problem.bias, channel, 0.0);
    for_each_value(problem.layout, shape, whole_batch, 0, channel, [&](int64_t i) {
      const double x_hat = (problem.x[i] - problem.running_mean[channel]) / problem.running_std[channel];
      problem.y[i] = activate(problem.activation, weight * x_hat + bias + value_or(problem.residual, i, 0.0));
    });
  }
}

}  // namespace renorm::kernels::reference
