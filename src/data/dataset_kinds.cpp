#include "data/dataset_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/strokes.h"

namespace renorm::data {
namespace {

KnownSizes strokes_sizes(const std::string& rest) {
  const StrokesOptions options = parse_strokes(rest);
  return {options.classes, options.train, options.test};
}

KnownSizes ten_labels(const std::string&) { return {10, std::nullopt, std::nullopt}; }
KnownSizes hundred_labels(const std::string&) { return {100, std::nullopt, std::nullopt}; }
KnownSizes nothing_known(const std::string&) { return {}; }

ByteDataset open_strokes(const std::string& rest, const OpenOptions& options) {
  const std::string cache = options.cache.empty() ? cache_folder() : options.cache;
  return cached_strokes(parse_strokes(rest), cache, options.threads, options.progress);
}

ByteDataset open_mnist(const std::string& rest, const OpenOptions&) {
  return read_mnist(rest, mnist_classes());
}

ByteDataset open_fashion_mnist(const std::string& rest, const OpenOptions&) {
  return read_mnist(rest, fashion_mnist_classes());
}

ByteDataset open_cifar10(const std::string& rest, const OpenOptions&) { return read_cifar10(rest); }

ByteDataset open_cifar100(const std::string& rest, const OpenOptions&) { return read_cifar100(rest); }

FolderIndex open_image_folder(const std::string& rest, const OpenOptions& options) {
  return open_folder(rest, options.images.val_fraction);
}

const DatasetKind& kind_named(const std::string& name) {
  std::vector<std::string> names;
  for (const DatasetKind& kind : dataset_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw UsageError(unknown_name("data set", name, names));
}

struct Found {
  const DatasetKind& kind;
  std::string rest;
};

Found find_kind(const std::string& spec) {
  const auto [name, rest] = split_spec(spec);
  const DatasetKind& kind = kind_named(name);
  if (kind.needs_folder && rest.empty()) {
    throw UsageError(fmt::format("data set '{}' needs the folder of its files: {}", kind.name, kind.usage));
  }
  return {kind, rest};
}

}  // namespace

const std::vector<DatasetKind>& dataset_kinds() {
  static const std::vector<DatasetKind> kinds{
      {"strokes", strokes_usage(), "drawn characters, generated here", false, strokes_sizes, open_strokes},
      {"mnist", "mnist:DIR", "the four idx files of MNIST, plain or .gz", true, ten_labels, open_mnist},
      {"fashion-mnist", "fashion-mnist:DIR", "the four idx files of Fashion-MNIST, plain or .gz", true,
       ten_labels, open_fashion_mnist},
      {"cifar10", "cifar10:DIR", "the binary version of CIFAR-10", true, ten_labels, open_cifar10},
      {"cifar100", "cifar100:DIR", "the binary version of CIFAR-100 with its 100 fine labels", true,
       hundred_labels, open_cifar100},
      {"folder", "folder:DIR",
       "your own .jpg and .png files: DIR/train/CLASS and DIR/val/CLASS, or DIR/CLASS with --val-fraction",
       true, nothing_known, open_image_folder},
  };
  return kinds;
}

std::string dataset_forms() {
  std::vector<std::string> forms;
  for (const DatasetKind& kind : dataset_kinds()) {
    forms.push_back(kind.name + (kind.needs_folder ? ":DIR" : "[:OPTIONS]"));
  }
  const std::string last = std::move(forms.back());
  forms.pop_back();
  return fmt::format("{} or {}", fmt::join(forms, ", "), last);
}

KnownSizes known_sizes(const std::string& spec) {
  const Found found = find_kind(spec);
  return found.kind.sizes(found.rest);
}

int64_t label_count(const std::string& spec, const OpenOptions& options) {
  if (const std::optional<int64_t> labels = known_sizes(spec).labels) return *labels;
  return static_cast<int64_t>(open_folder_index(spec, options)->classes.size());
}

ByteDataset open_byte_dataset(const std::string& spec, const OpenOptions& options) {
  const Found found = find_kind(spec);
  const auto* open = std::get_if<DatasetKind::OpenBytes>(&found.kind.open);
  if (open == nullptr) {
    throw UsageError(
        fmt::format("the images of '{}' stay in their files, they are not kept as bytes", printable(spec)));
  }
  ByteDataset data = (*open)(found.rest, options);
  data.name = spec;
  if (data.full_name.empty()) data.full_name = spec;
  return data;
}

std::optional<FolderIndex> open_folder_index(const std::string& spec, const OpenOptions& options) {
  const Found found = find_kind(spec);
  const auto* open = std::get_if<DatasetKind::OpenFiles>(&found.kind.open);
  if (open == nullptr) return std::nullopt;
  return (*open)(found.rest, options);
}

}  // namespace renorm::data
