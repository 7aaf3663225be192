// The sum of the gradients over all processes, computed while the backward pass still runs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/group.h"
#include "train/tensors.h"

namespace renorm::train {

// The gradients of the parameters become views of a few buffers. A buffer is summed over the processes as
// soon as the last pass of a step has completed all its gradients. Parameters are taken from the last to the
// first, which is about the order in which a backward pass completes them.
class GradientSum {
 public:
  // `buffer_bytes` is the size of a buffer; 0: a quarter of all gradients within limits, so that most sums
  // run during the backward pass and few small ones are made.
  GradientSum(dist::Group& group, std::vector<NamedTensor> parameters, int64_t buffer_bytes = 0);
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  // Before the first pass of a step: all gradients are 0.
  void begin();
  // Before the backward pass of the last pass of a step.
  void expect_last_pass();
  // After it, or instead of it if this process failed: starts the sums that are still missing. A failure is
  // part of the last one.
  void finish_backward(bool failed);
  // Waits for all sums. Returns whether a process failed.
  bool wait();

 private:
  struct Buffer;
  class Hook;

  bool fits(const Buffer& buffer, const torch::Tensor& parameter, int64_t buffer_bytes) const;
  void completed(size_t parameter);
  void start_complete_buffers(bool all);

  dist::Group& group_;
  std::vector<NamedTensor> parameters_;
  std::vector<Buffer> buffers_;
  std::vector<size_t> buffer_of_;             // by parameter
  std::vector<std::shared_ptr<void>> nodes_;  // to which the hooks are attached
  std::shared_ptr<GradientSum*> self_;        // for the hooks; points to null once this object is gone
  bool is_last_pass_ = false;
  size_t started_ = 0;  // buffers, in order
};

}  // namespace renorm::train
