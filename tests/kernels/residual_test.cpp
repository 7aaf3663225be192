// The mask of the backward is that of the forward to the last bit, also where a residual cancels the output.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cases.h"
#include "kernels/kernels.h"
#include "support/effort.h"
#include "support/parallel.h"

namespace renorm::test {
namespace {

using kernels::Activation;
using kernels::BFloat16;

constexpr int64_t kCases = 100;  // per data type and instruction set

// residual = -y of the case without residual: exactly 0 before the activation, or off by a rounding error
// where y was rounded to T. A third of the values is moved by about one unit in the last place, either way.
template <typename T>
void cancel(Random& random, Arrays<T>* a) {
  for (int64_t i = 0; i < a->y.size(); ++i) {
    const double factor = 1.0 + static_cast<double>(random.integer(-1, 1)) * (sizeof(T) == 8 ? 2e-16 : 1e-7);
    a->residual[i] = narrow<T>(-widen(a->y[i]) * factor);
    a->dy[i] = narrow<T>(1.0);
  }
}

// dy is 1 everywhere.
template <typename T>
void expect_forward_mask(const Arrays<T>& a, int64_t* open) {
  for (int64_t i = 0; i < a.y.size(); ++i) {
    ASSERT_EQ(widen(a.dresidual[i]) != 0.0, widen(a.y[i]) > 0.0) << i << ": y = " << widen(a.y[i]);
    *open += widen(a.y[i]) > 0.0 ? 1 : 0;
  }
}

template <typename T>
void expect_forward_masks(uint64_t seed) {
  Random random(seed);
  int64_t values = 0;
  int64_t open = 0;
  for (int64_t k = 0; k < case_count(kCases); ++k) {
    Case c = draw_case(random);
    c.has_residual = true;
    c.activation = Activation::kRelu;
    Arrays<T> a = draw_arrays<T>(c);
    SCOPED_TRACE(describe(c));

    kernels::Forward<T> plain = forward_problem(c, a);
    plain.residual = nullptr;
    plain.activation = Activation::kNone;
    kernels::forward(plain, serial());
    cancel(random, &a);
    kernels::forward(forward_problem(c, a), serial());
    kernels::backward(backward_problem(c, a), serial());
    ASSERT_NO_FATAL_FAILURE(expect_forward_mask(a, &open));
    values += a.y.size();
  }
  EXPECT_GT(open, values / 20);
  EXPECT_LT(open, values - values / 20);
}

// Restores the choice by CPU when a test ends, whatever its result.
class ResidualMask : public ::testing::Test {
 protected:
  void TearDown() override { kernels::force_simd_target(""); }
};

TEST_F(ResidualMask, IsThatOfTheForwardOnEveryTarget) {
  for (const std::string& target : kernels::runnable_simd_targets()) {
    SCOPED_TRACE(target);
    kernels::force_simd_target(target);
    ASSERT_NO_FATAL_FAILURE(expect_forward_masks<float>(900));
    ASSERT_NO_FATAL_FAILURE(expect_forward_masks<double>(901));
    ASSERT_NO_FATAL_FAILURE(expect_forward_masks<BFloat16>(902));
  }
}

}  // namespace
}  // namespace renorm::test
