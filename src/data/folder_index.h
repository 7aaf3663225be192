// Images in a folder: their files, classes and split. No image is opened.
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
  // Relative to the folder of the class, with slashes if it lies deeper.
  std::string_view name(int64_t index) const;
  void add(std::string_view name, int64_t label);

 private:
  std::string names_;
  std::vector<uint64_t> ends_;
  std::vector<int64_t> labels_;
};

struct FolderIndex {
  std::vector<std::string> classes;  // sorted by bytes; names may hold any bytes
  ImageList train;
  ImageList val;
  std::string train_folder;  // holds the classes' folders
  std::string val_folder;
  int64_t others = 0;  // files without an image's ending, and links that lead nowhere or back

  std::string train_path(int64_t index) const;
  std::string val_path(int64_t index) const;
};

// Lists DIR/train/CLASS and DIR/val/CLASS if `val_fraction` is 0. Otherwise lists DIR/train/CLASS, or
// DIR/CLASS if there is no folder train, and splits off that fraction of the images, 0 <= x < 1, for
// validation. Images are files, also in deeper folders, that end in .jpg, .jpeg or .png in any case. Links
// are followed; within a class each folder is entered once. Hidden files and folders are passed over, other
// files are counted. Files are sorted by bytes: those of a folder first, then its folders.
//
// The split goes by a hash of "CLASS/NAME" (val_hash), so other files do not affect the side of a file,
// and a larger fraction contains the smaller one. A class keeps at least one image for training.
//
// Throws UsageError (a fraction and a folder val, or neither), MissingInputError (no such folder, or one
// that may not be read), DataError (no classes, a class without images, a class in val only, nothing for
// validation), IoError.
FolderIndex open_folder(const std::string& dir, double val_fraction);

// The hash of a name, 0 <= x < 1; the image is for validation if it is below the fraction. The same on every
// machine and in every version.
double val_hash(std::string_view name);

}  // namespace renorm::data
