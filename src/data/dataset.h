// A data set for training: numbered examples with labels, loaded as standardized tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/byte_images.h"
#include "data/dataset_kinds.h"
#include "data/description.h"

namespace renorm::data {

struct Batch {
  torch::Tensor images;  // float [n, channels, height, width], standardized
  torch::Tensor labels;  // int64 [n]
  int64_t skipped = 0;   // images that could not be read: replaced by others of their class, or left out
};

// One example to load. `ticket` is its number in the run. Augmentation depends on (index, ticket) alone.
struct Draw {
  int64_t index;
  uint64_t ticket;
};

// The randomness of an example depends on its numbers alone.
RandomStream stream_for(uint64_t seed, const Draw& draw);

// Thread-safe: several threads may load at once.
class Split {
 public:
  virtual ~Split() = default;
  virtual const std::vector<int64_t>& labels() const = 0;  // one per example
  // One image per draw; a split for evaluation leaves out bad images that it skips. Throws DataError.
  virtual Batch load(const std::vector<Draw>& draws) const = 0;
  // Height x width of an image, from which the evaluation chooses its batch size.
  virtual int64_t pixels() const = 0;
  // Whether loading should be done ahead, while the net computes.
  virtual bool is_slow() const { return false; }
  int64_t size() const { return static_cast<int64_t>(labels().size()); }
};

struct Dataset {
  Description description;
  std::shared_ptr<const Split> train;
  std::shared_ptr<const Split> test;
  std::shared_ptr<const Split> plain_train;  // the training images without augmentation
};

// A spec of any of dataset_kinds(). Throws UsageError, MissingInputError, DataError.
Dataset open_dataset(const std::string& spec, const OpenOptions& options);
// Images that are already in memory, standardized by the moments of the training images. `seed` is that of
// training images that are painted anew for each draw.
Dataset in_memory(ByteDataset data, uint64_t seed = 1);
Description describe(const ByteDataset& data);

}  // namespace renorm::data
