#include "data/dataset.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "data/cifar.h"
#include "data/folder_split.h"
#include "data/idx.h"
#include "data/strokes.h"

namespace renorm::data {
namespace {

// `rest` is what follows the name and its colon.
using OpenBytes = ByteDataset (*)(const std::string& rest, const OpenOptions& options);
// For images that stay in their files.
using OpenFiles = FolderIndex (*)(const std::string& rest, const OpenOptions& options);

std::string cache_of(const OpenOptions& options) {
  return options.cache.empty() ? cache_folder() : options.cache;
}

ByteDataset open_strokes(const std::string& rest, const OpenOptions& options) {
  return cached_strokes(parse_strokes(rest), cache_of(options), options.threads, options.progress);
}

ByteDataset open_mnist(const std::string& rest, const OpenOptions&) {
  return read_mnist(rest, mnist_classes());
}

ByteDataset open_fashion_mnist(const std::string& rest, const OpenOptions&) {
  return read_mnist(rest, fashion_mnist_classes());
}

ByteDataset open_cifar10(const std::string& rest, const OpenOptions&) { return read_cifar10(rest); }

ByteDataset open_cifar100(const std::string& rest, const OpenOptions&) { return read_cifar100(rest); }

FolderIndex open_pictures(const std::string& rest, const OpenOptions& options) {
  FolderOptions folder;
  folder.val_fraction = options.pictures.val_fraction;
  folder.cache = cache_of(options);
  return open_folder(rest, folder);
}

struct Kind {
  DatasetKind text;
  bool needs_folder;
  std::variant<OpenBytes, OpenFiles> open;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list{
      {{"strokes", "strokes[:classes=200,train=100,test=20,size=20,strokes=3,noise=0.1,jitter=1,seed=1]",
        "drawn characters, generated here"},
       false,
       open_strokes},
      {{"mnist", "mnist:DIR", "the four idx files of MNIST, plain or .gz"}, true, open_mnist},
      {{"fashion-mnist", "fashion-mnist:DIR", "the four idx files of Fashion-MNIST, plain or .gz"},
       true,
       open_fashion_mnist},
      {{"cifar10", "cifar10:DIR", "the binary version of CIFAR-10"}, true, open_cifar10},
      {{"cifar100", "cifar100:DIR", "the binary version of CIFAR-100 with its 100 fine labels"},
       true,
       open_cifar100},
      {{"folder", "folder:DIR",
        "your own .jpg and .png files: DIR/train/CLASS and DIR/val/CLASS, or DIR/CLASS with --val-fraction"},
       true,
       open_pictures},
  };
  return list;
}

const Kind& kind_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) {
    if (kind.text.name == name) return kind;
    names.push_back(kind.text.name);
  }
  throw UsageError(fmt::format("unknown data set '{}'{}", printable(name), name_hint(name, names)));
}

struct Found {
  const Kind& kind;
  std::string rest;
};

Found find_kind(const std::string& spec) {
  const auto [name, rest] = split_spec(spec);
  const Kind& kind = kind_named(name);
  if (kind.needs_folder && rest.empty()) {
    throw UsageError(
        fmt::format("data set '{}' needs the folder of its files: {}", kind.text.name, kind.text.usage));
  }
  return {kind, rest};
}

}  // namespace

ByteDataset open_byte_dataset(const std::string& spec, const OpenOptions& options) {
  const Found found = find_kind(spec);
  const auto* open = std::get_if<OpenBytes>(&found.kind.open);
  if (open == nullptr) {
    throw UsageError(
        fmt::format("the images of '{}' stay in their files, they are not kept as bytes", printable(spec)));
  }
  ByteDataset data = (*open)(found.rest, options);
  data.name = spec;
  return data;
}

std::optional<FolderIndex> open_folder_index(const std::string& spec, const OpenOptions& options) {
  const Found found = find_kind(spec);
  const auto* open = std::get_if<OpenFiles>(&found.kind.open);
  if (open == nullptr) return std::nullopt;
  return (*open)(found.rest, options);
}

Dataset open_dataset(const std::string& spec, const OpenOptions& options) {
  std::optional<FolderIndex> index = open_folder_index(spec, options);
  if (index) return folder_dataset(std::move(*index), spec, options);
  return in_memory(open_byte_dataset(spec, options));
}

const std::vector<DatasetKind>& dataset_kinds() {
  static const std::vector<DatasetKind> list = [] {
    std::vector<DatasetKind> texts;
    for (const Kind& kind : kinds()) texts.push_back(kind.text);
    return texts;
  }();
  return list;
}

}  // namespace renorm::data
