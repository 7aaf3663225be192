// The path of devices other than the CPU, forced on the CPU: the same results, and no value read by the host.
#include <ATen/record_function.h>

#include <limits>

#include "ops/batch_renorm.h"
#include "support.h"

namespace renorm::testing {
namespace {

class Device : public Seeded {
 protected:
  void SetUp() override {
    Seeded::SetUp();
    ops::force_composite(true);
  }
  void TearDown() override { ops::force_composite(false); }
};

// Names of operations that make the host wait for a device, or may move data to another one, while it exists.
// The arguments of an operation are not read: a Debug build of this file and a Release build of LibTorch
// disagree on where they are.
class WaitLog {
 public:
  WaitLog() {
    names().clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(observe));
  }
  ~WaitLog() { at::removeCallback(handle_); }
  WaitLog(const WaitLog&) = delete;
  WaitLog& operator=(const WaitLog&) = delete;

  static std::vector<std::string>& names() {
    static std::vector<std::string> all;
    return all;
  }

 private:
  static std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& function) {
    const auto op = function.operator_name();
    if (!op.has_value()) return nullptr;
    const std::string& name = op->name;
    const bool reads = name == "aten::_local_scalar_dense" || name == "aten::item" ||
                       name == "aten::is_nonzero" || name == "aten::equal" || name == "aten::nonzero";
    // Only this overload takes no device. On the CPU nothing moves, so that is all there is to see.
    const bool copies = name == "aten::to" && op->overload_name != "dtype";
    if (reads || copies) names().push_back(c10::toString(*op));
    return nullptr;
  }

  at::CallbackHandle handle_;
};

BatchRenormOptions options() {
  return BatchRenormOptions(5).momentum(0.2).group_size(3).clip(ClipSchedule::ramp(2, 1.5, 8, 0.5, 6));
}

void expect_same(const BatchRenorm2d& device, const BatchRenorm2d& host) {
  EXPECT_LE(relative_error(device->running_mean, host->running_mean), kFloatTolerance);
  EXPECT_LE(relative_error(device->running_std, host->running_std), kFloatTolerance);
  EXPECT_EQ(device->step(), host->step());
  const ClipTelemetry a = device->clip_telemetry();
  const ClipTelemetry b = host->clip_telemetry();
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.skipped, 0);
  EXPECT_EQ(a.r_clipped_above, b.r_clipped_above);
  EXPECT_EQ(a.r_clipped_below, b.r_clipped_below);
  EXPECT_EQ(a.d_clipped, b.d_clipped);
  for (const auto summary : {&ClipTelemetry::r, &ClipTelemetry::d}) {
    EXPECT_NEAR((a.*summary).mean, (b.*summary).mean, kFloatTolerance);
    EXPECT_NEAR((a.*summary).std, (b.*summary).std, kFloatTolerance);
    EXPECT_NEAR((a.*summary).min, (b.*summary).min, kFloatTolerance);
    EXPECT_NEAR((a.*summary).max, (b.*summary).max, kFloatTolerance);
  }
}

// A step of the layer, on the path of the CPU or of other devices.
torch::Tensor step(BatchRenorm2d layer, const torch::Tensor& input, bool on_device) {
  ops::force_composite(on_device);
  const torch::Tensor x = input.clone().requires_grad_();
  layer->forward(x).square().sum().backward();
  layer->commit();
  ops::force_composite(true);
  return x.grad();
}

TEST_F(Device, TrainsAsTheCpuDoes) {
  for (const auto statistics : {Statistics::kImmediate, Statistics::kDeferred}) {
    BatchRenorm2d device(options().statistics(statistics));
    BatchRenorm2d host(options().statistics(statistics));
    for (int i = 0; i < 12; ++i) {
      const auto x = torch::randn({6, 5, 3, 3}) * 2.0 + 1.0;
      EXPECT_LE(relative_error(step(device, x, true), step(host, x, false)), kFloatTolerance) << i;
    }
    expect_same(device, host);
  }
}

struct Use {
  const char* name;
  BatchRenormOptions options;
  bool trains = true;
  bool has_residual = false;
  bool by_batch = false;
};

std::vector<Use> uses() {
  const auto cumulative = options().momentum(Optional<double>());
  const auto relu = options().activation(Activation::kRelu);
  return {{"immediate", options()},
          {"deferred", options().statistics(Statistics::kDeferred)},
          {"cumulative", cumulative},
          {"strided groups", options().grouping(Grouping::kStrided)},
          {"without averages", options().track_running_stats(false)},
          {"residual", options(), true, true},
          {"strided groups with residual", options().grouping(Grouping::kStrided), true, true},
          {"ReLU", relu},
          {"inference", options(), false},
          {"inference with ReLU", relu, false},
          {"inference with residual", options(), false, true},
          {"batch statistics", options(), false, false, true},
          {"batch statistics with ReLU", relu, false, false, true},
          {"batch statistics with residual", options(), false, true, true}};
}

