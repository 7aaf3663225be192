// Statistics over several processes, which are threads here: the same as one process on the concatenated
// batch.
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "support.h"

namespace renorm::testing {
namespace {

// From the results of one process in double. Statistics in float have errors of up to 7e-7 in one process,
// too: a block of values is added up in float.
constexpr double kFloatEquality = 1e-6;

// Adds tensors over as many threads as there are ranks.
class Exchange {
 public:
  explicit Exchange(int64_t count) : count_(count) {}

  Processes at(int64_t rank) {
    return {rank, count_, [this](torch::Tensor& tensor) { add(tensor); }};
  }
  int64_t calls() const { return calls_; }

 private:
  void add(torch::Tensor& tensor) {
    TORCH_CHECK(tensor.scalar_type() == torch::kDouble && tensor.is_contiguous(), "not as promised");
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t round = round_;
    sum_ = arrived_ == 0 ? tensor.clone() : sum_ + tensor;
    ++calls_;
    if (++arrived_ == count_) {
      result_ = sum_;
      arrived_ = 0;
      ++round_;
      all_arrived_.notify_all();
    } else {
      const bool in_time =
          all_arrived_.wait_for(lock, std::chrono::seconds(60), [&] { return round_ != round; });
      TORCH_CHECK(in_time, "a rank did not take part");
    }
    tensor.copy_(result_);
  }

