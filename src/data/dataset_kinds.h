// The kinds of data sets, and how each is opened: as bytes in memory, or as the names of its files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/choice.h"
#include "data/byte_images.h"
#include "data/folder_index.h"
#include "data/image_transform.h"

namespace renorm::data {

enum class OnBadImage { kFail, kSkip };

// For images in a folder.
struct ImageOptions {
  double val_fraction = 0.0;   // as in open_folder
  TransformOptions transform;  // size is that of the images
  OnBadImage on_bad_image = OnBadImage::kFail;
  uint64_t seed = 1;  // of the augmentation
};

struct OpenOptions {
  std::string cache;  // folder; cache_folder() if empty
  int threads = 1;    // that generate or decode images
  ImageOptions images;
  // Called on the calling thread. An exception ends the work and is passed on.
  std::function<void(int64_t done, int64_t total)> progress = [](int64_t, int64_t) {};
};

// Sizes that follow from a spec alone.
struct KnownSizes {
  std::optional<int64_t> labels;
  std::optional<int64_t> train_per_label;  // images
  std::optional<int64_t> test_per_label;
};

// A spec is "NAME" or "NAME:REST". The functions take REST and throw UsageError if it is invalid.
struct DatasetKind {
  std::string name;
  std::string usage;  // "mnist:DIR"
  std::string help;
  bool needs_folder;
  KnownSizes (*sizes)(const std::string& rest);
  // For images that are kept in memory, or for those that stay in their files.
  using OpenBytes = ByteDataset (*)(const std::string& rest, const OpenOptions& options);
  using OpenFiles = FolderIndex (*)(const std::string& rest, const OpenOptions& options);
  std::variant<OpenBytes, OpenFiles> open;
};
const std::vector<DatasetKind>& dataset_kinds();
// "strokes[:OPTIONS], mnist:DIR, ... or folder:DIR", for help texts.
std::string dataset_forms();

// Throws UsageError unless the spec names a kind and its options are valid. Opens nothing.
KnownSizes known_sizes(const std::string& spec);

// The number of labels. Images in a folder are listed for it, nothing else is opened. Throws UsageError if
// the spec is invalid, and as open_folder does.
int64_t label_count(const std::string& spec, const OpenOptions& options);

// The images as bytes. Throws MissingInputError, DataError, and UsageError for an invalid spec or one whose
// images stay in their files.
ByteDataset open_byte_dataset(const std::string& spec, const OpenOptions& options);
// The files of "folder:DIR"; nothing for other data sets, which are not opened. Throws as open_byte_dataset.
std::optional<FolderIndex> open_folder_index(const std::string& spec, const OpenOptions& options);

}  // namespace renorm::data

template <>
struct renorm::Choices<renorm::data::OnBadImage> {
  static constexpr const char* kWhat = "on-bad-image action";
  static constexpr Choice<data::OnBadImage> kAll[] = {
      {data::OnBadImage::kFail, "fail"},
      {data::OnBadImage::kSkip, "skip",
       "take another image of the class, count it, give up above 1 % of the files"}};
};
