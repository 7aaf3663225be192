// The fast kernels for T = float, double and BFloat16. They solve the problems of reference/reference.h with
// the same results within rounding. Results are bit-identical however `parallel_for` divides the work.
#pragma once

#include <string>
#include <vector>

#include "kernels/problem.h"

namespace renorm::kernels {

template <typename T>
void forward(const Forward<T>& problem, const ParallelFor& parallel_for);

template <typename T>
void backward(const Backward<T>& problem, const ParallelFor& parallel_for);

template <typename T>
void inference(const Inference<T>& problem, const ParallelFor& parallel_for);

// y[0, n) = x[0, n) with non-temporal stores where the CPU has them: the bandwidth limit that
// benchmarks compare with. Both pointers are multiples of 64.
void stream_copy(const float* x, float* y, int64_t n);

// The instruction set the kernels run on, e.g. "AVX2".
std::string simd_target();

// Instruction sets compiled in that this CPU can run, best first.
std::vector<std::string> runnable_simd_targets();

// Tests only: every later call runs on the named target; "" restores the choice by CPU.
void force_simd_target(const std::string& name);

}  // namespace renorm::kernels
