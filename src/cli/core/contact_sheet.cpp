#include "cli/core/contact_sheet.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/errors.h"

namespace renorm::cli {
namespace {

constexpr int64_t kWantedSide = 64;  // of an image on the sheet
constexpr int64_t kPadding = 4;
constexpr uint8_t kPaper = 255;
constexpr int64_t kMostAsked = 100000;
constexpr int64_t kMostPixels = 100000000;

// Examples a row. Classes without images have no row.
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
  return std::max<int64_t>(1, kWantedSide / std::max(images.height, images.width));
}

Sheet blank_sheet(const data::ByteImages& images, int64_t rows, int64_t columns, int64_t factor) {
  Sheet sheet;
  sheet.width = kPadding + columns * (images.width * factor + kPadding);
  sheet.height = kPadding + rows * (images.height * factor + kPadding);
  sheet.channels = images.channels == 3 ? 3 : 1;
  if (rows == 0 || sheet.width > kMostPixels / sheet.height) {
    throw UsageError(
        fmt::format("a contact sheet of {} x {} images has {} x {} pixels, at most {} are drawn; "
                    "ask for fewer classes or images",
                    rows, columns, sheet.width, sheet.height, kMostPixels));
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

// libpng's simplified interface: it reports by return value, without long jumps over C++ objects.
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
  return file;
}

}  // namespace

std::string contact_sheet_png(const data::ByteImages& images, const SheetSize& size) {
  if (size.classes < 1 || size.images < 1 || size.classes > kMostAsked || size.images > kMostAsked) {
    throw UsageError(fmt::format("a contact sheet has from 1 to {} classes and images, got {} and {}",
                                 kMostAsked, size.classes, size.images));
  }
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

}  // namespace renorm::cli
