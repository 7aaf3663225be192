// renorm data: what a data set holds, what is wrong with it, and what it looks like.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/core/commands.h"
#include "cli/core/contact_sheet.h"
#include "cli/core/data_folder.h"
#include "cli/core/data_text.h"
#include "cli/progress.h"
#include "data/dataset.h"
#include "data/inspect.h"
#include "data/strokes.h"

namespace renorm::cli {
namespace {

constexpr int64_t kMostImageSize = 4096;  // as in training

data::OpenOptions open_options(const DataOptions& options) {
  data::OpenOptions open;
  open.threads = options.threads > 0 ? options.threads
                                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  open.images.val_fraction = options.val_fraction;
  if (options.image_size != 0) open.images.transform.size = options.image_size;
  return open;
}

void check_image_size(int64_t size) {
  if (size >= 0 && size <= kMostImageSize) return;
  throw UsageError(
      fmt::format("--image-size must be a whole number from 0 to {}, got {}", kMostImageSize, size));
}

void refuse_folder_flags(const DataOptions& options) {
  for (const auto& [flag, given] : {std::pair("--val-fraction", options.val_fraction != 0.0),
                                    std::pair("--image-size", options.image_size != 0)}) {
    if (!given) continue;
    throw UsageError(fmt::format("{} has no effect with {}; leave it out", flag,
                                 printable(split_spec(options.spec).first)));
  }
}

data::ByteDataset open_with_progress(const DataOptions& options, data::OpenOptions open) {
  Progress progress;
  open.progress = [&](int64_t done, int64_t total) {
    progress.show(fmt::format("drawing images: {} of {} ({} %)", done, total, 100 * done / total));
  };
  return data::open_byte_dataset(options.spec, open);
}

void print_description(const data::ByteDataset& data) {
  const data::Description about = data::describe(data);
  const int64_t classes = static_cast<int64_t>(about.classes.size());
  const auto [name, rest] = split_spec(about.spec);
  print_line("data set",
             name == "strokes" ? data::to_spec(data::parse_strokes(rest)) : printable(about.spec));
  print_line("classes", names_text(about.classes));
  print_line("training", counts_text(data.train.labels, classes));
  print_line("test", counts_text(data.test.labels, classes));
  print_line("images",
             fmt::format("{} x {} pixels, {}", about.height, about.width,
                         about.channels == 1 ? "grey" : fmt::format("{} channels", about.channels)));
  print_line("mean", fmt::format("{} of the training images, 1 = a full byte", numbers_text(about.mean)));
  print_line("std", numbers_text(about.std));
}

// Throws DataError if anything is wrong.
void print_check(const data::ByteDataset& data) {
  const data::Inspection found = data::inspect(data);
  for (const std::string& note : found.notes) print_line("note", note);
  for (const std::string& fault : found.faults) print_line("wrong", fault);
  std::fflush(stdout);
  if (!found.faults.empty()) {
    const size_t more = found.faults.size() - 1;
    throw DataError(fmt::format("data set '{}' is not fit for training: {}{}", printable(data.name),
                                found.faults.front(),
                                more == 0 ? "" : fmt::format("; {} more listed above", more)));
  }
  print_line("check",
             fmt::format("all {} images read, nothing wrong", grouped(data.train.size() + data.test.size())));
}

}  // namespace

void run_data(const DataOptions& options) {
  if (!options.preview.empty()) check_writable(options.preview);
  check_image_size(options.image_size);
  const data::OpenOptions open = open_options(options);
  if (const auto index = data::open_folder_index(options.spec, open)) {
    return run_folder_data(options, *index, open);
  }
  refuse_folder_flags(options);
  const data::ByteDataset data = open_with_progress(options, open);
  print_description(data);
  if (!options.preview.empty()) {
    write_atomically(options.preview,
                     contact_sheet_png(data.train, {options.preview_classes, options.preview_images}));
    print_line("preview", printable(options.preview));
  }
  if (options.check) print_check(data);
}

}  // namespace renorm::cli
