// Identities that the gradient of every channel and group satisfies, whatever the data.
#pragma once

#include <gtest/gtest.h>

#include "cases.h"

namespace renorm::test {

// With g = d(loss)/d(x_hat) and x_n = (x - batch_mean) / batch_std, succeeds if
//   sum(dx) = 0
//   sum((x - batch_mean) dx) = r (eps / batch_std^2) sum(g x_n)
//   dx = r / batch_std (g - mean(g) - x_n mean(g x_n))
// for the statistics and dx that a training forward and backward wrote to the arrays.
::testing::AssertionResult obeys_identities(const Case& c, const Arrays<double>& a);

}  // namespace renorm::test
