// Results are bit-identical for every number of threads.
#include <ATen/Parallel.h>

#include "support.h"

namespace renorm::testing {
namespace {

class Threads : public Seeded {
 protected:
  void TearDown() override { at::set_num_threads(threads_before_); }

 private:
  int threads_before_ = at::get_num_threads();
};

// All results of two training steps and one evaluation.
template <typename Layer>
std::vector<torch::Tensor> results(const BatchRenormOptions& options, const torch::Tensor& x,
                                   const torch::Tensor& dy) {
  Layer layer(options);
  std::vector<torch::Tensor> all;
  for (int step = 0; step < 2; ++step) {
    const auto input = x.clone().set_requires_grad(true);
    const auto y = layer->forward(input);
    y.backward(dy);
    all.push_back(y.detach());
    all.push_back(input.grad());
  }
  for (const auto& parameter : layer->parameters()) all.push_back(parameter.grad());
  for (const auto& buffer : layer->buffers()) all.push_back(buffer);
  layer->eval();
  all.push_back(layer->forward(x).detach());
  return all;
}

template <typename Layer>
void expect_same_bits(const std::vector<int64_t>& shape, at::MemoryFormat format, int64_t group_size) {
  const auto x = (torch::randn(shape) * 2.0 + 0.5).contiguous(format);
  const auto dy = torch::randn(shape).contiguous(format);
  const auto options = BatchRenormOptions(shape[1])
                           .group_size(group_size)
                           .activation(Activation::kRelu)
                           .momentum(0.5)
                           .clip(ClipSchedule::constant(1.5, 0.5));
  at::set_num_threads(1);
  const auto expected = results<Layer>(options, x, dy);
  for (const int threads : {2, 3, 8}) {
    at::set_num_threads(threads);
    const auto actual = results<Layer>(options, x, dy);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::equal(actual[i], expected[i]))
          << "result " << i << " with " << threads << " threads";
    }
  }
}

TEST_F(Threads, ChangeNothingForImages) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    expect_same_bits<BatchRenorm2d>({8, 48, 31, 29}, format, 0);
    expect_same_bits<BatchRenorm2d>({8, 37, 7, 7}, format, 2);
    expect_same_bits<BatchRenorm2d>({2, 3, 150, 149}, format, 0);
  }
}

TEST_F(Threads, ChangeNothingForDenseInput) {
  expect_same_bits<BatchRenorm1d>({4096, 33}, at::MemoryFormat::Contiguous, 0);
  expect_same_bits<BatchRenorm1d>({64, 1024}, at::MemoryFormat::Contiguous, 16);
}

TEST_F(Threads, ChangeNothingForVolumes) {
  expect_same_bits<BatchRenorm3d>({2, 5, 9, 31, 30}, at::MemoryFormat::Contiguous, 0);
}

}  // namespace
}  // namespace renorm::testing
