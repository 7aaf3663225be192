// No operator changes an argument, and no result shares memory with one.
#include "cases.h"

namespace renorm::test {
namespace {

constexpr int64_t kCases = 150;

std::vector<at::Tensor> defined(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> kept;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) kept.push_back(tensor);
  }
  return kept;
}

// Saves values and version counters and compares them bit by bit.
class Witness {
 public:
  explicit Witness(const std::vector<at::Tensor>& tensors) : tensors_(defined(tensors)) {
    for (const at::Tensor& tensor : tensors_) {
      copies_.push_back(tensor.clone());
      versions_.push_back(tensor._version());
    }
  }

  void expect_unchanged() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      EXPECT_TRUE(at::equal(tensors_[i], copies_[i])) << "argument " << i;
      EXPECT_EQ(tensors_[i]._version(), versions_[i]) << "argument " << i;
    }
  }

  // Neither with an argument nor with one another.
  void expect_unshared(const std::vector<at::Tensor>& results) const {
    for (size_t i = 0; i < results.size(); ++i) {
      for (const at::Tensor& argument : tensors_) EXPECT_FALSE(results[i].is_alias_of(argument)) << i;
      for (size_t j = 0; j < i; ++j) EXPECT_FALSE(results[i].is_alias_of(results[j])) << i << " and " << j;
    }
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> copies_;
  std::vector<int64_t> versions_;
};

std::vector<at::Tensor> arguments_of(const Tensors& t) {
  return {t.input, t.grad_output, t.weight, t.bias, t.running_mean, t.running_std, t.residual};
}

std::vector<at::Tensor> results_of(const ops::BatchRenormResult& result) {
  return {result.output, result.batch_mean, result.batch_mean_low, result.batch_std, result.r,
          result.d,      result.mask};
}

class Purity : public Seeded {
 protected:
  template <class Check>
  void for_each_case(uint64_t seed, const Check& check) {
    Random random(seed);
    for (int64_t i = 0; i < kCases && !HasFailure(); ++i) {
      const Case c = draw_case(random);
      SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(c));
      check(c, make_tensors(c));
    }
  }
};

TEST_F(Purity, OfTraining) {
  for_each_case(4, [](const Case& c, const Tensors& t) {
    const Witness witness(arguments_of(t));
    const auto result = train(t, c.arguments);
    witness.expect_unchanged();
    witness.expect_unshared(results_of(result));
  });
}

TEST_F(Purity, OfBackward) {
  for_each_case(5, [](const Case& c, const Tensors& t) {
    const auto forward = train(t, c.arguments);
    std::vector<at::Tensor> arguments = arguments_of(t);
    for (const at::Tensor& tensor : results_of(forward)) arguments.push_back(tensor);
    const Witness witness(arguments);
    const auto grads = backward(t, forward, c.arguments);
    witness.expect_unchanged();
    witness.expect_unshared(defined({grads.input, grads.weight, grads.bias, grads.residual}));
  });
}

TEST_F(Purity, OfInference) {
  for_each_case(6, [](const Case& c, const Tensors& t) {
    if (!c.has_averages) return;
    const Witness witness(arguments_of(t));
    const at::Tensor output = infer(t, c.arguments.activation);
    witness.expect_unchanged();
    witness.expect_unshared({output});
  });
}

TEST_F(Purity, OfAutograd) {
  for_each_case(7, [](const Case& c, const Tensors& t) {
    t.input.requires_grad_();
    const Witness witness(arguments_of(t));
    const auto result = train(t, c.arguments);
    const auto grads = torch::autograd::grad({result.output}, {t.input}, {t.grad_output});
    witness.expect_unchanged();
    witness.expect_unshared({result.output, grads[0]});
  });
}

TEST_F(Purity, OfEmptyInput) {
  for (const auto type : {at::kFloat, at::kHalf}) {
    Case c;
    c.type = type;
    c.sizes = {4, 3, 0};
    const Tensors t = make_tensors(c);
    const Witness witness(arguments_of(t));
    witness.expect_unshared({train(t, c.arguments).output});
    witness.expect_unshared({infer(t, Activation::kNone)});
  }
}

}  // namespace
}  // namespace renorm::test
