// Memory held between a forward and its backward.
#include <malloc.h>

#include "cases.h"

namespace renorm::test {
namespace {

// Enough for the statistics of 4 groups and 64 channels and the graph; a hundredth of the input.
constexpr int64_t kSmall = int64_t{64} << 10;

// The number of bytes allocated now.
int64_t held() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

class HeldMemory : public Seeded {
 protected:
  void SetUp() override {
    Seeded::SetUp();
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "AddressSanitizer replaces the allocator that the test queries";
#endif
  }

  static Tensors make_large(Memory memory) {
    Case c;
    c.sizes = {32, 64, 32, 32};
    c.input_memory = memory;
    const Tensors t = make_tensors(c);
    t.input.requires_grad_();
    t.weight.requires_grad_();
    train(t, {});  // Makes all one-time allocations of the process.
    return t;
  }
};

// Only the graph is kept: it holds what backward requires besides the input.
TEST_F(HeldMemory, OfTrainingIsTheStatistics) {
  ops::BatchRenormArguments arguments{1e-5, 3.0, 5.0, 8, Grouping::kContiguous, Activation::kRelu};
  for (const auto memory : {Memory::kContiguous, Memory::kChannelsLast, Memory::kSliced}) {
    const Tensors t = make_large(memory);
    const int64_t before = held();
    const auto node = train(t, arguments).output.grad_fn();
    ASSERT_NE(node, nullptr);
    EXPECT_LT(held() - before, kSmall);
  }
}

TEST_F(HeldMemory, OfInferenceIsTheAverages) {
  for (const auto memory : {Memory::kContiguous, Memory::kChannelsLast, Memory::kSliced}) {
    const Tensors t = make_large(memory);
    const int64_t before = held();
    const auto node = infer(t, Activation::kRelu).grad_fn();
    ASSERT_NE(node, nullptr);
    EXPECT_LT(held() - before, kSmall);
  }
}

TEST_F(HeldMemory, OfAGraphIsTheInputOnly) {
  Tensors t = make_large(Memory::kContiguous);
  const int64_t bytes = static_cast<int64_t>(t.input.nbytes());
  const int64_t before = held();
  at::Tensor output = train(t, {}).output;
  t.input = at::Tensor();
  EXPECT_LT(held() - before, bytes + kSmall);
  EXPECT_GE(held() - before, bytes);
  output = at::Tensor();
  EXPECT_LT(held() - before, kSmall - bytes);
}

TEST_F(HeldMemory, OfAForwardWithoutGradientsIsItsResult) {
  Tensors t = make_large(Memory::kContiguous);
  const at::NoGradGuard no_grad;
  const int64_t before = held();
  const at::Tensor output = train(t, {}).output;
  t.input = at::Tensor();
  EXPECT_LT(held() - before, kSmall);
}

}  // namespace
}  // namespace renorm::test
