// The specification against numbers computed by hand.
#include "kernels/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cases.h"
#include "identities.h"
#include "support/effort.h"

namespace renorm::test {
namespace {

using kernels::Activation;
using kernels::Backward;
using kernels::Forward;
using kernels::Inference;
using kernels::Layout;
namespace reference = kernels::reference;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One channel, x = {1, 3}. batch_mean = 2, variance = 1, and with eps = 3 batch_std = sqrt(3 + 1) = 2.
// running_mean = 1 and running_std = 1: unclipped r = 2 and d = 1; r_max = 1.5 and d_max = 0.5 clip both.
// x_hat = {-1, 1} / 2 * 1.5 + 0.5 = {-0.25, 1.25}; weight 2, bias 1.
class TwoValues : public ::testing::Test {
 protected:
  std::vector<double> x = {1.0, 3.0}, dy = {1.0, 2.0}, y = {-9.0, -9.0}, dx = {-9.0, -9.0};
  std::vector<double> residual = {-1.0, 0.5}, dresidual = {-9.0, -9.0};
  uint8_t mask = 0xFF;
  double weight = 2.0, bias = 1.0, running_mean = 1.0, running_std = 1.0;
  double batch_mean = -9.0, batch_mean_low = -9.0, batch_std = -9.0, r = -9.0, d = -9.0;
  double dweight = -9.0, dbias = -9.0;

