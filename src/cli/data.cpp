// renorm data: what a data set holds, what is wrong with it, and what it looks like.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/contact_sheet.h"
#include "cli/help.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "data/dataset.h"
#include "data/description.h"
#include "data/folder_split.h"
#include "data/image_decode.h"
#include "data/inspect.h"
#include "data/parallel.h"

namespace renorm::cli {
namespace {

struct DataOptions {
  std::string spec;
  bool check = false;
  std::string preview;  // FILE.png
  bool force = false;
  SheetSize sheet;
  double val_fraction = 0.0;  // of folder:DIR, as in training
  int64_t image_size = 0;     // 0: the default of data::TransformOptions
  int threads = 0;
};

constexpr const char* kExamples =
    R"(folder:DIR holds your own images, .jpg, .jpeg or .png in DIR/train/CLASS and DIR/val/CLASS; with
--val-fraction they are in DIR/train/CLASS or DIR/CLASS. Only --check and --preview open the files.

Examples:
  renorm data strokes:classes=50,size=32 --preview strokes.png
  renorm data cifar10:/data/cifar-10-batches-bin --check
  renorm data folder:/data/birds --val-fraction 0.1 --check
)";

constexpr size_t kMaxNames = 10;  // of more names only the first few are listed
constexpr size_t kFewNames = 5;
constexpr int64_t kImagesPerUpdate = 16;

// "3: ant, bee, cat"; of many names the first few.
std::string names_text(const std::vector<std::string>& names) {
  const bool all = names.size() <= kMaxNames;
  std::vector<std::string> shown;
  for (size_t i = 0; i < (all ? names.size() : kFewNames); ++i) shown.push_back(printable(names[i]));
  if (!all) shown.emplace_back("...");
  return fmt::format("{}: {}", grouped(static_cast<int64_t>(names.size())), fmt::join(shown, ", "));
}

std::string numbers_text(const std::vector<double>& numbers) {
  std::vector<std::string> texts;
  texts.reserve(numbers.size());
  for (const double number : numbers) texts.push_back(fmt::format("{:.4f}", number));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// "24,000 images, 100 per class"
std::string counts_text(const std::vector<int64_t>& labels, int64_t classes) {
  const std::vector<int64_t> counts = data::images_per_class(labels, classes);
  const auto [min, max] = std::minmax_element(counts.begin(), counts.end());
  return fmt::format("{} images, {} per class", grouped(static_cast<int64_t>(labels.size())),
                     *min == *max ? grouped(*min) : fmt::format("{} to {}", grouped(*min), grouped(*max)));
}

data::OpenOptions open_options(const DataOptions& options) {
  data::OpenOptions open;
  open.threads = options.threads > 0 ? options.threads
                                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  open.images.val_fraction = options.val_fraction;
  if (options.image_size != 0) open.images.transform.size = options.image_size;
  return open;
}

void check_image_size(int64_t size) {
  if (size >= 0 && size <= data::kMaxImageSide) return;
  throw UsageError(
      fmt::format("--image-size must be a whole number from 0 to {}, got {}", data::kMaxImageSide, size));
}

void reject_folder_flags(const DataOptions& options) {
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
  print_line("data set", printable(data.full_name));
  print_line("classes", names_text(about.classes));
  print_line("training", counts_text(data.train.labels, classes));
  print_line("test", counts_text(data.test.labels, classes));
  print_line("images",
             fmt::format("{} x {} pixels, {}", about.height, about.width,
                         about.channels == 1 ? "grey" : fmt::format("{} channels", about.channels)));
  print_line("mean",
             fmt::format("{} of the training images, as a fraction of 255", numbers_text(about.mean)));
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
    throw DataError(fmt::format("data set '{}' cannot be used for training: {}{}", printable(data.name),
                                found.faults.front(),
                                more == 0 ? "" : fmt::format("; {} more listed above", more)));
  }
  print_line("check", fmt::format("all {} images read, no problems found",
                                  grouped(data.train.size() + data.test.size())));
}

void print_description(const DataOptions& options, const data::FolderIndex& index,
                       const data::TransformOptions& transform) {
  const data::Description about = data::describe_folder(index, transform);
  const auto classes = static_cast<int64_t>(about.classes.size());
  print_line("data set", printable(options.spec));
  print_line("classes", names_text(about.classes));
  print_line("training", counts_text(index.train.labels(), classes));
  print_line("test", counts_text(index.val.labels(), classes));
  if (index.others > 0) {
    print_line("others", fmt::format("{} ignored: not .jpg, .jpeg or .png, in no class, or links that "
                                     "are broken or circular",
                                     grouped(index.others)));
  }
  print_line("images", options.image_size > 0
                           ? fmt::format("of any size, resized to {0} x {0} pixels for the net", about.width)
                           : "of any size, resized for the net to the size that the model is made for");
  print_line("mean", fmt::format("{} of ImageNet, as a fraction of 255", numbers_text(about.mean)));
  print_line("std", numbers_text(about.std));
}

// Training images, then test images.
class Checker {
 public:
  explicit Checker(const data::FolderIndex& index)
      : index_(index), total_(index.train.size() + index.val.size()) {}

