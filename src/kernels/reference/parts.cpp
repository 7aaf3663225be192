#include "kernels/reference/parts.h"

#include <algorithm>

namespace renorm::kernels::reference {
namespace {

// Calls visit(offset) for every value of one channel.
template <typename Visit>
void for_each_value(Layout layout, const Shape& shape, int64_t channel, const Visit& visit) {
  for (int64_t n = 0; n < shape.n; ++n) {
    for (int64_t s = 0; s < shape.s; ++s) {
      visit(layout == Layout::kNcs ? (n * shape.c + channel) * shape.s + s
                                   : (n * shape.s + s) * shape.c + channel);
    }
  }
}

double value_or(const double* values, int64_t index, double otherwise) {
  return values == nullptr ? otherwise : values[index];
}

// The arguments of Apply or ApplyBackward that belong to one channel.
struct Channel {
  double weight, bias, mean, std, r, d;

  template <class Problem>
  Channel(const Problem& p, int64_t c)
      : weight(value_or(p.weight, c, 1.0)),
        bias(value_or(p.bias, c, 0.0)),
        mean(p.batch_mean[c] + value_or(p.batch_mean_low, c, 0.0)),
        std(p.batch_std[c]),
        r(value_or(p.r, c, 1.0)),
        d(value_or(p.d, c, 0.0)) {}

  double before_activation(double x) const { return weight * ((x - mean) / std * r + d) + bias; }
};

double dl_dy(const ApplyBackward<double>& p, const Channel& channel, int64_t i) {
  const bool stops = p.activation == Activation::kRelu && channel.before_activation(p.x[i]) <= 0.0;
  return stops ? 0.0 : p.dy[i];
}

}  // namespace

void statistics(const Statistics<double>& p) {
  const auto count = static_cast<double>(p.shape.n * p.shape.s);
  for (int64_t c = 0; c < p.shape.c; ++c) {
    const auto visit = [&](const auto& body) { for_each_value(p.layout, p.shape, c, body); };
    double sum = 0.0;
    visit([&](int64_t i) { sum += p.x[i]; });
    const double rough_mean = sum / count;
    // The second pass removes the rounding error of the first.
    double rest = 0.0;
    visit([&](int64_t i) { rest += p.x[i] - rough_mean; });
    const double mean = rough_mean + rest / count;
    double m2 = 0.0;
    visit([&](int64_t i) { m2 += (p.x[i] - mean) * (p.x[i] - mean); });
    p.mean[c] = mean;
    p.m2[c] = m2;
  }
}

void apply(const Apply<double>& p) {
  for (int64_t c = 0; c < p.shape.c; ++c) {
    const Channel channel(p, c);
    for_each_value(p.layout, p.shape, c, [&](int64_t i) {
      const double value = channel.before_activation(p.x[i]);
      p.y[i] = p.activation == Activation::kRelu ? std::max(value, 0.0) : value;
    });
  }
}

void backward_sums(const ApplyBackward<double>& p, const GradientSums<double>& sums) {
  for (int64_t c = 0; c < p.shape.c; ++c) {
    const Channel channel(p, c);
    sums.dy[c] = sums.dy_x[c] = 0.0;
    for_each_value(p.layout, p.shape, c, [&](int64_t i) {
      const double g = dl_dy(p, channel, i);
      sums.dy[c] += g;
      sums.dy_x[c] += g * (p.x[i] - channel.mean);
    });
  }
}

void backward_apply(const ApplyBackward<double>& p, const GradientSums<const double>& sums, double count,
                    double* dx) {
  for (int64_t c = 0; c < p.shape.c; ++c) {
    const Channel channel(p, c);
    const double level = sums.dy[c] / count;
    const double slope = sums.dy_x[c] / (count * channel.std * channel.std);
    for_each_value(p.layout, p.shape, c, [&](int64_t i) {
      const double g = dl_dy(p, channel, i) - level - (p.x[i] - channel.mean) * slope;
      dx[i] = channel.weight * channel.r / channel.std * g;
    });
  }
}

}  // namespace renorm::kernels::reference
