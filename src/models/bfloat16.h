// The cost of bfloat16 convolutions on this machine, in accuracy and in time.
#pragma once

#include <torch/types.h>

#include <string>

namespace renorm::models {

struct BFloat16Cost {
  // Sums are kept in float. Otherwise each addition is rounded to 8 bits, so a sum of more than 256 equal
  // terms stops growing.
  bool exact_sums = true;
  // CPU time of a convolution, forward and backward, as a multiple of the same in float; the best of a few
  // calls.
  double time_ratio = 1.0;
  // Otherwise LibTorch refuses such convolutions, and the rest means nothing.
  bool is_available = true;

  // CPUs with bfloat16 support take 0.4 to 1.1 times as long as in float, those without 10 to 100 times, so
  // noise does not decide.
  bool is_useful() const { return is_available && exact_sums && time_ratio < kMaxRatio; }

  // Too slow, but so little that another measurement may find it useful.
  bool is_borderline() const {
    return is_available && exact_sums && time_ratio >= kMaxRatio && time_ratio <= 2.0 * kMaxRatio;
  }

  static constexpr double kMaxRatio = 3.0;

  // "take 57 times as long as in float and round each sum to 8 bits"
  std::string words() const;
};

// Computes a small convolution of ones, whose results are known, and takes its time.
BFloat16Cost measure_bfloat16(torch::MemoryFormat format);

}  // namespace renorm::models