  int64_t count_;
  std::mutex mutex_;
  std::condition_variable all_arrived_;
  torch::Tensor sum_, result_;
  int64_t arrived_ = 0;
  int64_t round_ = 0;
  int64_t calls_ = 0;
};

// Runs body(rank) on a thread per rank. An error of one is thrown here.
template <class Body>
void on_ranks(int64_t count, const Body& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
  for (int64_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

struct Results {
  std::vector<torch::Tensor> outputs;  // per step
  std::vector<torch::Tensor> dinputs;
  std::vector<torch::Tensor> dresiduals;
  torch::Tensor dweight, dbias, running_mean, running_std;
  int64_t step;
  int64_t counted;
};

struct Training {
  std::vector<std::vector<int64_t>> shares;  // per step: examples of each rank
  std::vector<int64_t> shape;                // of an example: channels first
  at::ScalarType type = torch::kFloat;
  BatchRenormOptions options{1};
  bool residual = false;
  bool channels_last = false;
  double offset = 0.5;

  int64_t ranks() const { return static_cast<int64_t>(shares[0].size()); }
  torch::Tensor draw(size_t step, uint64_t purpose) const {
    torch::manual_seed(100 * (step + 1) + purpose);
    int64_t total = 0;
    for (const int64_t share : shares[step]) total += share;
    std::vector<int64_t> sizes{total};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    const torch::Tensor values = torch::randn(sizes, torch::kDouble) * 2.0 + (purpose == 0 ? offset : 0.0);
    return values.to(type).contiguous(channels_last ? at::MemoryFormat::ChannelsLast
                                                    : at::MemoryFormat::Contiguous);
  }
};

// One step after the other. part(step, tensor) is the share of a process.
template <class Layer, class Part>
Results train(const Training& t, at::ScalarType type, const BatchRenormOptions& options,
              const std::vector<torch::Tensor>& inputs, const std::vector<torch::Tensor>& grads,
              const std::vector<torch::Tensor>& residuals, const Part& part) {
  Layer layer(options);
  layer->to(type);
  {
    const torch::NoGradGuard no_grad;
    const auto channels = torch::arange(1.0, 1.0 + static_cast<double>(layer->channels()));
    if (layer->weight.defined()) layer->weight.copy_(0.5 + 0.1 * channels);
    if (layer->bias.defined()) layer->bias.copy_(0.3 - 0.2 * channels);
  }
  Results results;
  for (size_t step = 0; step < t.shares.size(); ++step) {
    const torch::Tensor x = part(step, inputs[step]).detach().clone().requires_grad_();
    torch::Tensor z, y;
    if (t.residual) {
      z = part(step, residuals[step]).detach().clone().requires_grad_();
      y = layer->forward_residual(x, z);
    } else {
      y = layer->forward(x);
    }
    y.backward(part(step, grads[step]));
    results.outputs.push_back(y.detach());
    results.dinputs.push_back(x.grad());
    if (t.residual) results.dresiduals.push_back(z.grad());
    if (step % 2 == 1) layer->commit();
  }
  const auto gradient = [](const torch::Tensor& p) { return p.defined() ? p.grad() : torch::Tensor(); };
  results.dweight = gradient(layer->weight);
  results.dbias = gradient(layer->bias);
  results.running_mean = layer->running_mean;
  results.running_std = layer->running_std;
  results.step = layer->step();
  results.counted = layer->clip_telemetry().values;
  return results;
}

template <class Select>
torch::Tensor joined(const std::vector<Results>& ranks, size_t step, const Select& select) {
  std::vector<torch::Tensor> parts;
  parts.reserve(ranks.size());
  for (const Results& rank : ranks) parts.push_back(select(rank)[step]);
  return torch::cat(parts);
}

void expect_equal(const std::vector<Results>& ranks, const Results& whole, bool residual, double tolerance) {
  for (size_t step = 0; step < whole.outputs.size(); ++step) {
    const auto error = [&](auto select) {
      return relative_error(joined(ranks, step, select), select(whole)[step]);
    };
    EXPECT_LE(error([](const Results& r) { return r.outputs; }), tolerance) << "output of step " << step;
    EXPECT_LE(error([](const Results& r) { return r.dinputs; }), tolerance) << "dinput of step " << step;
    if (residual) {
      EXPECT_LE(error([](const Results& r) { return r.dresiduals; }), tolerance)
          << "dresidual of step " << step;
    }
  }
  torch::Tensor dweight, dbias;
  for (const Results& rank : ranks) {
    if (whole.dweight.defined()) dweight = dweight.defined() ? dweight + rank.dweight : rank.dweight;
    if (whole.dbias.defined()) dbias = dbias.defined() ? dbias + rank.dbias : rank.dbias;
    EXPECT_LE(relative_error(rank.running_mean, whole.running_mean), tolerance);
    EXPECT_LE(relative_error(rank.running_std, whole.running_std), tolerance);
    EXPECT_TRUE(torch::equal(rank.running_mean, ranks[0].running_mean)) << "not the same bits";
    EXPECT_TRUE(torch::equal(rank.running_std, ranks[0].running_std)) << "not the same bits";
    EXPECT_EQ(rank.step, whole.step);
    EXPECT_EQ(rank.counted, whole.counted);
  }
  const auto parameter_error = [](const torch::Tensor& sum, const torch::Tensor& expected) {
    return expected.defined() ? relative_error(sum, expected) : 0.0;
  };
  EXPECT_LE(parameter_error(dweight, whole.dweight), tolerance);
  EXPECT_LE(parameter_error(dbias, whole.dbias), tolerance);
}

template <class Layer>
void expect_one_process(Training t, double tolerance) {
  t.options.num_features(t.shape[0]).momentum(0.3);
  std::vector<torch::Tensor> inputs, grads, residuals;
  for (size_t step = 0; step < t.shares.size(); ++step) {
    inputs.push_back(t.draw(step, 0));
    grads.push_back(t.draw(step, 1));
    residuals.push_back(t.draw(step, 2));
  }
  const Results whole =
      train<Layer>(t, torch::kDouble, t.options, inputs, grads, residuals,
                   [](size_t, const torch::Tensor& tensor) { return tensor.to(torch::kDouble); });
  Exchange exchange(t.ranks());
  std::vector<Results> ranks(static_cast<size_t>(t.ranks()));
  on_ranks(t.ranks(), [&](int64_t rank) {
    const auto part = [&](size_t step, const torch::Tensor& tensor) {
      return tensor.split_with_sizes(t.shares[step])[static_cast<size_t>(rank)];
    };
    BatchRenormOptions options = t.options;
    ranks[static_cast<size_t>(rank)] =
        train<Layer>(t, t.type, options.processes(exchange.at(rank)), inputs, grads, residuals, part);
  });
  expect_equal(ranks, whole, t.residual, tolerance);
  // One in the forward and one in the backward.
  EXPECT_EQ(exchange.calls(), 2 * t.ranks() * static_cast<int64_t>(t.shares.size()));
}

BatchRenormOptions ramped() { return BatchRenormOptions(1).clip(ClipSchedule::ramp(1, 3.0, 6, 5.0, 5)); }

const std::vector<std::vector<int64_t>> kShares = {{5, 3, 4}, {7, 0, 1}, {0, 2, 9}, {4, 4, 4}, {1, 1, 0}};

class Sync : public Seeded {};

TEST_F(Sync, IsOneProcessOnTheConcatenatedBatch) {
  for (const bool channels_last : {false, true}) {
    for (const auto activation : {Activation::kNone, Activation::kRelu}) {
      for (const bool residual : {false, true}) {
        SCOPED_TRACE(c10::str("channels last ", channels_last, " relu ", activation == Activation::kRelu,
                              " residual ", residual));
        Training t{kShares, {6, 5, 7}};
        t.options = ramped().activation(activation);
        t.residual = residual;
        t.channels_last = channels_last;
        expect_one_process<BatchRenorm2d>(t, kFloatEquality);
        t.type = torch::kDouble;
        expect_one_process<BatchRenorm2d>(t, kDoubleTolerance);
      }
    }
  }
}

// Two values of a channel that are close would have gradients far larger than 1.
TEST_F(Sync, HoldsForVectorsAndForLayersWithoutParameters) {
  Training t{{{15, 9, 12}, {21, 0, 3}, {0, 6, 27}, {1, 30, 1}}, {33}};
  t.options = ramped();
  expect_one_process<BatchRenorm1d>(t, kFloatEquality);
  t.options = ramped().affine(false);
  expect_one_process<BatchRenorm1d>(t, kFloatEquality);
  t.options = ramped().scale(false);
  expect_one_process<BatchRenorm1d>(t, kFloatEquality);
}

TEST_F(Sync, HoldsForDeferredStatistics) {
  Training t{kShares, {6, 5, 7}};
  t.options = ramped().statistics(Statistics::kDeferred);
  expect_one_process<BatchRenorm2d>(t, kFloatEquality);
}

// A float at 1e4 is rounded to 5e-4 of a standard deviation. Both sides see the same rounded values.
TEST_F(Sync, HoldsForDataFarFromZero) {
  Training t{kShares, {6, 5, 7}};
  t.options = BatchRenormOptions(1).clip(ClipSchedule::batch_norm());
  t.offset = 1e4;
  expect_one_process<BatchRenorm2d>(t, kFloatEquality);
  t.type = torch::kDouble;
  expect_one_process<BatchRenorm2d>(t, 1e-10);  // a double at 1e4 is rounded to 1e-12
}

TEST_F(Sync, BatchesThatAreNotFiniteThrowInEveryProcess) {
  Exchange exchange(2);
  on_ranks(2, [&](int64_t rank) {
    BatchRenorm1d layer(BatchRenormOptions(3).processes(exchange.at(rank)));
    torch::Tensor x = torch::ones({4, 3});
    if (rank == 1) x[2][1] = std::numeric_limits<float>::quiet_NaN();
    const Snapshot before(*layer);
    EXPECT_THROW(layer->forward(x), NonFiniteStatistics);
    EXPECT_TRUE(before == Snapshot(*layer));
  });
}

TEST_F(Sync, EmptyBatchesInEveryProcessChangeNothing) {
  Exchange exchange(2);
  on_ranks(2, [&](int64_t rank) {
    BatchRenorm2d layer(BatchRenormOptions(3).processes(exchange.at(rank)));
    const Snapshot before(*layer);
    const auto x = torch::empty({0, 3, 2, 2}).requires_grad_();
    const auto y = layer->forward(x);
    EXPECT_EQ(y.sizes(), x.sizes());
    y.sum().backward();
    EXPECT_TRUE(before == Snapshot(*layer));
  });
}

TEST_F(Sync, OneValuePerChannelInAllProcessesIsAnError) {
  Exchange exchange(2);
  on_ranks(2, [&](int64_t rank) {
    BatchRenorm1d layer(BatchRenormOptions(3).name("head").processes(exchange.at(rank)));
    expect_message(
        [&] {
          layer->forward(torch::ones({rank, 3}));
        },
        {"renorm::BatchRenorm1d \"head\"", "more than one value per channel together, got one"});
  });
}

TEST_F(Sync, AShareOfOneValueIsEnough) {
  Exchange exchange(2);
  on_ranks(2, [&](int64_t rank) {
    BatchRenorm1d layer(BatchRenormOptions(3).processes(exchange.at(rank)));
    EXPECT_NO_THROW(layer->forward(torch::full({1, 3}, static_cast<double>(rank))));
  });
}

TEST_F(Sync, CreateGraphIsAnError) {
  Exchange exchange(2);
  on_ranks(2, [&](int64_t rank) {
    BatchRenorm1d layer(BatchRenormOptions(3).processes(exchange.at(rank)));
    const auto x = torch::ones({4, 3}).requires_grad_();
    const auto y = layer->forward(x);
    expect_message([&] { torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true); },
                   {"create_graph is not supported with statistics over several processes"});
  });
}

// Without a gradient of the input, the sums of other processes are not needed.
TEST_F(Sync, ALayerWhoseInputNeedsNoGradientCommunicatesOnce) {
  Exchange exchange(2);
  on_ranks(2, [&](int64_t rank) {
    BatchRenorm1d layer(BatchRenormOptions(3).processes(exchange.at(rank)));
    layer->forward(torch::rand({4, 3})).sum().backward();
    EXPECT_TRUE(layer->weight.grad().defined());
  });
  EXPECT_EQ(exchange.calls(), 2);
}

Processes unused(int64_t rank, int64_t count) {
  return {rank, count, [](torch::Tensor&) { FAIL() << "communicated"; }};
}

TEST_F(Sync, EvaluationAndASingleProcessCommunicateNothing) {
  BatchRenorm1d alone(BatchRenormOptions(3).processes(unused(0, 1)));
  alone->forward(torch::rand({4, 3}));
  BatchRenorm1d layer(BatchRenormOptions(3).warnings(false).processes(unused(0, 2)));
  layer->eval();
  layer->forward(torch::rand({4, 3}));
  layer->use_batch_statistics(true);
  layer->forward(torch::rand({4, 3}));
}

TEST_F(Sync, ACloneSharesTheProcesses) {
  BatchRenorm1d layer(BatchRenormOptions(3).processes(unused(1, 2)));
  const auto copy = std::dynamic_pointer_cast<BatchRenorm1dImpl>(layer->clone());
  EXPECT_EQ(copy->options.processes().rank, 1);
  EXPECT_EQ(copy->options.processes().count, 2);
  std::ostringstream text;
  copy->pretty_print(text);
  EXPECT_NE(text.str().find(", processes=2"), std::string::npos) << text.str();
}

TEST_F(Sync, WrongOptionsAreErrorsOfOneSentence) {
  const auto build = [](BatchRenormOptions options) { return [=] { BatchRenorm1d layer(options); }; };
  expect_message(build(BatchRenormOptions(3).group_size(2).processes(unused(0, 2))),
                 {"group_size must be 0 with statistics over several processes, got 2"});
  expect_message(build(BatchRenormOptions(3).processes(unused(2, 2))),
                 {"processes.rank must be in [0, 2), got 2"});
  expect_message(build(BatchRenormOptions(3).processes({0, 2, nullptr})),
                 {"processes.all_reduce must be a function, got none"});
}

}  // namespace
}  // namespace renorm::testing