  Forward<double> forward = {Layout::kNcs,
                             {2, 1, 1},
                             {1, 2, 2, 1},
                             Activation::kNone,
                             3.0,
                             1.5,
                             0.5,
                             x.data(),
                             &weight,
                             &bias,
                             &running_mean,
                             &running_std,
                             y.data(),
                             &batch_mean,
                             &batch_mean_low,
                             &batch_std,
                             &r,
                             &d};
  Backward<double> backward = {
      Layout::kNcs, {2, 1, 1}, {1, 2, 2, 1}, Activation::kNone, false,           x.data(),
      dy.data(),    &weight,   &bias,        &batch_mean,       &batch_mean_low, &batch_std,
      &r,           &d,        dx.data(),    &dweight,          &dbias};
  Inference<double> inference = {Layout::kNcs, {2, 1, 1},     Activation::kNone, x.data(), &weight,
                                 &bias,        &running_mean, &running_std,      y.data()};
};

TEST_F(TwoValues, ForwardClipsRAndD) {
  reference::forward(forward);
  EXPECT_DOUBLE_EQ(batch_mean, 2.0);
  EXPECT_DOUBLE_EQ(batch_mean_low, 0.0);
  EXPECT_DOUBLE_EQ(batch_std, 2.0);
  EXPECT_DOUBLE_EQ(r, 1.5);
  EXPECT_DOUBLE_EQ(d, 0.5);
  EXPECT_DOUBLE_EQ(y[0], 0.5);
  EXPECT_DOUBLE_EQ(y[1], 3.5);
}

TEST_F(TwoValues, ForwardClipsRBelowAndDBelow) {
  running_mean = 6.0;
  running_std = 4.0;
  reference::forward(forward);
  EXPECT_DOUBLE_EQ(r, 2.0 / 3.0);  // unclipped 2 / 4, limit 1 / 1.5
  EXPECT_DOUBLE_EQ(d, -0.5);       // unclipped (2 - 6) / 4
}

TEST_F(TwoValues, ForwardWithoutLimitsEqualsInference) {
  forward.r_max = forward.d_max = kInfinity;
  reference::forward(forward);
  EXPECT_DOUBLE_EQ(r, 2.0);
  EXPECT_DOUBLE_EQ(d, 1.0);
  EXPECT_DOUBLE_EQ(y[0], 1.0);
  EXPECT_DOUBLE_EQ(y[1], 5.0);
}

TEST_F(TwoValues, ForwardWithoutAveragesIsBatchNorm) {
  forward.running_mean = forward.running_std = nullptr;
  forward.weight = forward.bias = nullptr;
  reference::forward(forward);
  EXPECT_DOUBLE_EQ(r, 1.0);
  EXPECT_DOUBLE_EQ(d, 0.0);
  EXPECT_DOUBLE_EQ(y[0], -0.5);
  EXPECT_DOUBLE_EQ(y[1], 0.5);
}

TEST_F(TwoValues, ReluCutsTheOutputAtZero) {
  bias = -1.0;
  forward.activation = Activation::kRelu;
  reference::forward(forward);
  EXPECT_DOUBLE_EQ(y[0], 0.0);  // 2 * -0.25 - 1 = -1.5
  EXPECT_DOUBLE_EQ(y[1], 1.5);
}

// dl/dxhat = {2, 4}
// dl/dstd  = (2 * -1 + 4 * 1) * -1.5 / 4 = -0.75
// dl/dmean = (2 + 4) * -1.5 / 2 = -4.5
// dl/dx    = {2, 4} * 0.75 - 0.75 * {-1, 1} / (2 * 2) - 4.5 / 2 = {-0.5625, 0.5625}
TEST_F(TwoValues, BackwardFollowsTheSixFormulas) {
  reference::forward(forward);
  reference::backward(backward);
  EXPECT_DOUBLE_EQ(dx[0], -0.5625);
  EXPECT_DOUBLE_EQ(dx[1], 0.5625);
  EXPECT_DOUBLE_EQ(dweight, 1.0 * -0.25 + 2.0 * 1.25);
  EXPECT_DOUBLE_EQ(dbias, 3.0);
}

// dl/dxhat = {0, 4}, dl/dstd = 4 * -0.375 = -1.5, dl/dmean = 4 * -0.75 = -3,
// dl/dx = {0, 3} - 1.5 * {-1, 1} / 4 - 1.5 = {-1.125, 1.125}
TEST_F(TwoValues, BackwardOfReluDropsWhatItCut) {
  bias = -1.0;
  backward.activation = Activation::kRelu;
  reference::forward(forward);
  reference::backward(backward);
  EXPECT_DOUBLE_EQ(dx[0], -1.125);
  EXPECT_DOUBLE_EQ(dx[1], 1.125);
  EXPECT_DOUBLE_EQ(dweight, 2.5);
  EXPECT_DOUBLE_EQ(dbias, 2.0);
}

// 2 * {-0.25, 1.25} + 1 + {-1, 0.5} = {-0.5, 4}
TEST_F(TwoValues, ResidualIsAddedBeforeTheActivation) {
  forward.residual = residual.data();
  reference::forward(forward);
  EXPECT_DOUBLE_EQ(y[0], -0.5);
  EXPECT_DOUBLE_EQ(y[1], 4.0);
  forward.activation = Activation::kRelu;
  reference::forward(forward);
  EXPECT_DOUBLE_EQ(y[0], 0.0);
  EXPECT_DOUBLE_EQ(y[1], 4.0);
}

// The same mask as in BackwardOfReluDropsWhatItCut: the first of two values is stopped.
TEST_F(TwoValues, BackwardOfReluTakesTheMaskFromTheSumWithTheResidual) {
  forward.activation = backward.activation = Activation::kRelu;
  forward.residual = residual.data();
  forward.mask = &mask;
  backward.mask = &mask;
  backward.dresidual = dresidual.data();
  reference::forward(forward);
  EXPECT_EQ(mask, 1);
  reference::backward(backward);
  EXPECT_DOUBLE_EQ(dx[0], -1.125);
  EXPECT_DOUBLE_EQ(dx[1], 1.125);
  EXPECT_DOUBLE_EQ(dweight, 2.5);
  EXPECT_DOUBLE_EQ(dbias, 2.0);
  EXPECT_EQ(dresidual, (std::vector<double>{0.0, 2.0}));
}

TEST_F(TwoValues, ResidualWithoutActivationReceivesTheWholeGradient) {
  backward.dresidual = dresidual.data();
  reference::forward(forward);
  reference::backward(backward);
  EXPECT_DOUBLE_EQ(dx[1], 0.5625);
  EXPECT_EQ(dresidual, dy);
}

// {1, 5} + {-1, 0.5} = {0, 5.5}; with bias -2: {-2, 2} + {-1, 0.5} = {-3, 2.5}
TEST_F(TwoValues, InferenceAddsTheResidual) {
  inference.residual = residual.data();
  reference::inference(inference);
  EXPECT_DOUBLE_EQ(y[0], 0.0);
  EXPECT_DOUBLE_EQ(y[1], 5.5);
  bias = -2.0;
  inference.activation = Activation::kRelu;
  reference::inference(inference);
  EXPECT_DOUBLE_EQ(y[0], 0.0);
  EXPECT_DOUBLE_EQ(y[1], 2.5);
}

TEST_F(TwoValues, FrozenBackwardOnlyScales) {
  backward.frozen = true;
  reference::forward(forward);
  reference::backward(backward);
  EXPECT_DOUBLE_EQ(dx[0], 1.5);
  EXPECT_DOUBLE_EQ(dx[1], 3.0);
  EXPECT_DOUBLE_EQ(dweight, 2.25);
  EXPECT_DOUBLE_EQ(dbias, 3.0);
}

TEST_F(TwoValues, BackwardTakesTheLowPartOfTheMean) {
  reference::forward(forward);
  batch_mean = 1.5;
  batch_mean_low = 0.5;
  reference::backward(backward);
  EXPECT_DOUBLE_EQ(dx[1], 0.5625);
  EXPECT_DOUBLE_EQ(dweight, 2.25);
}

TEST_F(TwoValues, InferenceUsesTheAveragesWithoutEps) {
  reference::inference(inference);
  EXPECT_DOUBLE_EQ(y[0], 1.0);
  EXPECT_DOUBLE_EQ(y[1], 5.0);
  bias = -2.0;
  inference.activation = Activation::kRelu;
  reference::inference(inference);
  EXPECT_DOUBLE_EQ(y[0], 0.0);
  EXPECT_DOUBLE_EQ(y[1], 2.0);
}

// Four examples of two channels at two positions; value = 100 * example + 10 * channel + position.
std::vector<double> labelled_batch(Layout layout) {
  std::vector<double> x(16);
  for (size_t n = 0; n < 4; ++n) {
    for (size_t c = 0; c < 2; ++c) {
      for (size_t s = 0; s < 2; ++s) {
        const size_t i = layout == Layout::kNcs ? (n * 2 + c) * 2 + s : (n * 2 + s) * 2 + c;
        x[i] = static_cast<double>(100 * n + 10 * c + s);
      }
    }
  }
  return x;
}

std::vector<double> group_means(Layout layout, const kernels::Groups& groups) {
  const std::vector<double> x = labelled_batch(layout);
  std::vector<double> y(16), mean(4), low(4), std(4), r(4), d(4);
  reference::forward({layout,
                      {4, 2, 2},
                      groups,
                      Activation::kNone,
                      1e-5,
                      1.0,
                      0.0,
                      x.data(),
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr,
                      y.data(),
                      mean.data(),
                      low.data(),
                      std.data(),
                      r.data(),
                      d.data()});
  return mean;
}

TEST(ReferenceGroups, ContiguousGroupsAreNeighbours) {
  const std::vector<double> expected = {50.5, 60.5, 250.5, 260.5};  // examples {0, 1} and {2, 3}
  EXPECT_EQ(group_means(Layout::kNcs, kernels::contiguous_groups(4, 2)), expected);
  EXPECT_EQ(group_means(Layout::kNsc, kernels::contiguous_groups(4, 2)), expected);
}

TEST(ReferenceGroups, StridedGroupsTakeEverySecondExample) {
  const std::vector<double> expected = {100.5, 110.5, 200.5, 210.5};  // examples {0, 2} and {1, 3}
  EXPECT_EQ(group_means(Layout::kNcs, kernels::strided_groups(4, 2)), expected);
  EXPECT_EQ(group_means(Layout::kNsc, kernels::strided_groups(4, 2)), expected);
}

TEST(ReferenceGroups, EmptyBatchHasZeroParameterGradients) {
  double dweight[2] = {-9.0, -9.0};
  double dbias[2] = {-9.0, -9.0};
  Backward<double> backward = {};
  backward.shape = {0, 2, 3};
  backward.groups = kernels::contiguous_groups(0, 4);
  backward.dweight = dweight;
  backward.dbias = dbias;
  reference::backward(backward);
  for (int c = 0; c < 2; ++c) {
    EXPECT_EQ(dweight[c], 0.0);
    EXPECT_EQ(dbias[c], 0.0);
  }
}

TEST(ReferenceConstantChannel, IsItsOwnMeanWhateverItsSize) {
  for (const double value : {0.0, 1e-30, 0.1, 100.0, 1e10}) {
    const std::vector<double> x(1001, value);
    std::vector<double> y(x.size());
    double mean, low, std, r, d;
    const double bias = 0.3;
    reference::forward({Layout::kNcs,
                        {7, 1, 143},
                        {1, 7, 7, 1},
                        Activation::kNone,
                        1e-5,
                        1.0,
                        0.0,
                        x.data(),
                        nullptr,
                        &bias,
                        nullptr,
                        nullptr,
                        y.data(),
                        &mean,
                        &low,
                        &std,
                        &r,
                        &d});
    EXPECT_EQ(mean, value);
    EXPECT_EQ(std, std::sqrt(1e-5));
    EXPECT_EQ(y, std::vector<double>(x.size(), bias));
  }
}

TEST(ReferenceBackward, ObeysTheNullSpaceIdentities) {
  constexpr int64_t kCases = 2500;
  Random random(20170210);
  for (int64_t k = 0; k < case_count(kCases); ++k) {
    const Case c = draw_tiny_case(random);
    Arrays<double> a = draw_arrays<double>(c);
    reference::forward(forward_problem(c, a));
    reference::backward(backward_problem(c, a));
    ASSERT_TRUE(obeys_identities(c, a));
  }
}

}  // namespace
}  // namespace renorm::test