  int64_t total() const { return total_; }

  // One message per image, empty for good ones.
  std::vector<std::string> find_faults(int threads) {
    std::vector<std::string> faults(static_cast<size_t>(total_));
    hashes_.assign(faults.size(), 0);
    Progress progress;
    std::mutex mutex;  // guards the progress
    std::atomic<int64_t> done{0};
    data::for_each_number(total_, threads, [&](int64_t i) {
      faults[static_cast<size_t>(i)] = data::fault_of([&] { decode(i); }).value_or(data::ImageFault()).reason;
      if (const int64_t now = ++done; now % kImagesPerUpdate == 0) {
        const std::lock_guard<std::mutex> lock(mutex);
        progress.show(fmt::format("reading images: {} of {} ({} %)", grouped(now), grouped(total_),
                                  100 * now / total_));
      }
    });
    return faults;
  }

  // Call after find_faults. The files of test images that are identical to a training image.
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
  std::vector<size_t> hashes_;  // of the files' bytes; 0: bad image
};

void print_notes(const std::string& spec, const data::FolderIndex& index, const Checker& checker) {
  const std::string one_class = data::one_class_note(spec, index.classes);
  if (!one_class.empty()) print_line("note", one_class);
  const std::vector<int64_t> counts =
      data::images_per_class(index.val.labels(), static_cast<int64_t>(index.classes.size()));
  std::vector<std::string> empty;
  for (size_t label = 0; label < counts.size(); ++label) {
    if (counts[label] == 0) empty.push_back(index.classes[label]);
  }
  if (!empty.empty()) print_line("note", "classes without test images, " + names_text(empty));
  const std::vector<std::string> seen = checker.seen_in_training();
  if (!seen.empty()) print_line("note", "test images identical to training images, " + names_text(seen));
}

void print_check(const DataOptions& options, const data::FolderIndex& index, int threads) {
  std::fflush(stdout);
  Checker checker(index);
  int64_t bad = 0;
  const std::vector<std::string> faults = checker.find_faults(threads);
  print_notes(options.spec, index, checker);
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
  print_line("check", fmt::format("all {} images read, no problems found", grouped(checker.total())));
}

void run_folder_data(const DataOptions& options, const data::FolderIndex& index,
                     const data::OpenOptions& open) {
  const data::TransformOptions& transform = open.images.transform;
  // Before anything is printed: an image may be unreadable.
  std::string preview;
  if (!options.preview.empty()) preview = contact_sheet_png(index, transform, options.sheet);
  print_description(options, index, transform);
  if (!options.preview.empty()) {
    write_atomically(options.preview, preview);
    print_line("preview", printable(options.preview));
  }
  if (options.check) print_check(options, index, open.threads);
}

void run(const DataOptions& options) {
  if (options.spec.empty()) {
    throw UsageError("'renorm data' needs a SPEC, for example strokes or cifar10:DIR");
  }
  check_threads(options.threads);
  if (!options.preview.empty()) {
    check_output(options.preview, "--preview", options.force, is_contact_sheet);
  }
  check_image_size(options.image_size);
  const data::OpenOptions open = open_options(options);
  if (const auto index = data::open_folder_index(options.spec, open)) {
    return run_folder_data(options, *index, open);
  }
  reject_folder_flags(options);
  const data::ByteDataset data = open_with_progress(options, open);
  print_description(data);
  if (!options.preview.empty()) {
    write_atomically(options.preview, contact_sheet_png(data.train, options.sheet));
    print_line("preview", printable(options.preview));
  }
  if (options.check) print_check(data);
}

}  // namespace

Command add_data(CLI::App& program) {
  CLI::App* app = program.add_subcommand("data", "Describe, check or preview a data set");
  const auto options = std::make_shared<DataOptions>();
  app->add_option("SPEC", options->spec, "data, as in 'renorm train --data'");
  app->add_flag("--check", options->check, "read all of it and report what is wrong");
  app->add_option("--preview", options->preview, "write a contact sheet")->type_name("FILE.png");
  app->add_flag("--force", options->force, "let --preview replace a file that is no contact sheet");
  app->add_option("--preview-classes", options->sheet.classes, "rows of the contact sheet: classes")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--preview-images", options->sheet.images, "columns of the contact sheet: images per class")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--preview-bytes", options->sheet.max_bytes,
                  "maximum size of the contact sheet, which has fewer classes and images then")
      ->type_name("N");
  app->add_option("--val-fraction", options->val_fraction,
                  "folder:DIR: fraction of the training images that becomes the test split; 0: the test "
                  "split is DIR/val")
      ->type_name("X");
  app->add_option("--image-size", options->image_size,
                  "folder:DIR: width and height of the net's input; 0: 224")
      ->type_name("N");
  app->add_option("--threads", options->threads, "threads that generate or decode images; 0: all CPUs")
      ->type_name("N");
  std::vector<std::string> specs;
  for (const data::DatasetKind& kind : data::dataset_kinds()) specs.push_back(kind.usage);
  app->footer(
      fmt::format("SPEC is one of {}.\n\n{}\n{}", fmt::join(specs, ", "), kExamples, exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
