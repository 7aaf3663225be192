#include "data/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/text.h"

namespace renorm::data {
namespace {

constexpr size_t kShown = 5;  // of a long list

std::string_view bytes_of(const ByteImages& images, int64_t index) {
  return {reinterpret_cast<const char*>(images.image(index)), static_cast<size_t>(images.image_bytes())};
}

// "3, 5, 8, 9, 12 and 20 more"
std::string first_few(const std::vector<std::string>& list) {
  std::vector<std::string> shown(list);
  shown.resize(std::min(list.size(), kShown));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (list.size() > kShown) text += fmt::format(" and {} more", list.size() - kShown);
  return text;
}

std::vector<std::string> empty_classes(const ByteDataset& data, const ByteImages& split) {
  const std::vector<int64_t> counts =
      images_per_class(split.labels, static_cast<int64_t>(data.classes.size()));
  std::vector<std::string> names;
  for (size_t label = 0; label < counts.size(); ++label) {
    if (counts[label] == 0) names.push_back(printable(data.classes[label]));
  }
  return names;
}

std::vector<std::string> constant_images(const ByteImages& images) {
  std::vector<std::string> numbers;
  for (int64_t i = 0; i < images.size(); ++i) {
    const std::string_view bytes = bytes_of(images, i);
    if (bytes.find_first_not_of(bytes.front()) == std::string_view::npos)
      numbers.push_back(std::to_string(i));
  }
  return numbers;
}

std::vector<std::string> seen_in_training(const ByteDataset& data) {
  std::vector<std::string> numbers;
  if (data.train.image_bytes() != data.test.image_bytes()) return numbers;
  std::unordered_set<std::string_view> train;
  for (int64_t i = 0; i < data.train.size(); ++i) train.insert(bytes_of(data.train, i));
  for (int64_t i = 0; i < data.test.size(); ++i) {
    if (train.count(bytes_of(data.test, i)) > 0) numbers.push_back(std::to_string(i));
  }
  return numbers;
}

void add(std::vector<std::string>* sentences, const std::vector<std::string>& list, const char* one,
         const char* many, const char* what) {
  if (list.empty()) return;
  sentences->push_back(
      fmt::format("{} {} {}: {}", list.size(), list.size() == 1 ? one : many, what, first_few(list)));
}

}  // namespace

std::vector<int64_t> images_per_class(const std::vector<int64_t>& labels, int64_t classes) {
  std::vector<int64_t> counts(static_cast<size_t>(classes), 0);
  for (const int64_t label : labels) ++counts[static_cast<size_t>(label)];
  return counts;
}

Inspection inspect(const ByteDataset& data) {
  Inspection found;
  add(&found.faults, empty_classes(data, data.train), "class", "classes", "without training images");
  add(&found.faults, constant_images(data.train), "training image", "training images",
      "of a single value, by number");
  add(&found.faults, constant_images(data.test), "test image", "test images", "of a single value, by number");
  add(&found.notes, empty_classes(data, data.test), "class", "classes", "without test images");
  add(&found.notes, seen_in_training(data), "test image", "test images", "found in training too, by number");
  return found;
}

}  // namespace renorm::data
