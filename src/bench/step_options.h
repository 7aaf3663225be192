// What `renorm bench step` compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace renorm::bench {

// The norms that can be compared, in the order of the table.
constexpr const char* kStepNorms[] = {"renorm", "native", "batchnorm", "tensor-ops"};

struct StepOptions {
  std::string model = "inception-small";
  std::string data;                    // "": strokes, or random images for nets that are made for large ones
  std::string memory_format = "both";  // nchw, channels-last, both
  std::vector<std::string> norms;      // of kStepNorms; empty: all. native always takes part
  int64_t minibatch = 32;
  int64_t workers = 1;
  int threads = 1;
  int64_t steps = 0;  // timed steps of each; 0: 30, or 5 for nets that are made for large images
  std::string json;
};

}  // namespace renorm::bench
