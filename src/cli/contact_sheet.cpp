#include "cli/contact_sheet.h"

#include <fmt/format.h>
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/errors.h"
#include "data/image_decode.h"
#include "data/strokes.h"

namespace renorm::cli {
namespace {

constexpr int64_t kTargetSide = 64;  // of an image on the sheet
constexpr int64_t kPadding = 4;
constexpr uint8_t kPaper = 255;
constexpr int64_t kMaxRequested = 100000;
constexpr int64_t kMaxPixels = 100000000;
constexpr size_t kHeaderBytes = 33;  // the signature and the first chunk of a PNG file

// The images of each row. Classes without images have no row.
std::vector<std::vector<int64_t>> choose_rows(const data::ByteImages& images, const SheetSize& size) {
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(size.classes));
  for (int64_t i = 0; i < images.size(); ++i) {
    const int64_t label = images.labels[static_cast<size_t>(i)];
    if (label >= size.classes) continue;
    std::vector<int64_t>& row = rows[static_cast<size_t>(label)];
    if (static_cast<int64_t>(row.size()) < size.images) row.push_back(i);
  }
  rows.erase(std::remove_if(rows.begin(), rows.end(), [](const auto& row) { return row.empty(); }),
             rows.end());
  return rows;
}

struct Sheet {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 1;  // 1 grey, 3 red, green and blue
  std::vector<uint8_t> pixels{};

  uint8_t* at(int64_t row, int64_t column) { return pixels.data() + (row * width + column) * channels; }
};

int64_t enlargement(const data::ByteImages& images) {
  return std::max<int64_t>(1, kTargetSide / std::max(images.height, images.width));
}

Sheet blank_sheet(const data::ByteImages& images, int64_t rows, int64_t columns, int64_t factor) {
  Sheet sheet;
  sheet.width = kPadding + columns * (images.width * factor + kPadding);
  sheet.height = kPadding + rows * (images.height * factor + kPadding);
  sheet.channels = images.channels == 3 ? 3 : 1;
  if (rows == 0 || sheet.width > kMaxPixels / sheet.height) {
    throw UsageError(
        fmt::format("a contact sheet of {} x {} images has {} x {} pixels, more than the {} allowed; "
                    "reduce --preview-classes or --preview-images",
                    rows, columns, sheet.width, sheet.height, kMaxPixels));
  }
  sheet.pixels.assign(static_cast<size_t>(sheet.width * sheet.height * sheet.channels), kPaper);
  return sheet;
}

void paste(const data::ByteImages& images, int64_t index, int64_t factor, int64_t top, int64_t left,
           Sheet* sheet) {
  const uint8_t* image = images.image(index);
  const int64_t area = images.height * images.width;
  for (int64_t row = 0; row < images.height * factor; ++row) {
    for (int64_t column = 0; column < images.width * factor; ++column) {
      const uint8_t* from = image + row / factor * images.width + column / factor;
      uint8_t* to = sheet->at(top + row, left + column);
      for (int64_t channel = 0; channel < sheet->channels; ++channel) to[channel] = from[channel * area];
    }
  }
}

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

// A text chunk by which a contact sheet is recognized.
std::string mark() {
  const std::string text = std::string("Software") + '\0' + "renorm data --preview";
  const std::string chunk = "tEXt" + text;
  const uLong checksum =
      crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size()));
  return big_endian(static_cast<uint32_t>(text.size())) + chunk + big_endian(static_cast<uint32_t>(checksum));
}

// libpng's simplified interface reports errors by return value, without long jumps over C++ objects.
std::string encode_png(const Sheet& sheet) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(sheet.width);
  header.height = static_cast<png_uint_32>(sheet.height);
  header.format = sheet.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::string file(bytes, '\0');
  if (png_image_write_to_memory(&header, file.data(), &bytes, 0, sheet.pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error(fmt::format("libpng: {}", header.message));
  }
  file.resize(bytes);
  return file.insert(kHeaderBytes, mark());
}

std::string draw_sheet(const data::ByteImages& images, const SheetSize& size) {
  const std::vector<std::vector<int64_t>> rows = choose_rows(images, size);
  size_t columns = 0;
  for (const auto& row : rows) columns = std::max(columns, row.size());
  const int64_t factor = enlargement(images);
  Sheet sheet = blank_sheet(images, static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns), factor);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t column = 0; column < rows[row].size(); ++column) {
      const int64_t top = kPadding + static_cast<int64_t>(row) * (images.height * factor + kPadding);
      const int64_t left = kPadding + static_cast<int64_t>(column) * (images.width * factor + kPadding);
      paste(images, rows[row][column], factor, top, left, &sheet);
    }
  }
  return encode_png(sheet);
}

