#include "cli/core/data_folder.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/core/contact_sheet.h"
#include "cli/core/data_text.h"
#include "cli/progress.h"
#include "data/folder_split.h"
#include "data/image_decode.h"
#include "data/inspect.h"
#include "data/parallel.h"

namespace renorm::cli {
namespace {

constexpr int64_t kImagesAReport = 16;
constexpr int64_t kMostPreviewPixels = 100000000;  // as on a contact sheet

void print_description(const DataOptions& options, const data::FolderIndex& index,
                       const data::TransformOptions& transform) {
  const data::Description about = data::describe_folder(index, transform);
  const auto classes = static_cast<int64_t>(about.classes.size());
  print_line("data set", printable(options.spec));
  print_line("classes", names_text(about.classes));
  print_line("training", counts_text(index.train.labels(), classes));
  print_line("test", counts_text(index.val.labels(), classes));
  if (index.others > 0) {
    print_line("others", fmt::format("{} passed over: not .jpg, .jpeg or .png, in no class, or links that "
                                     "lead nowhere or back",
                                     grouped(index.others)));
  }
  print_line("images", options.image_size > 0
                           ? fmt::format("of any size, shown to the net as {0} x {0} pixels", about.width)
                           : "of any size, shown to the net in the size that the model is made for");
  print_line("mean", fmt::format("{} of ImageNet, 1 = a full byte", numbers_text(about.mean)));
  print_line("std", numbers_text(about.std));
}

// Training images, then test images.
class Checker {
 public:
  explicit Checker(const data::FolderIndex& index)
      : index_(index), total_(index.train.size() + index.val.size()) {}

  int64_t total() const { return total_; }

  // A sentence an image, empty for those that are well.
  std::vector<std::string> find_faults(int threads) {
    std::vector<std::string> faults(static_cast<size_t>(total_));
    hashes_.assign(faults.size(), 0);
    Progress progress;
    std::mutex mutex;  // for the progress
    std::atomic<int64_t> done{0};
    data::for_each_number(total_, threads, [&](int64_t i) {
      faults[static_cast<size_t>(i)] = data::fault_of([&] { decode(i); }).value_or("");
      if (const int64_t now = ++done; now % kImagesAReport == 0) {
        const std::lock_guard<std::mutex> lock(mutex);
        progress.show(fmt::format("reading images: {} of {} ({} %)", grouped(now), grouped(total_),
                                  100 * now / total_));
      }
    });
    return faults;
  }

  // After find_faults. Which files of the test images have just the bytes of one for training.
  std::vector<std::string> seen_in_training() const {
    const auto border = hashes_.begin() + index_.train.size();
    const std::unordered_set<size_t> train(hashes_.begin(), border);
    std::vector<std::string> files;
    for (int64_t i = 0; i < index_.val.size(); ++i) {
      const size_t hash = border[i];
      if (hash != 0 && train.count(hash) > 0) files.push_back(index_.val_path(i));
    }
    return files;
  }

 private:
  void decode(int64_t number) {
    const int64_t train = index_.train.size();
    const std::string path = number < train ? index_.train_path(number) : index_.val_path(number - train);
    const std::string bytes = data::read_image_file(path);
    data::decode_image(bytes, path, {});
    hashes_[static_cast<size_t>(number)] = std::hash<std::string_view>{}(bytes);
  }

  const data::FolderIndex& index_;
  int64_t total_;
  std::vector<size_t> hashes_;  // of the files' bytes; 0: bad
};

void print_notes(const data::FolderIndex& index, const Checker& checker) {
  const std::vector<int64_t> counts =
      data::images_per_class(index.val.labels(), static_cast<int64_t>(index.classes.size()));
  std::vector<std::string> empty;
  for (size_t label = 0; label < counts.size(); ++label) {
    if (counts[label] == 0) empty.push_back(index.classes[label]);
  }
  if (!empty.empty()) print_line("note", "classes without test images, " + names_text(empty));
  const std::vector<std::string> seen = checker.seen_in_training();
  if (!seen.empty()) print_line("note", "test images found in training too, " + names_text(seen));
}

void print_check(const DataOptions& options, const data::FolderIndex& index, int threads) {
  std::fflush(stdout);
  Checker checker(index);
  int64_t bad = 0;
  const std::vector<std::string> faults = checker.find_faults(threads);
  print_notes(index, checker);
  for (const std::string& fault : faults) {
    if (fault.empty()) continue;
    ++bad;
    print_line("wrong", fault);
  }
  std::fflush(stdout);
  if (bad > 0) {
    throw DataError(fmt::format("{} of the {} images of '{}' cannot be read; {} listed above", grouped(bad),
                                grouped(checker.total()), printable(options.spec),
                                bad == 1 ? "it is" : "they are"));
  }
  print_line("check", fmt::format("all {} images read, nothing wrong", grouped(checker.total())));
}

// Numbers of the first training images of the first classes.
std::vector<int64_t> choose_preview(const data::FolderIndex& index, const DataOptions& options) {
  std::vector<int64_t> chosen;
  std::vector<int64_t> counts(index.classes.size(), 0);
  for (int64_t i = 0; i < index.train.size(); ++i) {
    const int64_t label = index.train.labels()[static_cast<size_t>(i)];
    if (label >= options.preview_classes) break;
    if (counts[static_cast<size_t>(label)]++ < options.preview_images) chosen.push_back(i);
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

// The middle of training pictures, as a net is shown it in evaluation.
std::string preview_png(const DataOptions& options, const data::FolderIndex& index,
                        const data::TransformOptions& transform) {
  const std::vector<int64_t> chosen = choose_preview(index, options);
  data::ByteImages images{3, transform.size, transform.size, {}, {}};
  if (static_cast<int64_t>(chosen.size()) > kMostPreviewPixels / (transform.size * transform.size)) {
    throw UsageError(
        fmt::format("a contact sheet of {} images of {} x {} pixels is too large; ask for fewer "
                    "classes or images, or for a smaller --image-size",
                    chosen.size(), transform.size, transform.size));
  }
  for (const int64_t i : chosen) {
    const std::string path = index.train_path(i);
    append_planes(data::evaluation_image(data::read_image_file(path), path, transform), &images.pixels);
    images.labels.push_back(index.train.labels()[static_cast<size_t>(i)]);
  }
  return contact_sheet_png(images, {options.preview_classes, options.preview_images});
}

}  // namespace

void run_folder_data(const DataOptions& options, const data::FolderIndex& index,
                     const data::OpenOptions& open) {
  const data::TransformOptions& transform = open.images.transform;
  // Before anything is printed: it may find a picture that cannot be read.
  std::string preview;
  if (!options.preview.empty()) preview = preview_png(options, index, transform);
  print_description(options, index, transform);
  if (!options.preview.empty()) {
    write_atomically(options.preview, preview);
    print_line("preview", printable(options.preview));
  }
  if (options.check) print_check(options, index, open.threads);
}

}  // namespace renorm::cli
