// People's own images: which files a folder holds, of which classes, for training or for validation. No
// torch, and no image is opened.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace renorm::data {

// Many names in little memory.
class ImageList {
 public:
  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  const std::vector<int64_t>& labels() const { return labels_; }
  // Below the folder of the class, with slashes if it lies deeper.
  std::string_view name(int64_t index) const;
  void add(std::string_view name, int64_t label);

 private:
  std::string names_;
  std::vector<uint64_t> ends_;
  std::vector<int64_t> labels_;
};

struct FolderIndex {
  std::vector<std::string> classes;  // sorted by bytes; names are bytes of any kind
  ImageList train;
  ImageList val;
  std::string train_folder;  // holds the classes' folders
  std::string val_folder;
  int64_t others = 0;  // files that are not images by their name, and links that lead nowhere or back
  int64_t listed = 0;  // folders that were read; the others did not change since the index was cached

  std::string train_path(int64_t index) const;
  std::string val_path(int64_t index) const;
};

struct FolderOptions {
  // How much of the training images becomes validation, 0 <= x < 1; 0: there is a folder val.
  double val_fraction = 0.0;
  std::string cache;  // folder for the cache; "": none
  // A folder that changed less than this before it was listed is listed again next time.
  int64_t settle_ns = 2'000'000'000;
};

// DIR/train/CLASS and DIR/val/CLASS, or, split by `val_fraction`, DIR/train/CLASS or DIR/CLASS alone. Images
// are files, also in deeper folders, that end in .jpg, .jpeg or .png in any case. Links are followed, within
// a class into each folder once. Hidden files and folders are passed over, other files are counted.
//
// The split goes by a hash of "CLASS/NAME" (val_hash), so other files do not change where a file belongs,
// and a greater fraction contains the smaller one. A class keeps at least one image for training.
//
// The cache holds the names in each folder with its inode and the time when it changed. Adding, removing
// and renaming files changes their folder, which then is read again; all others are only looked at. What is
// inside of a file is no part of the index: it is read anew each time. Where a link to a file leads counts as
// it was when its folder was read. A cache that is damaged, or cannot be
// written, is no error. `val_fraction` is no part of it.
//
// Throws UsageError (a fraction and a folder val, or neither), MissingInputError (no such folder, or one
// that may not be read), DataError (no classes, a class without images, a class in val only, nothing for
// validation), IoError.
FolderIndex open_folder(const std::string& dir, const FolderOptions& options);

// Where a name lies between 0 and 1; it belongs to validation if that is below the fraction. The same on
// every machine and in every version.
double val_hash(std::string_view name);

}  // namespace renorm::data
