// Random numbers with the same bits on every machine, without state to save.
#pragma once

#include <cstdint>
#include <vector>

namespace renorm {

// The purpose of a stream. Streams of one seed that differ in purpose or index are independent.
enum class Purpose : uint64_t {
  kStrokeClass = 1,
  kStrokeTrain = 2,
  kStrokeTest = 3,
  kEpoch = 4,      // index = epoch
  kMinibatch = 5,  // index = step
  kModel = 6,
  kDropout = 7,  // index = number of the example in the run
  kEvaluation = 8,
  kAugment = 9,  // index = number of the example in the run
  kBench = 10,
  kOverlayTrain = 11,  // index = number of the image in its split
  kOverlayTest = 12,
  kProbe = 13,  // index = number of the probed image
};

// xoshiro256** started from a hash of (seed, purpose, index).
// https://prng.di.unimi.it
class RandomStream {
 public:
  RandomStream(uint64_t seed, Purpose purpose, uint64_t index = 0);

  uint64_t bits();
  int64_t below(int64_t n);  // 0 .. n - 1, each equally likely; n > 0
  double uniform();          // [0, 1), 53 bits
  double uniform(double low, double high);
  double normal();  // mean 0, standard deviation 1; only IEEE basic operations, so the same everywhere

 private:
  uint64_t state_[4];
  double spare_ = 0.0;
  bool has_spare_ = false;
};

// 0 .. n - 1 in random order.
std::vector<int64_t> permutation(int64_t n, RandomStream& stream);

// `count` different numbers from 0 .. n - 1 in random order; count <= n. Time and memory depend on `count`
// only.
std::vector<int64_t> choose(int64_t count, int64_t n, RandomStream& stream);

}  // namespace renorm
