// Batches of a split in order, loaded ahead if the split is slow.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/dataset.h"

namespace renorm::data {

// The examples of the next batch; empty after the last.
using NextDraws = std::function<std::vector<Draw>()>;

struct DrawnBatch {
  std::vector<Draw> draws;
  Batch batch;
};

// A split that is_slow() is loaded by a thread of its own, at most kAhead batches ahead, which bounds memory.
// The batches and their order do not depend on it.
class BatchStream {
 public:
  static constexpr size_t kAhead = 2;

  // `split` must live as long as the stream. `next_draws` is called by the thread that calls next().
  BatchStream(const Split& split, NextDraws next_draws);
  ~BatchStream();  // waits for the batch that is being loaded
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  // Nothing after the last. Throws what loading this batch threw; the stream is unusable then.
  std::optional<DrawnBatch> next();

 private:
  class Loader;

  void request_ahead();

  const Split& split_;
  NextDraws next_draws_;
  std::unique_ptr<Loader> loader_;  // null if the split is not slow
  bool ended_ = false;
};

}  // namespace renorm::data
