// A data set as training sees it: numbered examples with labels, loaded as standardised tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/byte_images.h"
#include "data/description.h"
#include "data/image_transform.h"

namespace renorm::data {

struct Batch {
  torch::Tensor images;  // float [n, channels, height, width], standardised
  torch::Tensor labels;  // int64 [n]
  int64_t skipped = 0;   // images that could not be read: replaced by others of their class, or left out
};

// One example to load. `ticket` numbers it in the run: whatever is random about loading it (augmentation)
// depends on (index, ticket) alone.
struct Draw {
  int64_t index;
  uint64_t ticket;
};

// Thread-safe: several threads may load at once.
class Split {
 public:
  virtual ~Split() = default;
  virtual const std::vector<int64_t>& labels() const = 0;  // one an example
  // As many images as draws; a split for evaluation leaves out those it skips. Throws DataError.
  virtual Batch load(const std::vector<Draw>& draws) const = 0;
  // Whether loading takes so long that it should be done ahead, while the net computes.
  virtual bool is_slow() const { return false; }
  int64_t size() const { return static_cast<int64_t>(labels().size()); }
};

struct Dataset {
  Description description;
  std::shared_ptr<const Split> train;
  std::shared_ptr<const Split> test;
};

enum class OnBadImage { kFail, kSkip };

// For people's own images.
struct PictureOptions {
  double val_fraction = 0.0;   // as in FolderOptions
  TransformOptions transform;  // size is that of the images
  OnBadImage on_bad_image = OnBadImage::kFail;
};

struct OpenOptions {
  std::string cache;  // folder; cache_folder() if empty
  int threads = 1;    // that make or decode images
  PictureOptions pictures;
  std::function<void(int64_t done, int64_t total)> progress = [](int64_t, int64_t) {};
};

// "strokes[:OPTIONS]", "mnist:DIR", "fashion-mnist:DIR", "cifar10:DIR", "cifar100:DIR",
// "folder:DIR".
// Throws UsageError, MissingInputError, DataError.
Dataset open_dataset(const std::string& spec, const OpenOptions& options);
// The same as bytes, for looking at.
ByteDataset open_byte_dataset(const std::string& spec, const OpenOptions& options);

// The same for images that are already in memory, standardised by the moments of the training images.
Dataset in_memory(ByteDataset data);
Description describe(const ByteDataset& data);

// Kinds of specs with a line of help each.
struct DatasetKind {
  std::string name;
  std::string usage;  // "mnist:DIR"
  std::string help;
};
const std::vector<DatasetKind>& dataset_kinds();

}  // namespace renorm::data
