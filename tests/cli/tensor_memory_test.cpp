// Memory of large tensors that is used again.
#include "cli/tensor_memory.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>

#include "base/random.h"

namespace renorm::cli {
namespace {

constexpr int64_t kLarge = int64_t{32} << 20;  // bytes

torch::Tensor bytes(int64_t count) { return torch::empty({count}, torch::kUInt8); }

// There is one pool for all tests: each that expects a certain block uses sizes of its own.
class TensorMemoryTest : public ::testing::Test {
 protected:
  TensorMemoryTest() { reuse_tensor_memory(); }
};

TEST_F(TensorMemoryTest, TheNextTensorOfItsSizeGetsABlock) {
  void* block = nullptr;
  {
    const torch::Tensor first = bytes(5 * kLarge + 100);
    block = first.data_ptr();
  }
  EXPECT_GE(tensor_memory().kept, static_cast<size_t>(5 * kLarge + 100));
  EXPECT_EQ(bytes(5 * kLarge + 100).data_ptr(), block);
  EXPECT_EQ(bytes(5 * kLarge).data_ptr(), block) << "a little smaller fits too";
}

TEST_F(TensorMemoryTest, ABlockIsNotWastedOnAMuchSmallerTensor) {
  bytes(12 * kLarge);
  const size_t before = tensor_memory().in_use;
  const torch::Tensor smaller = bytes(8 * kLarge);
  EXPECT_EQ(tensor_memory().in_use - before, static_cast<size_t>(8 * kLarge));
}

TEST_F(TensorMemoryTest, SmallTensorsAreNoneOfItsBusiness) {
  const TensorMemory before = tensor_memory();
  {
    const torch::Tensor small = bytes(kLarge - 1);
    EXPECT_EQ(tensor_memory().in_use, before.in_use);
  }
  EXPECT_EQ(tensor_memory().kept, before.kept);
  EXPECT_EQ(bytes(0).numel(), 0);
}

TEST_F(TensorMemoryTest, NeverMoreThanWasInUseAtOnce) {
  RandomStream stream(7, Purpose::kBench);
  std::map<uint64_t, torch::Tensor> alive;
  size_t most = tensor_memory().max_in_use;
  for (int i = 0; i < 300; ++i) {
    const uint64_t place = stream.bits() % 8;
    alive.erase(place);
    if (stream.bits() % 4 != 0) {
      alive[place] = bytes(kLarge + static_cast<int64_t>(stream.bits() % (uint64_t{96} << 20)));
    }
    const TensorMemory memory = tensor_memory();
    most = std::max(most, memory.in_use);
    EXPECT_EQ(memory.max_in_use, most);
    EXPECT_LE(memory.in_use + memory.kept, most);
  }
}

TEST_F(TensorMemoryTest, TensorsKeepTheirValues) {
  const torch::Tensor first = torch::full({kLarge / 4 + 1}, 1.5F);
  const torch::Tensor second = torch::full({kLarge / 4 + 1}, 2.5F);
  { const torch::Tensor passing = torch::full({kLarge / 4 + 1}, 9.0F); }
  const torch::Tensor third = first + second;
  EXPECT_TRUE(first.eq(1.5F).all().item<bool>());
  EXPECT_TRUE(second.eq(2.5F).all().item<bool>());
  EXPECT_TRUE(third.eq(4.0F).all().item<bool>());
}

#ifndef __SANITIZE_ADDRESS__  // which ends the process where malloc would fail
TEST_F(TensorMemoryTest, GivesBackWhatIsKeptBeforeItRefuses) {
  EXPECT_THROW(bytes(int64_t{1} << 50), c10::Error);
  EXPECT_EQ(tensor_memory().kept, 0U);
  EXPECT_EQ(bytes(kLarge).numel(), kLarge);
}
#endif

}  // namespace
}  // namespace renorm::cli
