// Data that breaks careless arithmetic: means far from 0, constant channels, values that are not finite,
// empty batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "agreement.h"
#include "kernels/kernels.h"
#include "support/compare.h"
#include "support/parallel.h"

namespace renorm::test {
namespace {

using kernels::Activation;
using kernels::BFloat16;
using kernels::Layout;
using kernels::Shape;
using kernels::Stat;

constexpr Layout kLayouts[] = {Layout::kNcs, Layout::kNsc};

// Short and long rows, one value per row, one and several groups.
std::vector<std::pair<Shape, int64_t>> shapes() {
  return {{{8, 5, 1}, 8},    {{4, 3, 49}, 4},      {{6, 19, 33}, 2}, {{2, 3, 5003}, 2},
          {{16, 4, 700}, 8}, {{1009, 9, 1}, 1009}, {{64, 33, 9}, 64}};
}

// Everything agrees within the bounds for small means (1e-5 of scale): y, dx and dweight in particular.
TEST(LargeMean, CostsFloatNoAccuracy) {
  Random random(700);
  for (const double mean_over_std : {1e2, 1e3, 1e4}) {
    for (const auto& shape : shapes()) {
      for (const Layout layout : kLayouts) {
        Case c;
        c.layout = layout;
        c.shape = shape.first;
        c.groups = kernels::contiguous_groups(c.shape.n, shape.second);
        c.mean_over_std = mean_over_std;
        c.r_max = 3.0;
        c.d_max = 5.0;
        c.activation = random.chance(0.5) ? Activation::kRelu : Activation::kNone;
        c.has_residual = random.chance(0.5);
        c.seed = random.bits();
        ASSERT_TRUE(agrees<float>(c, serial()));
      }
    }
  }
}

template <typename T>
class ConstantChannel : public ::testing::Test {};
using DataTypes = ::testing::Types<float, double, BFloat16>;
TYPED_TEST_SUITE(ConstantChannel, DataTypes);

template <typename T>
void expect_exactly_bias_and_residual(const Case& c, double value) {
  using P = Stat<T>;
  Arrays<T> a = draw_arrays<T>(c);
  for (int64_t i = 0; i < a.x.size(); ++i) a.x[i] = narrow<T>(value);
  kernels::forward(forward_problem(c, a), serial());
  kernels::backward(backward_problem(c, a), serial());
  const bool channels_last = c.layout == Layout::kNsc;
  for (int64_t i = 0; i < a.y.size(); ++i) {
    const int64_t channel = channels_last ? i % c.shape.c : i / c.shape.s % c.shape.c;
    const P bias = c.has_bias ? a.bias[channel] : P(0);
    const P residual = c.has_residual ? static_cast<P>(widen(a.residual[i])) : P(0);
    const P floor = c.activation == Activation::kRelu ? P(0) : -std::numeric_limits<P>::infinity();
    ASSERT_EQ(widen(a.y[i]), widen(narrow<T>(widen(std::max(bias + residual, floor))))) << i;
    ASSERT_TRUE(std::isfinite(widen(a.dx[i]))) << i;
  }
  for (int64_t channel = 0; channel < c.shape.c; ++channel) {
    ASSERT_EQ(a.dweight[channel], P(0));
    ASSERT_TRUE(std::isfinite(a.dbias[channel]));
  }
}

TYPED_TEST(ConstantChannel, GivesExactlyTheBiasAndTheResidualAndFiniteGradients) {
  for (const double value : {0.0, 1e-30, 0.1, -0.1, 100.0, 1e10}) {
    for (const auto& shape : shapes()) {
      for (const Layout layout : kLayouts) {
        for (const bool has_bias : {true, false}) {
          Case c;
          c.layout = layout;
          c.shape = shape.first;
          c.groups = kernels::contiguous_groups(c.shape.n, shape.second);
          c.has_bias = has_bias;
          c.activation = has_bias ? Activation::kNone : Activation::kRelu;
          c.seed = 701;
          for (const bool has_residual : {false, true}) {
            c.has_residual = has_residual;
            SCOPED_TRACE(describe(c) + " value " + std::to_string(value));
            ASSERT_NO_FATAL_FAILURE(expect_exactly_bias_and_residual<TypeParam>(c, value));
          }
        }
      }
    }
  }
}

template <typename T>
class NonFiniteInput : public ::testing::Test {};
TYPED_TEST_SUITE(NonFiniteInput, DataTypes);

// Only the statistics of that channel and group are not finite: callers detect the problem by them.
TYPED_TEST(NonFiniteInput, ShowsInTheStatisticsOfItsChannelAlone) {
  using T = TypeParam;
  Random random(702);
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const auto& shape : shapes()) {
      for (const Layout layout : kLayouts) {
        Case c;
        c.layout = layout;
        c.shape = shape.first;
        c.groups = kernels::contiguous_groups(c.shape.n, shape.second);
        c.seed = random.bits();
        SCOPED_TRACE(describe(c));
        Arrays<T> a = draw_arrays<T>(c);
        const int64_t at = random.integer(0, a.x.size() - 1);
        a.x[at] = narrow<T>(bad);
        kernels::forward(forward_problem(c, a), serial());
        const int64_t channel = layout == Layout::kNsc ? at % c.shape.c : at / c.shape.s % c.shape.c;
        const int64_t group = at / (c.shape.c * c.shape.s) / c.groups.size;
        for (int64_t i = 0; i < statistics_of(c); ++i) {
          const bool finite = std::isfinite(a.batch_mean[i]) && std::isfinite(a.batch_std[i]);
          ASSERT_EQ(finite, i != group * c.shape.c + channel) << "statistic " << i;
        }
      }
    }
  }
}

template <typename T>
class EmptyBatch : public ::testing::Test {};
TYPED_TEST_SUITE(EmptyBatch, DataTypes);

TYPED_TEST(EmptyBatch, HasZeroParameterGradientsAndWritesNothingElse) {
  using T = TypeParam;
  for (const Layout layout : kLayouts) {
    for (const bool frozen : {false, true}) {
      Case c;
      c.layout = layout;
      c.shape = {0, 21, 6};
      c.groups = kernels::contiguous_groups(0, 4);
      c.has_residual = frozen;
      c.activation = frozen ? Activation::kRelu : Activation::kNone;
      Arrays<T> a = draw_arrays<T>(c);
      kernels::forward(forward_problem(c, a), serial());
      kernels::inference(inference_problem(c, a), serial());
      kernels::Backward<T> problem = backward_problem(c, a);
      problem.frozen = frozen;
      kernels::backward(problem, serial());
      for (int64_t channel = 0; channel < c.shape.c; ++channel) {
        EXPECT_EQ(a.dweight[channel], 0);
        EXPECT_EQ(a.dbias[channel], 0);
      }
      EXPECT_TRUE(a.y.intact() && a.dx.intact() && a.batch_mean.intact() && a.batch_std.intact());
      EXPECT_TRUE(a.dweight.intact() && a.dbias.intact() && a.dresidual.intact());
    }
  }
}

}  // namespace
}  // namespace renorm::test
