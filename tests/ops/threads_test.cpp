// Results are bit-identical for every number of threads, and more than one thread does work.
#include <ATen/Parallel.h>
#include <sys/resource.h>

#include "cases.h"

namespace renorm::test {
namespace {

class Threads : public Seeded {
 protected:
  void TearDown() override { at::set_num_threads(threads_before_); }

 private:
  int threads_before_ = at::get_num_threads();
};

std::vector<at::Tensor> results(const Tensors& t, const ops::BatchRenormArguments& arguments) {
  const auto forward = train(t, arguments);
  const auto [dinput, dweight, dbias, dresidual] = backward(t, forward, arguments);
  return {forward.output,
          forward.batch_mean,
          forward.batch_mean_low,
          forward.batch_std,
          forward.r,
          forward.d,
          dinput,
          dweight,
          dbias,
          infer(t, arguments.activation)};
}

void expect_same_bits(const Case& c) {
  SCOPED_TRACE(describe(c));
  const Tensors t = make_tensors(c);
  at::set_num_threads(1);
  const auto expected = results(t, c.arguments);
  for (const int threads : {2, 3, 8}) {
    at::set_num_threads(threads);
    const auto actual = results(t, c.arguments);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(actual[i], expected[i])) << "result " << i << " on " << threads << " threads";
    }
  }
}

TEST_F(Threads, ChangeNoBit) {
  // Enough values to be split, in few channels, in many, and in odd numbers of everything.
  const std::vector<std::vector<int64_t>> shapes{{4, 3, 101, 103}, {8, 67, 13, 11}, {12, 512, 3, 3},
                                                 {4096, 33},       {60, 1031},      {4, 5, 9, 31, 30},
                                                 {6, 24, 1021}};
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto& sizes : shapes) {
      for (const auto memory : {Memory::kContiguous, Memory::kChannelsLast}) {
        for (const int64_t groups : {1, 2}) {
          Case c;
          c.type = type;
          c.sizes = sizes;
          c.input_memory = memory;
          c.grad_memory = memory;
          c.arguments = {
              1e-5, 1.5, 0.5, groups == 1 ? 0 : sizes[0] / groups, Grouping::kStrided, Activation::kRelu};
          expect_same_bits(c);
        }
      }
    }
  }
}

TEST_F(Threads, ChangeNoBitForManyGroups) {
  for (const auto grouping : {Grouping::kContiguous, Grouping::kStrided}) {
    for (const auto memory : {Memory::kContiguous, Memory::kChannelsLast}) {
      Case c;
      c.sizes = {32, 37, 9, 9};
      c.input_memory = memory;
      c.arguments = {1e-5, 1.5, 0.5, 4, grouping, Activation::kNone};
      expect_same_bits(c);
    }
  }
}

// Processor time in seconds of the whole process, or of the calling thread alone.
double processor_time(int whose) {
  rusage usage{};
  getrusage(whose, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A file compiled without OpenMP silently runs at::parallel_for on one thread.
TEST_F(Threads, ShareTheWork) {
  constexpr int kCalls = 40;
  const auto share_of_others = [](const std::function<void()>& call) {
    call();  // Starts the threads.
    const double all = processor_time(RUSAGE_SELF);
    const double own = processor_time(RUSAGE_THREAD);
    for (int i = 0; i < kCalls; ++i) call();
    const double own_spent = processor_time(RUSAGE_THREAD) - own;
    return 1.0 - own_spent / (processor_time(RUSAGE_SELF) - all);
  };
  Case c;
  c.sizes = {16, 64, 32, 32};
  const Tensors t = make_tensors(c);
  const auto forward = train(t, c.arguments);
  at::set_num_threads(2);
  // Half is expected; threads that only wait use little time.
  constexpr double kMinShare = 0.25;
  EXPECT_GE(share_of_others([&] { train(t, c.arguments); }), kMinShare);
  EXPECT_GE(share_of_others([&] { backward(t, forward, c.arguments); }), kMinShare);
  EXPECT_GE(share_of_others([&] { infer(t, Activation::kNone); }), kMinShare);
}

}  // namespace
}  // namespace renorm::test
