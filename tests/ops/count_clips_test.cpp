// The operator that counts how often the limits clipped r and d, and the one that also normalizes and moves.
#include <ATen/core/dispatch/Dispatcher.h>

#include <limits>

#include "ops/batch_renorm.h"
#include "tensors.h"

namespace renorm::test {
namespace {

using Count = void(at::Tensor, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                   const at::Tensor&, int64_t, double, int64_t, double, int64_t);

struct Statistics {
  explicit Statistics(at::ScalarType type)
      : batch_mean(at::randn({5, 37}, type)),
        batch_std(at::rand({5, 37}, type) + 0.5),
        running_mean(at::randn({37}, type)),
        running_std(at::rand({37}, type) + 0.5) {}

  std::vector<int64_t> count(const ops::ClipRamp& clip, int64_t step, int64_t start = 0) const {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(ops::kCountOp, "").typed<Count>();
    const at::Tensor counts = at::full({4}, start, at::kLong);
    op.call(counts, batch_mean, batch_std, running_mean, running_std, at::full({}, step, at::kLong),
            clip.hold, clip.r_max, clip.r_step, clip.d_max, clip.d_step);
    return {counts.data_ptr<int64_t>(), counts.data_ptr<int64_t>() + 4};
  }

  at::Tensor batch_mean;
  at::Tensor batch_std;
  at::Tensor running_mean;
  at::Tensor running_std;
};

constexpr ops::ClipRamp kRamp{3, 1.5, 13, 1.0, 8};

class CountClips : public Seeded {};

TEST_F(CountClips, AgreesWithTheDefinition) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Statistics s(type);
    for (const int64_t step : {0, 5, 9, 20}) {
      const ClipLimits limits = kRamp.at(step);
      const at::Tensor r = s.batch_std / s.running_std;
      const at::Tensor d = (s.batch_mean - s.running_mean) / s.running_std;
      const std::vector<int64_t> expected{r.numel(), r.gt(limits.r_max).sum().item<int64_t>(),
                                          r.lt(1.0 / limits.r_max).sum().item<int64_t>(),
                                          d.abs().gt(limits.d_max).sum().item<int64_t>()};
      EXPECT_EQ(s.count(kRamp, step), expected) << "step " << step;
      ops::force_composite(true);
      const std::vector<int64_t> elsewhere = s.count(kRamp, step);
      ops::force_composite(false);
      EXPECT_EQ(elsewhere, expected) << "step " << step;
    }
  }
}

TEST_F(CountClips, AddsToTheCounts) {
  const Statistics s(at::kFloat);
  const std::vector<int64_t> once = s.count(kRamp, 9);
  const std::vector<int64_t> more = s.count(kRamp, 9, 100);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(more[i], once[i] + 100);
}

TEST_F(CountClips, NeverValuesThatAreNotFinite) {
  Statistics s(at::kFloat);
  s.batch_std[2][7] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(s.count(kRamp, 9), std::vector<int64_t>(4, 0));
  ops::force_composite(true);
  const std::vector<int64_t> elsewhere = s.count(kRamp, 9);
  ops::force_composite(false);
  EXPECT_EQ(elsewhere, std::vector<int64_t>(4, 0));
}

TEST_F(CountClips, NamesBadArguments) {
  Statistics s(at::kFloat);
  s.running_std = at::ones({36});
  EXPECT_EQ(message_of([&] { s.count(kRamp, 9); }),
            "renorm::count_clips_: running_mean and running_std must have 37 channels, got sizes [36]");
  s.running_std = at::ones({37}, at::kDouble);
  EXPECT_EQ(
      message_of([&] { s.count(kRamp, 9); }),
      "renorm::count_clips_: averages and statistics must have one dtype and device, got Float on cpu and "
      "Double on cpu");
}

using Train = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const Optional<at::Tensor>&,
                                                 const Optional<at::Tensor>&, at::Tensor, at::Tensor,
                                                 at::Tensor, at::Tensor, Optional<double>, int64_t, double,
                                                 int64_t, double, int64_t, double, int64_t, c10::string_view,
                                                 c10::string_view, const Optional<at::Tensor>&, bool);

class TrainInOneCall : public Seeded {};

TEST_F(TrainInOneCall, EqualsTheThreeOperators) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(ops::kTrainOp, "").typed<Train>();
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor input = at::randn({6, 5, 4}, type);
    const at::Tensor weight = (at::rand({5}, type) + 0.5).requires_grad_();
    const at::Tensor mean = at::randn({5}, type);
    const at::Tensor std = at::rand({5}, type) + 0.5;
    const at::Tensor step = at::full({}, 9, at::kLong);
    ops::BatchRenormArguments arguments;
    arguments.group_size = 3;
    arguments.activation = Activation::kRelu;
    const auto expected = ops::batch_renorm_step(input, weight, {}, mean, std, step, kRamp, arguments);
    const std::vector<at::Tensor> moved{mean.clone(), std.clone(), step.clone()};
    const at::Tensor counts = at::zeros({4}, at::kLong);
    const auto [output, record] =
        op.call(input, weight, {}, moved[0], moved[1], moved[2], counts, 0.25, kRamp.hold, kRamp.r_max,
                kRamp.r_step, kRamp.d_max, kRamp.d_step, 1e-5, 3, "contiguous", "relu", {}, /*record=*/true);
    EXPECT_TRUE(at::equal(output, expected.output));
    EXPECT_TRUE(output.requires_grad());
    EXPECT_FALSE(record.requires_grad());
    const at::Tensor used =
        at::cat({mean.to(at::kDouble), std.to(at::kDouble), expected.batch_mean.to(at::kDouble).sum(0),
                 expected.batch_std.to(at::kDouble).sum(0), at::full({1}, 9.0, at::kDouble)});
    EXPECT_TRUE(at::equal(record, used));
    const std::vector<at::Tensor> by_hand{mean.clone(), std.clone(), step.clone()};
    ops::move_averages_(by_hand[0], by_hand[1], by_hand[2], expected.batch_mean, expected.batch_std, 0.25);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(moved[i], by_hand[i])) << i;
    EXPECT_EQ(counts[0].item<int64_t>(), 10);
  }
}

TEST_F(TrainInOneCall, RecordsNothingUnlessAsked) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(ops::kTrainOp, "").typed<Train>();
  const auto [output, record] =
      op.call(at::randn({6, 5}), {}, {}, at::zeros({5}), at::ones({5}), at::zeros({}, at::kLong),
              at::zeros({4}, at::kLong), {}, -1, 3.0, 0, 5.0, 0, 1e-5, 0, "contiguous", "none", {}, false);
  EXPECT_EQ(record.numel(), 0);
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{6, 5}));
}

}  // namespace
}  // namespace renorm::test
