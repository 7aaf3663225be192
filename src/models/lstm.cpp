#include "models/lstm.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include <algorithm>

#include "base/errors.h"
#include "base/text.h"
#include "models/blocks.h"
#include "models/kinds.h"
#include "models/weight_limit.h"

namespace renorm::models {
namespace {

constexpr int64_t kDefaultWidth = 128;
constexpr int64_t kMaxWidth = 4096;
constexpr int64_t kGates = 4;
// Normalized values of unit size would saturate the gates.
constexpr double kGain = 0.1;
constexpr double kForgetBias = 1.0;
constexpr const char* kPerStep = "steps";

struct LstmSpec {
  int64_t width = kDefaultWidth;
  bool per_step = false;  // norms of their own for every row
};

// "WIDTH" or "WIDTH,steps".
LstmSpec parse_lstm(const std::string& text) {
  const std::vector<std::string> words = split(text, ',');
  LstmSpec spec;
  spec.width = parse_integer(words[0], "the width of lstm", 1, kMaxWidth);
  spec.per_step = words.size() == 2 && words[1] == kPerStep;
  if (words.size() > 2 || (words.size() == 2 && !spec.per_step)) {
    throw UsageError(fmt::format("lstm takes WIDTH or WIDTH,{}, got '{}'", kPerStep, printable(text)));
  }
  return spec;
}

class Lstm : public Classifier {
 public:
  Lstm(const LstmSpec& spec, const InputShape& input, const MakeNorm& make_norm) : width_(spec.width) {
    const int64_t gates = kGates * width_;
    const int64_t steps = spec.per_step ? input.height : 1;
    input_ = register_module("input", StepUnit(input.channels * input.width, gates, steps, make_norm));
    // The first row has no state before it.
    const int64_t later = spec.per_step ? std::max<int64_t>(1, input.height - 1) : 1;
    state_ = register_module("state", StepUnit(width_, gates, later, make_norm));
    bias_ = register_parameter("bias", torch::zeros({gates}));
    {
      const torch::NoGradGuard no_grad;
      bias_.narrow(0, width_, width_).fill_(kForgetBias);
    }
    classifier_ = register_module("classifier", linear_classifier(width_, input.classes));
  }

  Logits compute(const torch::Tensor& images) override {
    // [row][image, channel x column]
    const torch::Tensor rows = images.permute({2, 0, 1, 3}).flatten(2);
    torch::Tensor state, cell;
    for (int64_t row = 0; row < rows.size(0); ++row) {
      const auto step = static_cast<size_t>(row);
      torch::Tensor gates = input_->forward(rows[row], step) + bias_.to(images.scalar_type());
      if (row > 0) gates = gates + state_->forward(state, step - 1);
      const std::vector<torch::Tensor> parts = gates.chunk(kGates, 1);
      const torch::Tensor added = parts[0].sigmoid() * parts[3].tanh();
      cell = row > 0 ? parts[1].sigmoid() * cell + added : added;
      state = parts[2].sigmoid() * cell.tanh();
    }
    return {classify(classifier_, state), {}};
  }

 private:
  int64_t width_;
  StepUnit input_{nullptr};
  StepUnit state_{nullptr};
  torch::Tensor bias_;  // of the gates: in, forget, out, candidate
  torch::nn::Linear classifier_{nullptr};
};

std::shared_ptr<Classifier> make_lstm(const Spec& spec, const InputShape& input, const MakeNorm& make_norm) {
  return std::make_shared<Lstm>(spec ? parse_lstm(*spec) : LstmSpec(), input, make_norm);
}

}  // namespace

StepUnitImpl::StepUnitImpl(int64_t in, int64_t out, int64_t steps, const MakeNorm& make_norm) {
  count_weights(in * out);
  weight = register_parameter("weight", torch::empty({out, in}));
  torch::nn::init::kaiming_normal_(weight, /*a=*/0.0, torch::kFanIn, torch::kLinear);
  for (int64_t i = 0; i < steps; ++i) {
    norms.push_back(make_norm(out, Activation::kNone));
    register_module(steps == 1 ? "norm" : fmt::format("norm{}", i + 1), norms.back().ptr());
  }
}

torch::Tensor StepUnitImpl::forward(const torch::Tensor& x, size_t step) {
  const torch::Tensor y = torch::linear(x, weight.to(x.scalar_type())).unsqueeze(2).unsqueeze(3);
  return kGain * norms[std::min(step, norms.size() - 1)].forward(y).flatten(1);
}

Entry lstm_entry() {
  return {{"lstm", "lstm[:WIDTH[,steps]]", "An LSTM over the rows of the image, with norms inside the cell",
           fmt::format("WIDTH is the size of its state, {} by default. The two products of the cell are "
                       "normalized,\nby one norm each for all rows, or with `{}` by a norm per row.\n",
                       kDefaultWidth, kPerStep),
           "lstm", strokes_input(), kSmallImages, torch::MemoryFormat::Contiguous},
          /*min_side=*/1,
          [](const std::string& spec) { parse_lstm(spec); },
          make_lstm};
}

}  // namespace renorm::models
