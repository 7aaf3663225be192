#include "data/folder_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "data/image_decode.h"
#include "data/parallel.h"

namespace renorm::data {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kAlwaysSkipped = 10;  // bad files that are skipped even in a small split
constexpr int64_t kShareSkipped = 100;  // in a larger one, one in so many

enum class Role { kTraining, kEvaluation };

// Shared by the splits.
struct Folder {
  FolderIndex index;
  std::string spec;
  ImageOptions images;
  int threads;
  std::vector<ByteTable> tables;
};

// The result of one draw.
struct Outcome {
  bool shown = false;
  std::vector<std::pair<int64_t, ImageFault>> faults;  // with the index of the image
};

class FolderSplit : public Split {
 public:
  // `images` are one of the folder's lists.
  FolderSplit(std::shared_ptr<const Folder> folder, Role role, const ImageList& images)
      : folder_(std::move(folder)),
        role_(role),
        images_(images),
        max_bad_(std::max(kAlwaysSkipped, images_.size() / kShareSkipped)) {}

  const std::vector<int64_t>& labels() const override { return images_.labels(); }
  int64_t pixels() const override { return side() * side(); }
  bool is_slow() const override { return true; }

  Batch load(const std::vector<Draw>& draws) const override {
    for (const Draw& draw : draws) check(draw.index);
    const auto count = static_cast<int64_t>(draws.size());
    Batch batch{torch::empty({count, kChannels, side(), side()}, torch::kFloat),
                torch::empty({count}, torch::kLong)};
    float* const pixels = batch.images.data_ptr<float>();
    std::vector<Outcome> outcomes(draws.size());
    for_each_number(count, folder_->threads, [&](int64_t i) {
      const auto place = static_cast<size_t>(i);
      outcomes[place] = show(draws[place], pixels + i * image_floats());
    });
    remember(outcomes);
    close_gaps(draws, outcomes, &batch);
    return batch;
  }

 private:
  int64_t side() const { return folder_->images.transform.size; }
  int64_t image_floats() const { return kChannels * pixels(); }

  void check(int64_t index) const {
    if (index >= 0 && index < size()) return;
    throw std::out_of_range(fmt::format("example {} of a split of {}", index, size()));
  }

  bool of_training() const { return &images_ == &folder_->index.train; }

  std::string path_of(int64_t index) const {
    return of_training() ? folder_->index.train_path(index) : folder_->index.val_path(index);
  }

  // Throws if the image cannot be read.
  void read(const Draw& draw, float* out) const {
    const std::string path = path_of(draw.index);
    const std::string bytes = read_image_file(path);
    const TransformOptions& transform = folder_->images.transform;
    RandomStream stream = stream_for(folder_->images.seed, draw);
    const Image image = role_ == Role::kTraining ? training_image(bytes, path, transform, stream)
                                                 : evaluation_image(bytes, path, transform);
    standardize(image.pixels.data(), pixels(), 1, kChannels, folder_->tables, out);
  }

  Outcome show(const Draw& draw, float* out) const {
    Outcome outcome;
    if (folder_->images.on_bad_image == OnBadImage::kFail) {
      read(draw, out);
      outcome.shown = true;
      return outcome;
    }
    Draw tried = draw;
    do {
      std::optional<ImageFault> fault = fault_of([&] { read(tried, out); });
      outcome.shown = !fault;
      if (outcome.shown) return outcome;
      outcome.faults.emplace_back(tried.index, std::move(*fault));
      // More are refused anyway, so there is no need to try a whole class.
      const bool enough = static_cast<int64_t>(outcome.faults.size()) > max_bad_;
      if (role_ == Role::kEvaluation || enough) return outcome;
      tried.index = next_of_class(tried.index);
    } while (tried.index != draw.index);
    refuse_class(draw.index, outcome);
  }

  // In the order of the index, the first of the class after the last. An index holds class after class.
  int64_t next_of_class(int64_t index) const {
    const std::vector<int64_t>& all = labels();
    const auto [first, last] = std::equal_range(all.begin(), all.end(), all[static_cast<size_t>(index)]);
    const auto next = all.begin() + index + 1;
    return (next == last ? first : next) - all.begin();
  }

  [[noreturn]] void refuse_class(int64_t index, const Outcome& outcome) const {
    check_folder();
    const std::string& name =
        folder_->index.classes[static_cast<size_t>(labels()[static_cast<size_t>(index)])];
    const std::string message =
        fmt::format("'{}': none of the {} training images of this class can be read; for the last one: {}",
                    printable(folder_->index.train_folder + "/" + name), outcome.faults.size(),
                    outcome.faults.back().second.reason);
    const bool missing = std::all_of(outcome.faults.begin(), outcome.faults.end(),
                                     [](const auto& fault) { return fault.second.is_missing; });
    if (missing) throw MissingInputError(message);
    throw DataError(message);
  }

