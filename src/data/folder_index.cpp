#include "data/folder_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "data/folder_cache.h"
#include "data/folder_tree.h"
#include "data/packed_file.h"

namespace renorm::data {
namespace {

constexpr char kTrain[] = "train";
constexpr char kVal[] = "val";

// A class while it is put together.
struct ClassImages {
  std::string name;
  Names images;
};

std::string absolute_path(const std::string& dir) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(dir, error);
  return error ? dir : path.string();
}

// One folder of classes; `split` is "train", "val" or "".
std::vector<ClassImages> read_classes(FolderTree* tree, const std::string& split, int64_t* others) {
  std::set<FolderIdentity> above;
  FolderIdentity identity;
  tree->list("", &identity);
  above.insert(identity);
  const FolderListing& listing = tree->list(split, &identity);
  above.insert(identity);
  *others += listing.others;
  for_each_name(listing.images, [&](std::string_view) { ++*others; });  // of no class
  std::vector<ClassImages> classes;
  for_each_name(listing.folders, [&](std::string_view name) {
    ClassImages images{std::string(name), {}};
    std::set<FolderIdentity> seen = above;
    const std::string folder = joined(split, name);
    if (!tree->images_below(folder, &seen, &images.images, others)) {
      ++*others;  // a link to the folder that holds it
      return;
    }
    if (images.images.empty()) {
      throw DataError(fmt::format("'{}': an empty class; it holds no .jpg, .jpeg or .png file",
                                  printable(joined(tree->root(), folder))));
    }
    classes.push_back(std::move(images));
  });
  if (!classes.empty()) return classes;
  throw DataError(fmt::format("'{}': holds no folders of images; make one for each class",
                              printable(joined(tree->root(), split))));
}

void add_all(const Names& names, int64_t label, ImageList* list) {
  for_each_name(names, [&](std::string_view name) { list->add(name, label); });
}

void add_val(FolderTree* tree, FolderIndex* index) {
  index->val_folder = joined(tree->root(), kVal);
  for (const ClassImages& one : read_classes(tree, kVal, &index->others)) {
    const auto place = std::lower_bound(index->classes.begin(), index->classes.end(), one.name);
    if (place == index->classes.end() || *place != one.name) {
      throw DataError(fmt::format("'{}': a class that is not in '{}'",
                                  printable(joined(index->val_folder, one.name)),
                                  printable(index->train_folder)));
    }
    add_all(one.images, place - index->classes.begin(), &index->val);
  }
}

// Each name goes to the side that its hash says; if none stays for training, the one with the greatest does.
void split_class(const ClassImages& one, int64_t label, double fraction, FolderIndex* index) {
  double greatest = -1.0;
  for_each_name(one.images, [&](std::string_view name) {
    greatest = std::max(greatest, val_hash(joined(one.name, name)));
  });
  const double border = std::min(fraction, greatest);
  for_each_name(one.images, [&](std::string_view name) {
    const bool val = val_hash(joined(one.name, name)) < border;
    (val ? index->val : index->train).add(name, label);
  });
}

void split_all(const std::vector<ClassImages>& classes, double fraction, FolderIndex* index) {
  index->val_folder = index->train_folder;
  for (size_t label = 0; label < classes.size(); ++label) {
    split_class(classes[label], static_cast<int64_t>(label), fraction, index);
  }
  if (index->val.size() > 0) return;
  throw DataError(
      fmt::format("'{}': none of its {} images fell into the fraction {} for validation; raise it",
                  printable(index->train_folder), index->train.size(), shortest(fraction)));
}

struct Layout {
  bool train;
  bool val;
};

Layout layout_of(FolderTree* tree, double fraction) {
  FolderIdentity identity;
  Layout layout{false, false};
  for_each_name(tree->list("", &identity).folders, [&](std::string_view name) {
    layout.train = layout.train || name == kTrain;
    layout.val = layout.val || name == kVal;
  });
  const std::string dir = printable(tree->root());
  if (layout.val && !layout.train) throw DataError(fmt::format("'{}': has a folder val but no train", dir));
  if (layout.val && fraction > 0.0) {
    throw UsageError(
        fmt::format("'{}': has a folder val; a fraction for validation is for folders without it", dir));
  }
  if (!layout.val && fraction == 0.0) {
    throw UsageError(
        fmt::format("'{}': has no folder val beside a folder train; to split one folder of classes, say with "
                    "--val-fraction how much is for validation",
                    dir));
  }
  return layout;
}

FolderIndex build(FolderTree* tree, double fraction) {
  const Layout layout = layout_of(tree, fraction);
  const std::string split = layout.train ? kTrain : "";
  FolderIndex index;
  index.train_folder = joined(tree->root(), split);
  const std::vector<ClassImages> classes = read_classes(tree, split, &index.others);
  for (const ClassImages& one : classes) index.classes.push_back(one.name);
  if (!layout.val) {
    split_all(classes, fraction, &index);
    return index;
  }
  for (size_t label = 0; label < classes.size(); ++label) {
    add_all(classes[label].images, static_cast<int64_t>(label), &index.train);
  }
  add_val(tree, &index);
  return index;
}

// With what is known; puts what it finds into the cache.
FolderIndex build_from(const std::string& dir, FolderListings known, const FolderOptions& options,
                       const std::string& root) {
  FolderTree tree(dir, std::move(known), options.settle_ns);
  FolderIndex index = build(&tree, options.val_fraction);
  index.listed = tree.listed();
  if (!options.cache.empty() && tree.differs()) write_folder_cache(root, options.cache, tree.listings());
  return index;
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

FolderIndex open_folder(const std::string& dir, const FolderOptions& options) {
  if (!(options.val_fraction >= 0.0 && options.val_fraction < 1.0)) {
    throw UsageError(fmt::format("the fraction for validation must be at least 0 and below 1, got {}",
                                 shortest(options.val_fraction)));
  }
  check_data_folder(dir);
  const std::string root = absolute_path(dir);
  if (options.cache.empty()) return build_from(dir, {}, options, root);
  FolderListings known = read_folder_cache(root, options.cache).value_or(FolderListings{});
  if (known.empty()) return build_from(dir, {}, options, root);
  try {
    return build_from(dir, std::move(known), options, root);
  } catch (const std::runtime_error&) {
    // The reason may be in the cache: a link that its folder still lists, but that leads nowhere by now.
    return build_from(dir, {}, options, root);
  }
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
