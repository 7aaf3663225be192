// A data set as training sees it: numbered examples with labels, loaded as standardised tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/byte_images.h"
#include "data/description.h"
#include "data/folder_index.h"
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
  // Height x width of an image, for those who decide how many are computed at once.
  virtual int64_t pixels() const = 0;
  // Whether loading takes so long that it should be done ahead, while the net computes.
  virtual bool is_slow() const { return false; }
  int64_t size() const { return static_cast<int64_t>(labels().size()); }
};

struct Dataset {
  Description description;
  std::shared_ptr<const Split> train;
  std::shared_ptr<const Split> test;
  std::shared_ptr<const Split> plain_train;  // the training images as evaluation shows images
};

enum class OnBadImage { kFail, kSkip };

// For people's own images.
struct PictureOptions {
  double val_fraction = 0.0;   // as in FolderOptions
  TransformOptions transform;  // size is that of the images
  OnBadImage on_bad_image = OnBadImage::kFail;
  uint64_t seed = 1;  // of what is random about training images
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
// The same as bytes, for looking at. UsageError for "folder:DIR".
ByteDataset open_byte_dataset(const std::string& spec, const OpenOptions& options);
// The files of "folder:DIR", for looking at; nothing for other data sets, which are not opened.
std::optional<FolderIndex> open_folder_index(const std::string& spec, const OpenOptions& options);

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
