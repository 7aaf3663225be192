#include "data/unseen_classes.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::data {
namespace {

// The examples of some classes.
class ClassRange : public Split {
 public:
  ClassRange(std::shared_ptr<const Split> split, int64_t first, int64_t last) : split_(std::move(split)) {
    for (int64_t i = 0; i < split_->size(); ++i) {
      const int64_t label = split_->labels()[static_cast<size_t>(i)];
      if (label < first || label >= last) continue;
      examples_.push_back(i);
      labels_.push_back(label);
    }
  }
  const std::vector<int64_t>& labels() const override { return labels_; }
  int64_t pixels() const override { return split_->pixels(); }
  bool is_slow() const override { return split_->is_slow(); }
  Batch load(const std::vector<Draw>& draws) const override {
    std::vector<Draw> inner = draws;
    for (Draw& draw : inner) draw.index = examples_[static_cast<size_t>(draw.index)];
    return split_->load(inner);
  }

 private:
  std::shared_ptr<const Split> split_;
  std::vector<int64_t> examples_;  // their numbers in `split_`
  std::vector<int64_t> labels_;
};

void check_images(const Split& test, const std::vector<std::string>& classes, int64_t first) {
  std::vector<int64_t> images(classes.size());
  for (const int64_t label : test.labels()) ++images[static_cast<size_t>(label)];
  for (auto label = static_cast<size_t>(first); label < classes.size(); ++label) {
    if (images[label] >= 2) continue;
    throw UsageError(
        fmt::format("--objective metric needs 2 test images of each class that is not trained on, for one "
                    "finds another; '{}' has {}",
                    printable(classes[label]), images[label]));
  }
}

}  // namespace

Dataset with_unseen_classes(Dataset dataset, int64_t unseen) {
  std::vector<std::string>& classes = dataset.description.classes;
  const auto all = static_cast<int64_t>(classes.size());
  const int64_t seen = all - unseen;
  if (all < 3) {
    throw UsageError(
        fmt::format("--objective metric needs at least 3 classes, 2 to train on and 1 unseen; {} has {}",
                    printable(dataset.description.spec), all));
  }
  if (unseen < 1 || seen < 2) {
    throw UsageError(
        fmt::format("--unseen must be from 1 to {}, so that 2 of the {} classes of {} are trained on, got {}",
                    all - 2, all, printable(dataset.description.spec), unseen));
  }
  check_images(*dataset.test, classes, seen);
  const bool same = dataset.train == dataset.plain_train;
  dataset.plain_train = std::make_shared<ClassRange>(dataset.plain_train, 0, seen);
  dataset.train = same ? dataset.plain_train : std::make_shared<ClassRange>(dataset.train, 0, seen);
  dataset.test = std::make_shared<ClassRange>(dataset.test, seen, all);
  classes.resize(static_cast<size_t>(seen));
  return dataset;
}

}  // namespace renorm::data
