#include "data/dataset.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/names.h"
#include "base/text.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/strokes.h"

namespace renorm::data {
namespace {

// What follows the name and its colon, and how to open it.
using Open = ByteDataset (*)(const std::string& rest, const OpenOptions& options);

ByteDataset open_strokes(const std::string& rest, const OpenOptions& options) {
  return cached_strokes(parse_strokes(rest), options.cache.empty() ? cache_folder() : options.cache,
                        options.threads, options.progress);
}

ByteDataset open_mnist(const std::string& rest, const OpenOptions&) {
  return read_mnist(rest, mnist_classes());
}

ByteDataset open_fashion_mnist(const std::string& rest, const OpenOptions&) {
  return read_mnist(rest, fashion_mnist_classes());
}

ByteDataset open_cifar10(const std::string& rest, const OpenOptions&) { return read_cifar10(rest); }

ByteDataset open_cifar100(const std::string& rest, const OpenOptions&) { return read_cifar100(rest); }

struct Kind {
  DatasetKind text;
  bool needs_folder;
  Open open;
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

}  // namespace

ByteDataset open_byte_dataset(const std::string& spec, const OpenOptions& options) {
  const auto [name, rest] = split_spec(spec);
  const Kind& kind = kind_named(name);
  if (kind.needs_folder && rest.empty()) {
    throw UsageError(
        fmt::format("data set '{}' needs the folder of its files: {}", kind.text.name, kind.text.usage));
  }
  ByteDataset data = kind.open(rest, options);
  data.name = spec;
  return data;
}

Dataset open_dataset(const std::string& spec, const OpenOptions& options) {
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