  // Single images are skipped, but not a split whose folder has vanished.
  void check_folder() const {
    const std::string& folder = of_training() ? folder_->index.train_folder : folder_->index.val_folder;
    std::error_code error;
    if (std::filesystem::exists(folder, error)) return;
    throw MissingInputError(fmt::format("cannot read the images in '{}': {}", printable(folder),
                                        error ? error.message() : "there is no such folder any more"));
  }

  // In the order of the batch, so that the number of threads does not change the message.
  void remember(const std::vector<Outcome>& outcomes) const {
    const bool all_good = std::all_of(outcomes.begin(), outcomes.end(),
                                      [](const Outcome& outcome) { return outcome.faults.empty(); });
    if (!all_good) check_folder();
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Outcome& outcome : outcomes) {
      for (const auto& [index, fault] : outcome.faults) {
        bad_[index] = fault.is_missing;
        if (static_cast<int64_t>(bad_.size()) > max_bad_) give_up(fault.reason);
      }
    }
  }

  // A few damaged images found before do not hide that a folder has vanished.
  [[noreturn]] void give_up(const std::string& reason) const {
    const auto missing = static_cast<size_t>(
        std::count_if(bad_.begin(), bad_.end(), [](const auto& image) { return image.second; }));
    if (2 * missing > bad_.size()) {
      throw MissingInputError(fmt::format(
          "{} of the {} {} images are missing or bad, more than the {} that are skipped; the last one: {}",
          bad_.size(), size(), of_training() ? "training" : "test", max_bad_, reason));
    }
    const double fraction = folder_->images.val_fraction;
    throw DataError(fmt::format(
        "{} of the {} {} images were found bad, more than the {} that are skipped; the last one: {}; all are "
        "listed by: renorm data {} --check{}",
        bad_.size(), size(), of_training() ? "training" : "test", max_bad_, reason,
        printable(shell_quoted(folder_->spec)),
        fraction > 0.0 ? " --val-fraction " + shortest(fraction) : ""));
  }

  // Sets the labels, and moves images up to where some were left out.
  void close_gaps(const std::vector<Draw>& draws, const std::vector<Outcome>& outcomes, Batch* batch) const {
    float* const pixels = batch->images.data_ptr<float>();
    int64_t* const shown_labels = batch->labels.data_ptr<int64_t>();
    int64_t kept = 0;
    for (size_t i = 0; i < outcomes.size(); ++i) {
      if (!outcomes[i].faults.empty()) ++batch->skipped;
      if (!outcomes[i].shown) continue;
      const auto from = static_cast<int64_t>(i);
      if (kept < from) {
        std::memcpy(pixels + kept * image_floats(), pixels + from * image_floats(),
                    static_cast<size_t>(image_floats()) * sizeof(float));
      }
      shown_labels[kept++] = labels()[static_cast<size_t>(draws[i].index)];
    }
    batch->images = batch->images.narrow(0, 0, kept);
    batch->labels = batch->labels.narrow(0, 0, kept);
  }

  std::shared_ptr<const Folder> folder_;
  Role role_;
  const ImageList& images_;
  int64_t max_bad_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, bool> bad_;  // found so far; whether they are missing
};

void add_names(const ImageList& list, std::string* names) {
  for (int64_t i = 0; i < list.size(); ++i) names->append(list.name(i)).push_back('\0');
}

}  // namespace

Description describe_folder(const FolderIndex& index, const TransformOptions& transform) {
  Description description;
  description.classes = shown_classes(index.classes, index.train_folder);
  description.channels = kChannels;
  description.height = transform.size;
  description.width = transform.size;
  description.mean = {0.485, 0.456, 0.406};
  description.std = {0.229, 0.224, 0.225};
  description.centre = transform.centre;
  std::string names;
  for (const std::string& name : index.classes) names.append(name).push_back('\0');
  add_names(index.train, &names);
  add_names(index.val, &names);
  description.fingerprint = fingerprint_of(index.train.labels(), index.val.labels(), names);
  return description;
}

Dataset folder_dataset(FolderIndex index, const std::string& spec, const OpenOptions& options) {
  Dataset dataset;
  dataset.description = describe_folder(index, options.images.transform);
  dataset.description.spec = spec;
  const auto folder = std::make_shared<const Folder>(Folder{
      std::move(index), spec, options.images, options.threads, standardizing_tables(dataset.description)});
  const FolderIndex& all = folder->index;
  dataset.train = std::make_shared<FolderSplit>(folder, Role::kTraining, all.train);
  dataset.plain_train = std::make_shared<FolderSplit>(folder, Role::kEvaluation, all.train);
  dataset.test = std::make_shared<FolderSplit>(folder, Role::kEvaluation, all.val);
  return dataset;
}

}  // namespace renorm::data
