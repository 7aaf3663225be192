// Images that are deleted while a run trains on them.
#include <filesystem>
#include <fstream>

#include "../data/image_files.h"
#include "run_support.h"

namespace renorm::train {
namespace {

namespace fs = std::filesystem;
using testing::expect_parts;
using testing::message_of;
using testing::Recorder;

class VanishedData : public testing::Run {
 protected:
  void SetUp() override {
    Run::SetUp();
    uint64_t seed = 1;
    for (const char* folder : {"train/ant", "train/bee", "val/ant", "val/bee"}) {
      const std::string path = folder_.path(std::string("images/") + folder);
      fs::create_directories(path);
      for (int i = 0; i < 4; ++i) {
        std::ofstream(path + "/" + std::to_string(i) + ".png", std::ios::binary)
            << data::testing::png_file(data::testing::noisy_image(8, 8, 3, seed++));
      }
    }
    config_.data = "folder:" + folder_.path("images");
    config_.image_size = 8;
    config_.workers = 1;
    config_.minibatch = 4;
  }

  // Trains in `name` until the images of the split are missed, which vanish after a step. Returns the last
  // step done.
  int64_t train_until_missing(const std::string& name, const std::string& split, int64_t vanish_after) {
    const std::string images = folder_.path("images/" + split);
    Recorder recorder;
    recorder.after_step = [&](int64_t step) {
      if (step == vanish_after) fs::rename(images, folder_.path("gone"));
    };
    const RunRequest started = request(name);
    expect_parts(message_of<MissingInputError>([&] { run(started, recorder); }), {images});
    fs::rename(folder_.path("gone"), images);
    return recorder.steps.back();
  }

  int64_t newest_step(const std::string& name) const {
    return CheckpointFolder(folder_.path(name) + "/checkpoints").newest(nullptr).state.step;
  }

  std::vector<std::string> summary(const std::string& name) const {
    std::vector<std::string> rows;
    std::ifstream file(folder_.path(name) + "/summary.csv");
    // The last two columns depend on the clock.
    for (std::string line; std::getline(file, line);) {
      for (int i = 0; i < 2; ++i) line.resize(line.rfind(','));
      rows.push_back(line);
    }
    return rows;
  }
};

TEST_F(VanishedData, TheStepsDoneAreSavedWhenTrainingImagesVanish) {
  finish("whole");
  const int64_t done = train_until_missing("parts", "train", 6);
  EXPECT_GE(done, 6);
  EXPECT_EQ(newest_step("parts"), done);
  finish("parts", /*resume=*/true);
  expect_same_state("whole", "parts");
}

// LibTorch's norms move their averages in each pass, also in those of a step that is not finished.
TEST_F(VanishedData, PassesOfAnUnfinishedStepLeaveNoTrace) {
  config_.norm = NormKind::kNative;
  config_.workers = 4;
  finish("whole");
  const int64_t done = train_until_missing("parts", "train", 3);
  EXPECT_EQ(newest_step("parts"), done);
  finish("parts", /*resume=*/true);
  expect_same_state("whole", "parts");
}

TEST_F(VanishedData, AStepWhoseEvaluationFailedIsEvaluatedWhenTheRunIsResumed) {
  finish("whole");
  EXPECT_EQ(train_until_missing("parts", "val", 8), 10);
  EXPECT_EQ(newest_step("parts"), 10);
  finish("parts", /*resume=*/true);
  expect_same_state("whole", "parts");
  EXPECT_EQ(summary("parts"), summary("whole"));
}

TEST_F(VanishedData, TheLastEvaluationIsMadeUpFor) {
  const RunResult whole = finish("whole");
  EXPECT_EQ(train_until_missing("parts", "val", 18), 20);
  const RunResult parts = finish("parts", /*resume=*/true);
  EXPECT_EQ(parts.last.step, 20);
  EXPECT_EQ(parts.last.averaged.accuracy, whole.last.averaged.accuracy);
  EXPECT_EQ(parts.best_step, whole.best_step);
  expect_same_state("whole", "parts");
  EXPECT_EQ(summary("parts"), summary("whole"));
}

// Skipping is for single images.
TEST_F(VanishedData, AWholeSplitIsNotSkipped) {
  config_.on_bad_image = data::OnBadImage::kSkip;
  finish("whole");
  const int64_t done = train_until_missing("parts-1", "train", 6);
  EXPECT_EQ(newest_step("parts-1"), done);
  EXPECT_EQ(train_until_missing("parts-2", "val", 8), 10);
  for (const char* name : {"parts-1", "parts-2"}) {
    finish(name, /*resume=*/true);
    expect_same_state("whole", name);
  }
}

TEST_F(VanishedData, AWholeClassIsNotSkipped) {
  config_.on_bad_image = data::OnBadImage::kSkip;
  finish("whole");
  const int64_t done = train_until_missing("parts", "train/ant", 6);
  EXPECT_EQ(newest_step("parts"), done);
  finish("parts", /*resume=*/true);
  expect_same_state("whole", "parts");
}

TEST_F(VanishedData, NothingIsSavedBeforeTheFirstStep) {
  Recorder recorder;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path("images/train"))) {
    if (entry.is_regular_file()) std::ofstream(entry.path()) << "no image";
  }
  EXPECT_THROW(run(request("run"), recorder), DataError);
  EXPECT_TRUE(recorder.steps.empty());
  EXPECT_TRUE(list_folder(folder_.path("run/checkpoints")).empty());
}

}  // namespace
}  // namespace renorm::train
