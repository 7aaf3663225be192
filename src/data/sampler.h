// The examples of a training step: a pure function of (seed, step), so a resumed run needs no sampler state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace renorm::data {

struct SamplerSpec {
  enum class Kind { kIid, kLabels, kBlocks };
  Kind kind = Kind::kIid;
  int64_t block = 0;      // B: labels in a block
  int64_t labels = 0;     // L: labels in a minibatch
  int64_t images = 0;     // K: images per label
  bool distinct = false;  // L different labels

  int64_t minibatch() const { return labels * images; }  // 0 for iid: any
};

// "iid", "labels:LxK", "labels:LxK:distinct", "blocks:BxLxK". Throws UsageError.
SamplerSpec parse_sampler(const std::string& text);
std::string to_string(const SamplerSpec& spec);

struct StepShape {
  int64_t workers = 1;       // minibatches per step
  int64_t minibatch = 32;    // examples in one
  int64_t microbatch = 32;   // examples normalized together; divides minibatch
  bool split_pairs = false;  // the K images of a label go to K different microbatches of their minibatch
  bool deal = false;         // the step's images are dealt round-robin over its minibatches

  int64_t examples() const { return workers * minibatch; }
};

// The examples of a step in the order in which they are normalized: minibatch after minibatch, microbatch
// after microbatch.
//   iid     shuffled epochs one after the other, cut into steps; an epoch's last step goes on with the next
//           epoch
//   labels  L labels drawn with replacement (or different), K different images of each draw, one label after
//           the other
//   blocks  a minibatch draws its labels, with replacement, from one of the fixed blocks of B consecutive
//           labels; the last block may be smaller and is then drawn less often: labels are equally likely
// split_pairs takes the labels of a minibatch `microbatch` at a time; the k-th image of each of them goes
// into the k-th of K microbatches. deal moves example t * workers + j of the step to place t of minibatch j.
class Sampler {
 public:
  // `labels` has one entry per example. Throws UsageError if shape and spec contradict each other, DataError
  // if the data set is too small (fewer labels than required, a label with fewer than K images, no examples).
  Sampler(const SamplerSpec& spec, const StepShape& shape, const std::vector<int64_t>& labels,
          int64_t classes, uint64_t seed);
  ~Sampler();
  Sampler(Sampler&&) noexcept;

  // Not thread-safe: iid caches the order of an epoch.
  std::vector<int64_t> step(int64_t step);
  // The number of passes over the data in `steps` steps.
  double epochs(int64_t steps) const;

 private:
  struct Source;
  std::unique_ptr<Source> source_;
};

}  // namespace renorm::data
