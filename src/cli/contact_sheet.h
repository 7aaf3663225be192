// One image of many: a row per class, with images of the class side by side.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "data/dataset.h"

namespace renorm::cli {

// Requested rows and columns; there may be fewer classes and images. Both are reduced as far as necessary, to
// one image at least, for a file of `max_bytes`.
struct SheetSize {
  int64_t classes = 10;
  int64_t images = 10;
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
};

// All return the first images of the first classes as the bytes of a PNG file. Small images are enlarged by a
// whole factor. Throw UsageError for a sheet of more than 100 million pixels or without rows or columns.
std::string contact_sheet_png(const data::ByteImages& images, const SheetSize& size);
// The centre of each training image, as in evaluation. Throws MissingInputError, DataError, IoError too.
std::string contact_sheet_png(const data::FolderIndex& index, const data::TransformOptions& transform,
                              const SheetSize& size);
// Of the built-in data set with this spec, of which no other images are drawn. "" for a data set in files.
// Throws UsageError if the spec is invalid.
std::string built_in_contact_sheet_png(const std::string& spec, SheetSize size);

// One image as the bytes of a PNG file, enlarged as on a sheet.
std::string image_png(const data::ByteImages& images, int64_t index);

// Whether `bytes` are a contact sheet. Those of versions without a mark in the file are not recognized.
bool is_contact_sheet(const std::string& bytes);

}  // namespace renorm::cli
