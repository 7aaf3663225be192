// Results are bit-identical however the work is divided and on whatever threads it runs.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cases.h"
#include "kernels/kernels.h"
#include "support/effort.h"
#include "support/parallel.h"

namespace renorm::test {
namespace {

using kernels::Activation;
using kernels::BFloat16;
using kernels::Groups;
using kernels::Layout;
using kernels::ParallelFor;
using kernels::Shape;
using kernels::Stat;

using Bytes = std::vector<unsigned char>;

template <typename T>
void append(const Buffer<T>& buffer, Bytes* bytes) {
  const auto* begin = reinterpret_cast<const unsigned char*>(buffer.data());
  bytes->insert(bytes->end(), begin, begin + static_cast<size_t>(buffer.size()) * sizeof(T));
}

// All results of training and inference as bytes. Outputs are cleared first.
template <typename T>
Bytes run(const Case& c, const ParallelFor& parallel_for, Arrays<T>* a) {
  using P = Stat<T>;
  Bytes bytes;
  for (Buffer<T>* buffer : {&a->y, &a->dx, &a->dresidual}) buffer->forget();
  for (Buffer<P>* buffer :
       {&a->batch_mean, &a->batch_mean_low, &a->batch_std, &a->r, &a->d, &a->dweight, &a->dbias}) {
    buffer->forget();
  }
  a->mask.forget();
  kernels::forward(forward_problem(c, *a), parallel_for);
  append(a->y, &bytes);
  append(a->mask, &bytes);
  kernels::backward(backward_problem(c, *a), parallel_for);
  append(a->dx, &bytes);
  append(a->dresidual, &bytes);
  for (const Buffer<P>* buffer :
       {&a->batch_mean, &a->batch_mean_low, &a->batch_std, &a->r, &a->d, &a->dweight, &a->dbias}) {
    append(*buffer, &bytes);
  }
  kernels::Backward<T> parameters_only = backward_problem(c, *a);
  parameters_only.dx = parameters_only.dresidual = nullptr;
  kernels::backward(parameters_only, parallel_for);
  append(a->dweight, &bytes);
  append(a->dbias, &bytes);
  kernels::inference(inference_problem(c, *a), parallel_for);
  append(a->y, &bytes);
  kernels::backward(inference_backward_problem(c, *a), parallel_for);
  append(a->dx, &bytes);
  append(a->dresidual, &bytes);
  append(a->dweight, &bytes);
  return bytes;
}

std::vector<std::pair<std::string, ParallelFor>> ways_to_cut() {
  std::vector<std::pair<std::string, ParallelFor>> ways;
  for (const int64_t pieces : {2, 3, 8, 50}) {
    ways.emplace_back(std::to_string(pieces) + " pieces", in_pieces(pieces));
    ways.emplace_back(std::to_string(pieces) + " pieces reversed", in_pieces(pieces, Order::kReversed));
  }
  for (const int64_t threads : {1, 2, 3, 8}) {
    ways.emplace_back(std::to_string(threads) + " threads", on_threads(threads));
  }
  return ways;
}

template <typename T>
void expect_same_bits(const Case& c) {
  Arrays<T> arrays = draw_arrays<T>(c);
  const Bytes expected = run(c, serial(), &arrays);
  for (const auto& way : ways_to_cut()) {
    const Bytes actual = run(c, way.second, &arrays);
    ASSERT_EQ(actual.size(), expected.size());
    ASSERT_EQ(std::memcmp(actual.data(), expected.data(), expected.size()), 0)
        << way.first << " differ from serial in " << describe(c);
  }
}

std::vector<std::pair<Shape, Groups>> shapes() {
  using kernels::contiguous_groups;
  using kernels::strided_groups;
  return {{{12, 17, 49}, contiguous_groups(12, 4)},   {{12, 64, 16}, strided_groups(12, 3)},
          {{3, 5, 4099}, contiguous_groups(3, 3)},    {{2, 3, 9001}, contiguous_groups(2, 1)},
          {{4, 513, 9}, contiguous_groups(4, 4)},     {{1009, 33, 1}, contiguous_groups(1009, 1009)},
          {{260, 31, 5}, contiguous_groups(260, 65)}, {{8, 1, 1}, contiguous_groups(8, 2)},
          {{32, 96, 25}, contiguous_groups(32, 32)},  {{600, 7, 3}, strided_groups(600, 200)},
          {{3, 2, 70001}, contiguous_groups(3, 3)},   {{200, 530, 1}, contiguous_groups(200, 4)},
          {{144, 33, 2}, strided_groups(144, 8)}};
}

template <typename T>
class KernelDeterminism : public ::testing::Test {};
using DataTypes = ::testing::Types<float, double, BFloat16>;
TYPED_TEST_SUITE(KernelDeterminism, DataTypes);

TYPED_TEST(KernelDeterminism, HoldsForEveryCutAndThreadCount) {
  Random random(400);
  for (const auto& shape : shapes()) {
    for (const Layout layout : {Layout::kNcs, Layout::kNsc}) {
      Case c;
      c.layout = layout;
      c.shape = shape.first;
      c.groups = shape.second;
      c.activation = random.chance(0.5) ? Activation::kRelu : Activation::kNone;
      c.r_max = 1.5;
      c.d_max = 0.5;
      c.has_residual = random.chance(0.5);
      c.misaligned = random.chance(0.5);
      c.seed = random.bits();
      ASSERT_NO_FATAL_FAILURE(expect_same_bits<TypeParam>(c));
    }
  }
}

TYPED_TEST(KernelDeterminism, HoldsInGeneratedCases) {
  constexpr int64_t kCases = 60;
  Random random(500);
  for (int64_t k = 0; k < case_count(kCases); ++k) {
    ASSERT_NO_FATAL_FAILURE(expect_same_bits<TypeParam>(draw_case(random)));
  }
}

// Large enough for stores that bypass the cache, which must be visible to other threads too.
TEST(KernelDeterminismBeyondTheCache, HoldsForEveryCutAndThreadCount) {
  const std::vector<std::pair<Layout, Shape>> cases = {{Layout::kNcs, {6, 65, 5657}},
                                                       {Layout::kNcs, {96, 61, 361}},   // runs with a mask
                                                       {Layout::kNcs, {96, 131, 169}},  // runs without
                                                       {Layout::kNsc, {6, 65, 5657}}};
  for (const auto& [layout, shape] : cases) {
    for (const bool has_residual : {false, true}) {
      Case c;
      c.layout = layout;
      c.shape = shape;
      c.groups = kernels::contiguous_groups(shape.n, shape.n / 3);
      c.has_residual = has_residual;
      c.activation = has_residual ? Activation::kRelu : Activation::kNone;
      c.misaligned = true;
      ASSERT_NO_FATAL_FAILURE(expect_same_bits<float>(c));
    }
  }
}

// The number of units that each call of parallel_for hands out.
ParallelFor counted(std::vector<int64_t>* units) {
  return [units](int64_t count, const kernels::Body& body) {
    units->push_back(count);
    body(0, count);
  };
}

// More threads than channels have work in every pass over the data.
TEST(FewChannels, AreDividedAlongLongRows) {
  for (const int64_t channels : {1, 3}) {
    for (const int64_t group_size : {2, 1}) {
      SCOPED_TRACE(::testing::Message() << channels << " channels, groups of " << group_size);
      Case c;
      c.shape = {2, channels, 262147};
      c.groups = kernels::contiguous_groups(c.shape.n, group_size);
      Arrays<float> a = draw_arrays<float>(c);
      std::vector<int64_t> units;
      kernels::forward(forward_problem(c, a), counted(&units));
      kernels::backward(backward_problem(c, a), counted(&units));
      ASSERT_GE(units.size(), 4U);
      for (const int64_t count : units) EXPECT_GT(count, c.groups.count * channels);
    }
  }
}

// Rows too short to be divided: each channel of each group is a unit.
TEST(FewChannels, AreUnitsIfRowsAreShort) {
  Case c;
  c.shape = {512, 3, 256};
  c.groups = kernels::contiguous_groups(c.shape.n, c.shape.n / 2);
  Arrays<float> a = draw_arrays<float>(c);
  std::vector<int64_t> units;
  kernels::forward(forward_problem(c, a), counted(&units));
  kernels::backward(backward_problem(c, a), counted(&units));
  for (const int64_t count : units) EXPECT_EQ(count, 6);
  ASSERT_NO_FATAL_FAILURE(expect_same_bits<float>(c));
}

}  // namespace
}  // namespace renorm::test