// Numbers of the first training images of the first classes.
std::vector<int64_t> choose_images(const data::FolderIndex& index, const SheetSize& size) {
  std::vector<int64_t> chosen;
  std::vector<int64_t> counts(index.classes.size(), 0);
  for (int64_t i = 0; i < index.train.size(); ++i) {
    const int64_t label = index.train.labels()[static_cast<size_t>(i)];
    if (label >= size.classes) break;
    if (counts[static_cast<size_t>(label)]++ < size.images) chosen.push_back(i);
  }
  return chosen;
}

// [row][column][channel] -> [channel][row][column]
void append_planes(const data::Image& image, std::vector<uint8_t>* pixels) {
  for (int64_t c = 0; c < image.channels; ++c) {
    for (size_t i = static_cast<size_t>(c); i < image.pixels.size();
         i += static_cast<size_t>(image.channels)) {
      pixels->push_back(image.pixels[i]);
    }
  }
}

}  // namespace

bool is_contact_sheet(const std::string& bytes) {
  const std::string start = "\x89PNG\r\n\x1a\n";
  return bytes.rfind(start, 0) == 0 && bytes.size() > kHeaderBytes &&
         bytes.compare(kHeaderBytes, mark().size(), mark()) == 0;
}

std::string contact_sheet_png(const data::ByteImages& images, const SheetSize& size) {
  if (size.classes < 1 || size.images < 1 || size.classes > kMaxRequested || size.images > kMaxRequested) {
    throw UsageError(fmt::format("a contact sheet has from 1 to {} classes and images, got {} and {}",
                                 kMaxRequested, size.classes, size.images));
  }
  if (size.max_bytes < 1) {
    throw UsageError(fmt::format("--preview-bytes must be at least 1, got {}", size.max_bytes));
  }
  SheetSize fitting = size;
  while (true) {
    std::string file = draw_sheet(images, fitting);
    const auto bytes = static_cast<int64_t>(file.size());
    if (bytes <= size.max_bytes || (fitting.classes == 1 && fitting.images == 1)) return file;
    const double share = std::sqrt(static_cast<double>(size.max_bytes) / static_cast<double>(bytes));
    for (int64_t* count : {&fitting.classes, &fitting.images}) {
      *count = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(*count) * share));
    }
  }
}

std::string contact_sheet_png(const data::FolderIndex& index, const data::TransformOptions& transform,
                              const SheetSize& size) {
  const std::vector<int64_t> chosen = choose_images(index, size);
  data::ByteImages images{3, transform.size, transform.size, {}, {}};
  if (static_cast<int64_t>(chosen.size()) > kMaxPixels / (transform.size * transform.size)) {
    throw UsageError(
        fmt::format("a contact sheet of {} images of {} x {} pixels is too large; reduce --preview-classes, "
                    "--preview-images or --image-size",
                    chosen.size(), transform.size, transform.size));
  }
  for (const int64_t i : chosen) {
    const std::string path = index.train_path(i);
    append_planes(data::evaluation_image(data::read_image_file(path), path, transform), &images.pixels);
    images.labels.push_back(index.train.labels()[static_cast<size_t>(i)]);
  }
  return contact_sheet_png(images, size);
}

std::string image_png(const data::ByteImages& images, int64_t index) {
  const int64_t factor = enlargement(images);
  Sheet sheet{images.width * factor, images.height * factor, images.channels == 3 ? 3 : 1};
  sheet.pixels.resize(static_cast<size_t>(sheet.width * sheet.height * sheet.channels));
  paste(images, index, factor, 0, 0, &sheet);
  return encode_png(sheet);
}

std::string built_in_contact_sheet_png(const std::string& spec, SheetSize size) {
  std::optional<data::StrokesOptions> options = data::strokes_of_spec(spec);
  if (!options) return "";
  // A larger set contains the smaller one.
  options->classes = std::min(options->classes, size.classes);
  options->train = std::min(options->train, size.images);
  options->test = 1;
  const auto silent = [](int64_t /*done*/, int64_t /*total*/) {};
  return contact_sheet_png(data::generate_strokes(*options, /*threads=*/1, silent).train, size);
}

}  // namespace renorm::cli
