// renorm data: what a data set holds, what is wrong with it, and what it looks like.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/core/commands.h"
#include "cli/core/contact_sheet.h"
#include "cli/progress.h"
#include "data/dataset.h"
#include "data/inspect.h"
#include "data/strokes.h"

namespace renorm::cli {
namespace {

constexpr size_t kAllNamesShown = 10;  // of more classes only the first few are named
constexpr size_t kFewNames = 5;

data::ByteDataset open_with_progress(const DataOptions& options) {
  Progress progress;
  data::OpenOptions open;
  open.threads = options.threads > 0 ? options.threads
                                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  open.progress = [&](int64_t done, int64_t total) {
    progress.show(fmt::format("drawing images: {} of {} ({} %)", done, total, 100 * done / total));
  };
  return data::open_byte_dataset(options.spec, open);
}

// 24000 -> "24,000"
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<size_t>(i), 1, ',');
  }
  return digits;
}

std::string names_text(const std::vector<std::string>& names) {
  const bool all = names.size() <= kAllNamesShown;
  std::vector<std::string> shown;
  for (size_t i = 0; i < (all ? names.size() : kFewNames); ++i) shown.push_back(printable(names[i]));
  if (!all) shown.emplace_back("...");
  return fmt::format("{}: {}", grouped(static_cast<int64_t>(names.size())), fmt::join(shown, ", "));
}

std::string counts_text(const data::ByteImages& images, int64_t classes) {
  const std::vector<int64_t> counts = data::images_per_class(images.labels, classes);
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return fmt::format(
      "{} images, {} a class", grouped(images.size()),
      *least == *most ? grouped(*least) : fmt::format("{} to {}", grouped(*least), grouped(*most)));
}

std::string numbers_text(const std::vector<double>& numbers) {
  std::vector<std::string> texts;
  texts.reserve(numbers.size());
  for (const double number : numbers) texts.push_back(fmt::format("{:.4f}", number));
  return fmt::format("{}", fmt::join(texts, ", "));
}

void print_line(const char* label, const std::string& text) { fmt::print("{:<10} {}\n", label, text); }

void print_description(const data::ByteDataset& data) {
  const data::Description about = data::describe(data);
  const int64_t classes = static_cast<int64_t>(about.classes.size());
  const auto [name, rest] = split_spec(about.spec);
  print_line("data set",
             name == "strokes" ? data::to_spec(data::parse_strokes(rest)) : printable(about.spec));
  print_line("classes", names_text(about.classes));
  print_line("training", counts_text(data.train, classes));
  print_line("test", counts_text(data.test, classes));
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
  const data::ByteDataset data = open_with_progress(options);
  print_description(data);
  if (!options.preview.empty()) {
    write_atomically(options.preview,
                     contact_sheet_png(data.train, {options.preview_classes, options.preview_images}));
    print_line("preview", printable(options.preview));
  }
  if (options.check) print_check(data);
}

}  // namespace renorm::cli
