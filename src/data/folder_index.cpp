#include "data/folder_index.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/descriptor.h"
#include "base/errors.h"
#include "base/text.h"
#include "data/packed_file.h"

namespace renorm::data {
namespace {

constexpr char kTrain[] = "train";
constexpr char kVal[] = "val";

// Device and inode: the same for every path to a folder.
using FolderIdentity = std::pair<uint64_t, uint64_t>;
using Names = std::vector<std::string>;

struct Listing {
  FolderIdentity identity;
  Names folders;       // sorted by bytes; links to folders are folders
  Names images;        // sorted by bytes; links to files are files
  int64_t others = 0;  // files that are not images, and links that lead nowhere
};

// "a" and "b" as "a/b"; either may be "".
std::string joined(const std::string& folder, std::string_view name) {
  if (folder.empty()) return std::string(name);
  std::string path = folder;
  if (name.empty()) return path;
  if (path.back() != '/') path += '/';
  return path.append(name);
}

// Ends in .jpg, .jpeg or .png in any case.
bool is_image_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string ending(name.substr(dot + 1));
  for (char& letter : ending) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return ending == "jpg" || ending == "jpeg" || ending == "png";
}

[[noreturn]] void refuse(const std::string& path, int error) {
  const std::string sentence = failure("list the folder", path, error);
  if (error == EIO || error == ENOMEM || error == EMFILE || error == ENFILE) throw IoError(sentence);
  throw MissingInputError(sentence);
}

enum class EntryKind { kFolder, kFile, kOther };

EntryKind kind_of(int folder, const dirent& entry) {
  if (entry.d_type == DT_DIR) return EntryKind::kFolder;
  if (entry.d_type == DT_REG) return EntryKind::kFile;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return EntryKind::kOther;
  struct stat status = {};
  if (::fstatat(folder, entry.d_name, &status, 0) != 0) return EntryKind::kOther;
  if (S_ISDIR(status.st_mode)) return EntryKind::kFolder;
  return S_ISREG(status.st_mode) ? EntryKind::kFile : EntryKind::kOther;
}

struct CloseFolder {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

// Hidden names, which start with a dot, are left out.
Listing list(const std::string& path) {
  Descriptor descriptor(open_file(path, O_RDONLY | O_DIRECTORY));
  struct stat status = {};
  if (!descriptor.valid() || ::fstat(descriptor.get(), &status) != 0) refuse(path, errno);
  const std::unique_ptr<DIR, CloseFolder> stream(::fdopendir(descriptor.get()));
  if (stream == nullptr) refuse(path, errno);
  const int folder = descriptor.release();  // the stream closes it
  Listing listing;
  listing.identity = {status.st_dev, status.st_ino};
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());  // NOLINT(concurrency-mt-unsafe): a stream of its own
    if (entry == nullptr) break;
    if (entry->d_name[0] == '.') continue;
    const EntryKind kind = kind_of(folder, *entry);
    if (kind == EntryKind::kFolder) {
      listing.folders.emplace_back(entry->d_name);
    } else if (kind == EntryKind::kFile && is_image_name(entry->d_name)) {
      listing.images.emplace_back(entry->d_name);
    } else {
      ++listing.others;
    }
  }
  if (errno != 0) refuse(path, errno);
  std::sort(listing.folders.begin(), listing.folders.end());
  std::sort(listing.images.begin(), listing.images.end());
  return listing;
}

using Seen = std::set<FolderIdentity>;

// The images in `folder` and all below it, relative to it. Folders in `seen` are not entered, which ends
// loops of links; nothing if `folder` itself is one of them.
std::optional<Names> images_below(const std::string& folder, Seen seen, int64_t* others) {
  Names images;
  Names waiting{""};  // relative to `folder`; the last is the next
  while (!waiting.empty()) {
    const std::string below = std::move(waiting.back());
    waiting.pop_back();
    const Listing listing = list(joined(folder, below));
    const bool entered = seen.insert(listing.identity).second;
    if (!entered && below.empty()) return std::nullopt;
    if (!entered) continue;
    *others += listing.others;
    for (const std::string& name : listing.images) images.push_back(joined(below, name));
    for (auto name = listing.folders.rbegin(); name != listing.folders.rend(); ++name) {
      waiting.push_back(joined(below, *name));
    }
  }
  return images;
}

