// Runs one case through the fast kernels and the reference and compares all results.
#pragma once

#include <gtest/gtest.h>

#include "cases.h"

namespace renorm::test {

// Forward (y and statistics), backward (also with absent outputs, and frozen), inference and its backward.
// Each side uses the statistics of its own forward. Outputs of type T are compared within kTolerance<T>,
// statistics and parameter gradients within kTolerance<Stat<T>>.
//
// ReLU: the output is continuous at 0, so y is compared like any other. The gradient is not: where the
// pre-activation is within rounding of 0 both masks are right. dy is set to 0 at those values for both
// sides, so that either mask gives the same dx, dweight and dbias.
template <typename T>
::testing::AssertionResult agrees(const Case& c, const kernels::ParallelFor& parallel_for);

}  // namespace renorm::test