TEST_F(Device, ReadsNothingInAStep) {
  for (const Use& use : uses()) {
    SCOPED_TRACE(use.name);
    BatchRenorm2d layer(use.options);
    layer->train(use.trains);
    layer->use_batch_statistics(use.by_batch);
    const auto x = torch::randn({6, 5, 3, 3}).requires_grad_();
    const auto grad = torch::randn({6, 5, 3, 3});
    const auto residual = torch::randn({6, 5, 3, 3}).requires_grad_();
    const WaitLog log;
    for (int i = 0; i < 4; ++i) {
      (use.has_residual ? layer->forward_residual(x, residual) : layer->forward(x)).backward(grad);
    }
    EXPECT_EQ(WaitLog::names(), std::vector<std::string>{});
  }
}

TEST_F(Device, TheLogSeesReadsAndCopies) {
  BatchRenorm2d layer(options());
  layer->forward(torch::randn({6, 5, 3, 3}));
  const std::vector<std::function<void()>> calls{[&] { layer->clip_telemetry(); }, [&] { layer->step(); },
                                                 [&] { (void)layer->running_mean.to(torch::kCPU); },
                                                 [&] { (void)layer->running_mean.cpu(); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    const WaitLog log;
    calls[i]();
    EXPECT_FALSE(WaitLog::names().empty()) << i;
  }
}

// A layer that is not finite keeps the others from moving too.
TEST_F(Device, CommitsAllLayersOfAModelOrNone) {
  torch::nn::Sequential model{BatchRenorm2d(options()), BatchRenorm2d(options())};
  set_statistics(*model, Statistics::kDeferred);
  const auto layers = batch_renorm_layers(*model);
  const auto good = torch::randn({6, 5, 3, 3});
  layers[0].layer->forward(good);
  layers[1].layer->forward(good * std::numeric_limits<float>::infinity());
  EXPECT_THROW(commit(*model), NonFiniteStatistics);
  for (const auto& named : layers) EXPECT_EQ(named.layer->step(), 0);
  EXPECT_EQ(commit(*model), 0);
}

TEST_F(Device, SharesNoStatisticsWithOtherProcesses) {
  BatchRenorm2d layer(options().statistics(Statistics::kDeferred));
  layer->forward(torch::randn({6, 5, 3, 3}));
  expect_message([&] { (void)layer->collected(); },
                 {"renorm::BatchRenorm2d: collected: the layer must be on cpu, got "});
}

TEST_F(Device, ForgetsWhatWasCollectedOnAnother) {
  BatchRenorm2d layer(options().statistics(Statistics::kDeferred));
  layer->forward(torch::randn({6, 5, 3, 3}));
  layer->to(torch::kDouble);
  EXPECT_FALSE(layer->commit());
  EXPECT_EQ(layer->clip_telemetry().values, 0);
}

TEST_F(Device, SkipsStatisticsThatAreNotFinite) {
  auto bad = torch::randn({6, 5, 3, 3});
  bad[1][2][0][0] = std::numeric_limits<float>::quiet_NaN();
  const auto good = torch::randn({6, 5, 3, 3});

  BatchRenorm2d immediate(options());
  immediate->forward(good);
  const torch::Tensor mean = immediate->running_mean.clone();
  immediate->forward(bad);
  EXPECT_TRUE(torch::equal(immediate->running_mean, mean));
  EXPECT_EQ(immediate->step(), 1);
  EXPECT_EQ(immediate->clip_telemetry().skipped, 1);
  EXPECT_EQ(immediate->clip_telemetry().values, 10);

  BatchRenorm2d deferred(options().statistics(Statistics::kDeferred));
  deferred->forward(good);
  deferred->forward(bad);
  EXPECT_THROW(deferred->commit(), NonFiniteStatistics);
  EXPECT_TRUE(torch::equal(deferred->running_std, torch::ones({5})));
  EXPECT_EQ(deferred->step(), 0);
  EXPECT_FALSE(deferred->commit());
  deferred->forward(good);
  EXPECT_TRUE(deferred->commit());
  EXPECT_EQ(deferred->step(), 1);
}

}  // namespace
}  // namespace renorm::testing
