#include "record/eval_result.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "temporary_folder.h"

namespace renorm::record {
namespace {

using renorm::testing::expect_error;

EvalResult sample() {
  EvalResult result;
  result.run = "runs/a";
  result.checkpoint = "runs/a/checkpoints/step-20";
  result.step = 20;
  result.data = "mnist:/data";
  result.split = "test";
  result.images = 4;
  result.skipped_images = 1;
  result.averaged = {75.0, 0.5};
  result.raw = {50.0, 1.5};
  result.per_class = {{"zero", 3, 2, 200.0 / 3.0}, {"one", 1, 1, 100.0}};
  return result;
}

TEST(EvalResult, IsWrittenInAFixedOrder) {
  EXPECT_EQ(to_json(sample()), R"({
  "run": "runs/a",
  "checkpoint": "runs/a/checkpoints/step-20",
  "step": 20,
  "data": "mnist:/data",
  "split": "test",
  "images": 4,
  "skipped_images": 1,
  "accuracy": 75.0,
  "loss": 0.5,
  "raw_accuracy": 50.0,
  "raw_loss": 1.5,
  "batch_statistics": false,
  "sampler": null,
  "per_class": [
    {
      "name": "zero",
      "images": 3,
      "correct": 2,
      "accuracy": 66.66666666666667
    },
    {
      "name": "one",
      "images": 1,
      "correct": 1,
      "accuracy": 100.0
    }
  ]
}
)");
}

TEST(EvalResult, ComesBackAsItWas) {
  EvalResult result = sample();
  result.batch_statistics = true;
  result.sampler = "iid x 32";
  EXPECT_EQ(to_json(parse_eval_result(to_json(result), "x")), to_json(result));
}

TEST(EvalResult, MayHaveMoreOrNoSkippedImages) {
  std::string text = to_json(sample());
  text.replace(text.find("\"skipped_images\""), 16, "\"from_the_future\"");
  EXPECT_EQ(parse_eval_result(text, "x").skipped_images, 0);
}

TEST(EvalResult, NamesWhatIsWrong) {
  expect_error<DataError>("a.json: an evaluation must be a JSON object",
                          [] { parse_eval_result("[]", "a.json"); });
  expect_error<DataError>("a.json: 'run' is missing", [] { parse_eval_result("{}", "a.json"); });
  std::string text = to_json(sample());
  text.replace(text.find("20,"), 2, "-1");
  expect_error<DataError>("'step' must be a whole number of at least 0, got -1",
                          [&] { parse_eval_result(text, "x"); });
}

}  // namespace
}  // namespace renorm::record
