// Shared by the tests of the trainer: a tiny data set and a tiny run.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "train/config.h"
#include "train/settings.h"

namespace renorm::testing {

// Images in memory, of any values.
class TinySplit : public data::Split {
 public:
  TinySplit(torch::Tensor images, std::vector<int64_t> labels)
      : images_(std::move(images)), labels_(std::move(labels)) {}

  const std::vector<int64_t>& labels() const override { return labels_; }
  int64_t pixels() const override { return images_.size(2) * images_.size(3); }
  data::Batch load(const std::vector<data::Draw>& draws) const override {
    std::vector<int64_t> indices;
    std::vector<int64_t> labels;
    for (const data::Draw& draw : draws) {
      indices.push_back(draw.index);
      labels.push_back(labels_.at(static_cast<size_t>(draw.index)));
      tickets.push_back(draw.ticket);
    }
    return {images_.index_select(0, torch::tensor(indices, torch::kLong)),
            torch::tensor(labels, torch::kLong)};
  }

  bool is_slow() const override { return slow; }

  bool slow = false;
  mutable std::vector<uint64_t> tickets;  // of all examples loaded so far

 private:
  torch::Tensor images_;
  std::vector<int64_t> labels_;
};

constexpr int64_t kTinyClasses = 4;

// Each class has a pattern of its own; an image is its class's pattern and noise.
inline std::shared_ptr<TinySplit> tiny_split(int64_t count, uint64_t seed) {
  torch::manual_seed(7);
  const torch::Tensor patterns = torch::randn({kTinyClasses, 1, 8, 8});
  torch::manual_seed(seed);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back(i % kTinyClasses);
  const torch::Tensor images =
      patterns.index_select(0, torch::tensor(labels)) + 0.5 * torch::randn({count, 1, 8, 8});
  return std::make_shared<TinySplit>(images, labels);
}

inline data::Dataset tiny_dataset() {
  data::Dataset dataset;
  dataset.description.spec = "tiny";
  dataset.description.classes = {"a", "b", "c", "d"};
  dataset.description.channels = 1;
  dataset.description.height = 8;
  dataset.description.width = 8;
  dataset.description.mean = {0.0};
  dataset.description.std = {1.0};
  dataset.train = tiny_split(64, 1);
  dataset.test = tiny_split(20, 2);
  return dataset;
}

// Four minibatches of eight images per step, each normalized in groups of four; two normalized layers.
inline train::Config tiny_config() {
  train::Config config;
  config.data = "strokes:classes=4,train=16,test=5,size=8";
  config.model = "convnet:8,8/2";
  config.workers = 4;
  config.minibatch = 8;
  config.microbatch = 4;
  config.steps = 50;
  config.threads = 1;
  config.log_every = 5;
  config.eval_every = 10;
  config.checkpoint_every = 5;
  return config;
}

// A folder that is gone when the test ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "renorm-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The message of an Error that `call` throws; a failure of the test if it throws none.
template <typename Error>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "the expected error was not thrown";
  return "";
}

inline void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
}

}  // namespace renorm::testing
