#include "data/idx.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/text.h"
#include "data/description.h"

namespace renorm::data {
namespace {

// The third byte stands for unsigned bytes, the last is the number of dimensions that follow.
constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;
constexpr size_t kWordBytes = 4;
constexpr size_t kImagesHeader = 4 * kWordBytes;
constexpr size_t kLabelsHeader = 2 * kWordBytes;
static_assert(kImagesHeader <= kStartBytes, "the start of a packed file holds its header");

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < kWordBytes; ++i) word = (word << 8) | static_cast<uint8_t>(bytes[at + i]);
  return word;
}

// The dimensions; the data follow right after them.
std::vector<int64_t> parse_header(const std::string& bytes, const std::string& file, uint32_t magic,
                                  const char* kind) {
  const size_t dimensions = magic & 0xff;
  const size_t header = kWordBytes * (1 + dimensions);
  if (bytes.size() < header) {
    throw DataError(fmt::format("{}: {} bytes, but the header of an idx file of {} alone has {}",
                                printable(file), bytes.size(), kind, header));
  }
  const uint32_t found = big_endian(bytes, 0);
  if (found != magic) {
    throw DataError(fmt::format("{}: starts with 0x{:08x}, but an idx file of {} starts with 0x{:08x}",
                                printable(file), found, kind, magic));
  }
  std::vector<int64_t> sizes;
  for (size_t i = 1; i <= dimensions; ++i) sizes.push_back(big_endian(bytes, i * kWordBytes));
  return sizes;
}

void check_size(const std::string& bytes, const std::string& file, int64_t expected, int64_t count,
                const char* kind) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size == expected) return;
  throw DataError(
      fmt::format("{}: {} bytes, but its header states {} {}, which take {}; fetch the file again",
                  printable(file), size, count, kind, expected));
}

void check_side(const std::string& file, int64_t side, const char* what) {
  if (side >= 1 && side <= kMaxImageSide) return;
  throw DataError(fmt::format("{}: its header states images of {} {}, expected 1 to {}", printable(file),
                              side, what, kMaxImageSide));
}

// The size of a file of images by its header, checked.
int64_t images_bytes(const std::vector<int64_t>& sizes, const std::string& file) {
  check_side(file, sizes[1], "rows");
  check_side(file, sizes[2], "columns");
  if (sizes[0] == 0) throw DataError(fmt::format("{}: holds no images", printable(file)));
  // The sides are small and the count has 32 bits, so the product cannot overflow.
  return static_cast<int64_t>(kImagesHeader) + sizes[0] * sizes[1] * sizes[2];
}

int64_t labels_bytes(const std::vector<int64_t>& sizes) {
  return static_cast<int64_t>(kLabelsHeader) + sizes[0];
}

void check_same_count(const std::string& images_file, int64_t images, const std::string& labels_file,
                      int64_t labels) {
  if (images == labels) return;
  throw DataError(fmt::format("{}: {} labels, but {} has {} images; take both from the same source",
                              printable(labels_file), labels, printable(images_file), images));
}

std::vector<int64_t> parse_labels(const std::string& bytes, const std::string& file, int64_t classes) {
  const std::vector<int64_t> sizes = parse_header(bytes, file, kLabelsMagic, "labels");
  const int64_t count = sizes.front();
  check_size(bytes, file, labels_bytes(sizes), count, "labels");
  std::vector<int64_t> labels;
  labels.reserve(static_cast<size_t>(count));
  for (size_t at = kLabelsHeader; at < bytes.size(); ++at) {
    const int64_t label = static_cast<uint8_t>(bytes[at]);
    if (label >= classes) {
      throw DataError(
          fmt::format("{}: label {} at byte {}, expected 0 to {}", printable(file), label, at, classes - 1));
    }
    labels.push_back(label);
  }
  return labels;
}

ByteImages read_split(const std::string& dir, const std::string& prefix, int64_t classes,
                      std::string* images_file) {
  const auto images_max = [](const std::string& start, const std::string& file) {
    return images_bytes(parse_header(start, file, kImagesMagic, "images"), file);
  };
  const auto labels_max = [](const std::string& start, const std::string& file) {
    return labels_bytes(parse_header(start, file, kLabelsMagic, "labels"));
  };
  const NamedBytes images = read_plain_or_gz(dir, prefix + "-images-idx3-ubyte", images_max);
  const NamedBytes labels = read_plain_or_gz(dir, prefix + "-labels-idx1-ubyte", labels_max, kMaxLabelsRatio);
  *images_file = images.file;
  return parse_idx(images.bytes, images.file, labels.bytes, labels.file, classes);
}

}  // namespace

ByteImages parse_idx(const std::string& images, const std::string& images_file, const std::string& labels,
                     const std::string& labels_file, int64_t classes) {
  const std::vector<int64_t> sizes = parse_header(images, images_file, kImagesMagic, "images");
  const int64_t count = sizes[0];
  check_size(images, images_file, images_bytes(sizes, images_file), count, "images");
  check_same_count(images_file, count, labels_file,
                   parse_header(labels, labels_file, kLabelsMagic, "labels").front());
  ByteImages parsed;
  parsed.channels = 1;
  parsed.height = sizes[1];
  parsed.width = sizes[2];
  parsed.labels = parse_labels(labels, labels_file, classes);
  parsed.pixels.assign(images.begin() + kImagesHeader, images.end());
  return parsed;
}

ByteDataset read_mnist(const std::string& dir, const std::vector<std::string>& classes) {
  check_data_folder(dir);
  const int64_t count = static_cast<int64_t>(classes.size());
  std::string train_file, test_file;
  ByteDataset data;
  data.classes = classes;
  data.train = read_split(dir, "train", count, &train_file);
  data.test = read_split(dir, "t10k", count, &test_file);
  if (data.train.height != data.test.height || data.train.width != data.test.width) {
    throw DataError(fmt::format(
        "{}: images of {}x{} pixels, but {} has {}x{}; take both from the same source", printable(test_file),
        data.test.height, data.test.width, printable(train_file), data.train.height, data.train.width));
  }
  return data;
}

const std::vector<std::string>& mnist_classes() {
  static const std::vector<std::string> names{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  return names;
}

const std::vector<std::string>& fashion_mnist_classes() {
  static const std::vector<std::string> names{"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                              "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  return names;
}

}  // namespace renorm::data
