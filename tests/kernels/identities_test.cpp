#include "identities.h"

#include <gtest/gtest.h>

#include "cases.h"
#include "kernels/kernels.h"
#include "support/effort.h"
#include "support/parallel.h"

namespace renorm::test {
namespace {

// The check recomputes ReLU's mask with different roundings from the kernel's: a pre-activation within
// 1e-15 of 0 could disagree. None of the 2,500 fixed cases has one that is not exactly 0.
TEST(KernelBackward, ObeysTheNullSpaceIdentities) {
  constexpr int64_t kCases = 2500;
  Random random(600);
  for (int64_t k = 0; k < case_count(kCases); ++k) {
    const Case c = draw_tiny_case(random);
    Arrays<double> a = draw_arrays<double>(c);
    kernels::forward(forward_problem(c, a), serial());
    kernels::backward(backward_problem(c, a), serial());
    ASSERT_TRUE(obeys_identities(c, a)) << "  case " << k;
  }
}

TEST(KernelBackward, ObeysTheNullSpaceIdentitiesInLargerCases) {
  constexpr int64_t kCases = 200;
  Random random(601);
  for (int64_t k = 0; k < case_count(kCases); ++k) {
    Case c = draw_case(random);
    c.activation = kernels::Activation::kNone;
    Arrays<double> a = draw_arrays<double>(c);
    kernels::forward(forward_problem(c, a), serial());
    kernels::backward(backward_problem(c, a), serial());
    ASSERT_TRUE(obeys_identities(c, a)) << "  case " << k;
  }
}

}  // namespace
}  // namespace renorm::test
