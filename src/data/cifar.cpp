#include "data/cifar.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "data/description.h"
#include "data/packed_file.h"

namespace renorm::data {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kSide = 32;
constexpr int64_t kPixels = kChannels * kSide * kSide;
// The largest file of both data sets has 154 million bytes.
constexpr int64_t kMaxUnpacked = int64_t{1} << 28;
constexpr int64_t kMaxNameBytes = int64_t{1} << 16;

// The files of one of the two data sets.
struct Files {
  const char* folder;  // what the archive unpacks to
  std::vector<std::string> train;
  std::string test;
  std::string names;
  int64_t label_bytes;
  int64_t classes;
};

// The names, one per line; class-0 and so on if there is no such file.
std::vector<std::string> read_names(const std::string& path, int64_t classes) {
  std::vector<std::string> names;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    for (int64_t i = 0; i < classes; ++i) names.push_back(fmt::format("class-{}", i));
    return names;
  }
  for (std::string line : split(read_file(path, kMaxNameBytes), '\n')) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (static_cast<int64_t>(names.size()) != classes) {
    throw DataError(fmt::format("{}: {} names, expected {}, one per line; without the file, numbers are used",
                                printable(path), names.size(), classes));
  }
  return shown_classes(names, path);
}

// The folder itself or the one inside it that the archive makes.
std::string folder_with(const std::string& dir, const Files& files) {
  check_data_folder(dir);
  const std::string inner = (std::filesystem::path(dir) / files.folder).string();
  std::error_code error;
  return std::filesystem::is_directory(inner, error) ? inner : dir;
}

ByteDataset read_cifar(const std::string& dir, const Files& files) {
  const std::string folder = folder_with(dir, files);
  const auto append = [&](const std::string& name, ByteImages* images) {
    const NamedBytes file = read_plain_or_gz(
        folder, name, [](const std::string& /*start*/, const std::string& /*file*/) { return kMaxUnpacked; });
    parse_cifar(file.bytes, file.file, files.label_bytes, files.classes, images);
  };
  ByteDataset data;
  data.classes = read_names((std::filesystem::path(folder) / files.names).string(), files.classes);
  for (const std::string& name : files.train) append(name, &data.train);
  append(files.test, &data.test);
  return data;
}

}  // namespace

void parse_cifar(const std::string& bytes, const std::string& file, int64_t label_bytes, int64_t classes,
                 ByteImages* images) {
  const int64_t record = label_bytes + kPixels;
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size == 0 || size % record != 0) {
    throw DataError(
        fmt::format("{}: {} bytes, expected a multiple of {} (the size of a record) above 0; fetch the "
                    "binary version of the data set again",
                    printable(file), size, record));
  }
  for (int64_t at = label_bytes - 1; at < size; at += record) {
    const int64_t label = static_cast<uint8_t>(bytes[static_cast<size_t>(at)]);
    if (label >= classes) {
      throw DataError(
          fmt::format("{}: label {} at byte {}, expected 0 to {}", printable(file), label, at, classes - 1));
    }
  }
  images->channels = kChannels;
  images->height = kSide;
  images->width = kSide;
  images->pixels.reserve(images->pixels.size() + static_cast<size_t>(size / record * kPixels));
  for (int64_t at = 0; at < size; at += record) {
    const auto pixels = bytes.begin() + at + label_bytes;
    images->labels.push_back(static_cast<uint8_t>(*(pixels - 1)));
    images->pixels.insert(images->pixels.end(), pixels, pixels + kPixels);
  }
}

ByteDataset read_cifar10(const std::string& dir) {
  return read_cifar(dir, {"cifar-10-batches-bin",
                          {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                           "data_batch_5.bin"},
                          "test_batch.bin",
                          "batches.meta.txt",
                          1,
                          10});
}

ByteDataset read_cifar100(const std::string& dir) {
  return read_cifar(dir, {"cifar-100-binary", {"train.bin"}, "test.bin", "fine_label_names.txt", 2, 100});
}

}  // namespace renorm::data
