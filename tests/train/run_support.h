// A small run in a temporary folder, and an observer that records it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "support.h"
#include "train/opened_run.h"
#include "train/run.h"

namespace renorm::testing {

// Records everything, and requests a stop after a step.
class Recorder : public train::Observer {
 public:
  void note(const std::string& sentence) override { notes.push_back(sentence); }
  void stepped(const train::Trainer& trainer, const train::StepResult& /*result*/) override {
    steps.push_back(trainer.steps_done());
    if (trainer.steps_done() == stop_after) stop = true;
    if (after_step) after_step(trainer.steps_done());
  }
  void evaluated(const record::EvaluationRecord& record) override { evaluations.push_back(record); }

  std::vector<std::string> notes;
  std::vector<int64_t> steps;
  std::vector<record::EvaluationRecord> evaluations;
  int64_t stop_after = -1;
  std::atomic<bool> stop{false};
  std::function<void(int64_t step)> after_step;
};

class Run : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("RENORM_CACHE", folder_.path("cache").c_str(), 1);
    config_ = tiny_config();
    config_.steps = 20;
  }

  train::RunRequest request(const std::string& name, bool resume = false) const {
    train::RunRequest request;
    request.config = config_;
    request.folder = folder_.path(name);
    request.resume = resume;
    return request;
  }

  train::RunResult finish(const std::string& name, bool resume = false) {
    Recorder recorder;
    return train::run(request(name, resume), recorder);
  }

  void interrupt(const std::string& name, int64_t step, bool resume = false) {
    Recorder recorder;
    recorder.stop_after = step;
    train::RunRequest stopped = request(name, resume);
    stopped.stop = &recorder.stop;
    EXPECT_THROW(train::run(stopped, recorder), Interrupted);
    EXPECT_EQ(recorder.steps.back(), step);
  }

  std::string last_file(const std::string& name, const std::string& file) const {
    return read_file(folder_.path(name) + "/checkpoints/last/" + file);
  }

  void expect_same_state(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "average.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(last_file(a, file) == last_file(b, file)) << file;
    }
    EXPECT_EQ(timeless_metrics(a), timeless_metrics(b));
  }

  // metrics.jsonl without the id of the run and the fields that depend on the clock.
  std::vector<std::string> timeless_metrics(const std::string& name) const {
    std::vector<std::string> lines;
    std::ifstream file(folder_.path(name) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      nlohmann::json json = nlohmann::json::parse(line);
      json.erase("images_per_second");
      json.erase("data_wait_percent");
      json.erase("seconds");
      json.erase("run");
      lines.push_back(json.dump());
    }
    return lines;
  }

  TemporaryFolder folder_;
  train::Config config_;
};

}  // namespace renorm::testing
