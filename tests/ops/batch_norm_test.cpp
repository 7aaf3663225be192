// The two ends of Batch Renormalization: limits (1, 0) are batchnorm, no limits are inference.
#include "cases.h"

namespace renorm::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<Case> shapes_and_memories() {
  std::vector<Case> cases;
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto& sizes :
         std::vector<std::vector<int64_t>>{{16, 7}, {8, 5, 9}, {4, 16, 5, 3}, {2, 3, 4, 3, 5}}) {
      for (const auto memory : {Memory::kContiguous, Memory::kChannelsLast, Memory::kSliced}) {
        Case c;
        c.type = type;
        c.sizes = sizes;
        c.input_memory = memory;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

at::Tensor variance_of(const at::Tensor& running_std, double eps) { return running_std.square() - eps; }

class BatchNorm : public Seeded {};

TEST_F(BatchNorm, IsTrainingWithLimitsOneAndZero) {
  for (const Case& c : shapes_and_memories()) {
    SCOPED_TRACE(describe(c));
    const Tensors t = make_tensors(c);
    const ops::BatchRenormArguments arguments;
    const auto forward = train(t, arguments);
    const auto [dinput, dweight, dbias, dresidual] = backward(t, forward, arguments);
    const auto [output, batch_mean, inv_std] =
        at::native_batch_norm(t.input, t.weight, t.bias, {}, {}, /*training=*/true, 0.1, arguments.eps);
    const auto [native_dinput, native_dweight, native_dbias] =
        at::native_batch_norm_backward(t.grad_output, t.input, t.weight, {}, {}, batch_mean, inv_std,
                                       /*train=*/true, arguments.eps, {true, true, true});
    const double bound = tolerance(c.type);
    EXPECT_LE(error_of(forward.output, output), bound);
    EXPECT_LE(error_of(forward.batch_mean[0], batch_mean), bound);
    EXPECT_LE(error_of(forward.batch_std[0].reciprocal(), inv_std), bound);
    EXPECT_LE(error_of(dinput, native_dinput), bound);
    EXPECT_LE(error_of(dweight, native_dweight), bound);
    EXPECT_LE(error_of(dbias, native_dbias), bound);
  }
}

TEST_F(BatchNorm, IsTrainingWithoutAveragesWhateverTheLimits) {
  for (Case c : shapes_and_memories()) {
    SCOPED_TRACE(describe(c));
    c.has_averages = false;
    c.arguments.r_max = 3.0;
    c.arguments.d_max = 5.0;
    const Tensors t = make_tensors(c);
    const auto forward = train(t, c.arguments);
    const at::Tensor output = std::get<0>(at::native_batch_norm(t.input, t.weight, t.bias, {}, {},
                                                                /*training=*/true, 0.1, c.arguments.eps));
    EXPECT_LE(error_of(forward.output, output), tolerance(c.type));
    EXPECT_TRUE(forward.r.eq(1.0).all().item<bool>());
    EXPECT_TRUE(forward.d.eq(0.0).all().item<bool>());
  }
}

TEST_F(BatchNorm, InferenceIsInferenceWithTheVarianceOfTheAverages) {
  for (const Case& c : shapes_and_memories()) {
    SCOPED_TRACE(describe(c));
    const Tensors t = make_tensors(c);
    const double eps = 1e-5;
    const at::Tensor output =
        std::get<0>(at::native_batch_norm(t.input, t.weight, t.bias, t.running_mean,
                                          variance_of(t.running_std, eps), /*training=*/false, 0.1, eps));
    EXPECT_LE(error_of(infer(t, Activation::kNone), output), tolerance(c.type));
  }
}

TEST_F(BatchNorm, IsLeftBehindWithoutLimits) {
  for (Case c : shapes_and_memories()) {
    c.arguments.r_max = kInfinity;
    c.arguments.d_max = kInfinity;
    for (const int64_t group_size : {0, 2}) {
      c.arguments.group_size = group_size;
      SCOPED_TRACE(describe(c));
      const Tensors t = make_tensors(c);
      EXPECT_LE(error_of(train(t, c.arguments).output, infer(t, Activation::kNone)), tolerance(c.type));
    }
  }
}

TEST_F(BatchNorm, OtherExamplesDoNotMatterWithoutLimits) {
  Case c;
  c.type = at::kDouble;
  c.sizes = {4, 5, 7};
  c.arguments.r_max = kInfinity;
  c.arguments.d_max = kInfinity;
  Tensors t = make_tensors(c);
  const at::Tensor before = train(t, c.arguments).output[0].clone();
  t.input.narrow(0, 1, 3).mul_(3.0).add_(2.0);
  EXPECT_LE(error_of(train(t, c.arguments).output[0], before), tolerance(at::kDouble));
}

}  // namespace
}  // namespace renorm::test