// Calls use(name, images) for each class in `folder`; `top` is the identity of the folder that was opened.
template <typename Use>
void for_each_class(const std::string& folder, const FolderIdentity& top, int64_t* others, Use&& use) {
  const Listing listing = list(folder);
  *others += listing.others + static_cast<int64_t>(listing.images.size());  // images of no class
  bool any = false;
  for (const std::string& name : listing.folders) {
    const std::string path = joined(folder, name);
    const std::optional<Names> images = images_below(path, {top, listing.identity}, others);
    if (!images) {
      ++*others;  // a link to the folder that holds it
      continue;
    }
    if (images->empty()) {
      throw DataError(
          fmt::format("'{}': an empty class; it holds no .jpg, .jpeg or .png file", printable(path)));
    }
    any = true;
    use(name, *images);
  }
  if (any) return;
  throw DataError(
      fmt::format("'{}': holds no folders of images; make one for each class", printable(folder)));
}

int64_t label_of(const FolderIndex& index, const std::string& name) {
  const auto place = std::lower_bound(index.classes.begin(), index.classes.end(), name);
  if (place != index.classes.end() && *place == name) return place - index.classes.begin();
  throw DataError(fmt::format("'{}': a class that is not in '{}'", printable(joined(index.val_folder, name)),
                              printable(index.train_folder)));
}

// Each name goes to the side that its hash determines; if none is left for training, the one with the largest
// hash is.
void split_class(const std::string& name, const Names& images, double fraction, FolderIndex* index) {
  const auto label = static_cast<int64_t>(index->classes.size()) - 1;
  double max = -1.0;
  for (const std::string& image : images) max = std::max(max, val_hash(joined(name, image)));
  const double border = std::min(fraction, max);
  for (const std::string& image : images) {
    (val_hash(joined(name, image)) < border ? index->val : index->train).add(image, label);
  }
}

struct Layout {
  bool train;
  bool val;
};

Layout layout_of(const std::string& dir, const Names& folders, double fraction) {
  const auto has = [&](const char* name) { return std::binary_search(folders.begin(), folders.end(), name); };
  const Layout layout{has(kTrain), has(kVal)};
  const std::string shown = printable(dir);
  if (layout.val && !layout.train) throw DataError(fmt::format("'{}': has a folder val but no train", shown));
  if (layout.val && fraction > 0.0) {
    throw UsageError(
        fmt::format("'{}': has a folder val; a fraction for validation is for folders without it", shown));
  }
  if (!layout.val && fraction == 0.0) {
    throw UsageError(
        fmt::format("'{}': has no folder val beside a folder train; to split one folder of classes, set "
                    "--val-fraction",
                    shown));
  }
  return layout;
}

}  // namespace

std::string_view ImageList::name(int64_t index) const {
  const auto place = static_cast<size_t>(index);
  const uint64_t begin = place == 0 ? 0 : ends_[place - 1];
  return std::string_view(names_).substr(begin, ends_[place] - begin);
}

void ImageList::add(std::string_view name, int64_t label) {
  names_.append(name);
  ends_.push_back(names_.size());
  labels_.push_back(label);
}

std::string FolderIndex::train_path(int64_t index) const {
  const auto label = static_cast<size_t>(train.labels()[static_cast<size_t>(index)]);
  return joined(joined(train_folder, classes[label]), train.name(index));
}

std::string FolderIndex::val_path(int64_t index) const {
  const auto label = static_cast<size_t>(val.labels()[static_cast<size_t>(index)]);
  return joined(joined(val_folder, classes[label]), val.name(index));
}

FolderIndex open_folder(const std::string& dir, double val_fraction) {
  if (!(val_fraction >= 0.0 && val_fraction < 1.0)) {
    throw UsageError(fmt::format("the fraction for validation must be at least 0 and below 1, got {}",
                                 shortest(val_fraction)));
  }
  check_data_folder(dir);
  const Listing top = list(dir);
  const Layout layout = layout_of(dir, top.folders, val_fraction);
  FolderIndex index;
  index.train_folder = layout.train ? joined(dir, kTrain) : dir;
  index.val_folder = layout.val ? joined(dir, kVal) : index.train_folder;
  for_each_class(index.train_folder, top.identity, &index.others,
                 [&](const std::string& name, const Names& images) {
                   index.classes.push_back(name);
                   split_class(name, images, val_fraction, &index);
                 });
  if (layout.val) {
    for_each_class(index.val_folder, top.identity, &index.others,
                   [&](const std::string& name, const Names& images) {
                     const int64_t label = label_of(index, name);
                     for (const std::string& image : images) index.val.add(image, label);
                   });
  } else if (index.val.size() == 0) {
    throw DataError(
        fmt::format("'{}': none of its {} images fell into the fraction {} for validation; raise it",
                    printable(index.train_folder), index.train.size(), shortest(val_fraction)));
  }
  return index;
}

// FNV-1a, whose high bits are then mixed as splitmix64 does: the names differ mostly at their ends.
double val_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3U;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
  hash ^= hash >> 31;
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

}  // namespace renorm::data
