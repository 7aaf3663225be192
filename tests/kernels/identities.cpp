#include "identities.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace renorm::test {
namespace {

// Relative to the sum of the terms' magnitudes. Sums here have at most a few hundred terms, each with a few
// roundings of 1.1e-16.
constexpr double kIdentityTolerance = 1e-12;

// One channel of one group.
struct Channel {
  std::vector<double> centred;
  std::vector<double> dx;
  std::vector<double> dl_dxhat;
  double std;
  double r;
};

Channel gather(const Case& c, const Arrays<double>& a, int64_t group, int64_t channel) {
  const int64_t statistic = group * c.shape.c + channel;
  const double mean = a.batch_mean[statistic] + a.batch_mean_low[statistic];
  const double weight = a.weight.absent() ? 1.0 : a.weight[channel];
  const double bias = a.bias.absent() ? 0.0 : a.bias[channel];
  Channel result = {{}, {}, {}, a.batch_std[statistic], a.r[statistic]};
  for_each_value(c, group, channel, [&](int64_t i) {
    const double centred = a.x[i] - mean;
    const double x_hat = centred / result.std * result.r + a.d[statistic];
    const double residual = a.residual.absent() ? 0.0 : a.residual[i];
    const bool passes = c.activation == kernels::Activation::kNone || weight * x_hat + bias + residual > 0.0;
    result.centred.push_back(centred);
    result.dx.push_back(a.dx[i]);
    result.dl_dxhat.push_back(passes ? a.dy[i] * weight : 0.0);
  });
  return result;
}

double sum(const std::vector<double>& values) {
  double total = 0.0;
  for (const double value : values) total += value;
  return total;
}

double sum_of_products(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0.0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

::testing::AssertionResult channel_obeys(const Channel& k, double eps) {
  const auto m = static_cast<double>(k.dx.size());
  double magnitude = 0.0;
  double reach = 0.0;
  for (size_t i = 0; i < k.dx.size(); ++i) {
    magnitude += k.r / k.std * std::abs(k.dl_dxhat[i]);
    reach = std::max(reach, std::abs(k.centred[i]));
  }
  const double bound = kIdentityTolerance * magnitude;

  const double sum_dx = sum(k.dx);
  if (!(std::abs(sum_dx) <= bound)) {
    return ::testing::AssertionFailure() << "sum(dx) = " << sum_dx << " > " << bound;
  }
  const double sum_g_xn = sum_of_products(k.dl_dxhat, k.centred) / k.std;
  const double along_x = sum_of_products(k.centred, k.dx);
  const double along_x_expected = k.r * eps / (k.std * k.std) * sum_g_xn;
  if (!(std::abs(along_x - along_x_expected) <= bound * reach)) {
    return ::testing::AssertionFailure()
           << "sum((x - batch_mean) dx) = " << along_x << ", expected " << along_x_expected;
  }
  const double mean_g = sum(k.dl_dxhat) / m;
  for (size_t i = 0; i < k.dx.size(); ++i) {
    const double projected = k.dl_dxhat[i] - mean_g - k.centred[i] / k.std * (sum_g_xn / m);
    if (!(std::abs(k.dx[i] - k.r / k.std * projected) <= bound)) {
      return ::testing::AssertionFailure()
             << "dx = " << k.dx[i] << " is not the projection, " << k.r / k.std * projected;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult obeys_identities(const Case& c, const Arrays<double>& a) {
  for (int64_t group = 0; group < c.groups.count; ++group) {
    for (int64_t channel = 0; channel < c.shape.c; ++channel) {
      ::testing::AssertionResult result = channel_obeys(gather(c, a, group, channel), c.eps);
      if (!result) return result << "\n  group " << group << ", channel " << channel << " of " << describe(c);
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace renorm::test
