// The operator that counts how often the limits clipped r and d.
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

}  // namespace
}  // namespace renorm::test
