// The error of a wrong argument is one sentence: its name, the expected value, the actual one.
#include <cmath>
#include <limits>

#include "cases.h"

namespace renorm::test {
namespace {

// A valid call until `spoil` has changed it.
struct Call {
  Tensors t;
  ops::BatchRenormArguments arguments;
  at::Tensor batch_mean;  // statistics for the backward operator
  at::Tensor batch_std;
  at::Tensor r;
  at::Tensor mask;
};

struct BadInput {
  const char* name;
  std::function<void(Call&)> spoil;
  std::vector<std::string> parts;  // of the message
};

void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.name; }

Call right_call() {
  Case c;
  c.sizes = {4, 3, 5};
  Call call{make_tensors(c), {}, {}, {}, {}, {}};
  const auto forward = train(call.t, call.arguments);
  call.batch_mean = forward.batch_mean;
  call.batch_std = forward.batch_std;
  call.r = forward.r;
  return call;
}

at::Tensor on_meta(const at::Tensor& tensor) { return tensor.to(at::kMeta); }

void training(const Call& call) { train(call.t, call.arguments); }

void composite(const Call& call) {
  const Tensors& t = call.t;
  ops::BatchRenormArguments arguments = call.arguments;
  arguments.residual = t.residual;
  ops::batch_renorm_composite(t.input, t.weight, t.bias, t.running_mean, t.running_std, arguments);
}

void inference(const Call& call) { infer(call.t, call.arguments.activation); }

void backward_operator(const Call& call) {
  const ops::BatchRenormResult forward{
      {}, call.batch_mean, at::zeros_like(call.r), call.batch_std, call.r, at::zeros_like(call.r), call.mask};
  backward(call.t, forward, call.arguments);
}

void expect_refused(const BadInput& bad, const char* op, void (*function)(const Call&)) {
  Call call = right_call();
  ASSERT_EQ(message_of([&] { function(call); }), "") << "the valid call is rejected";
  bad.spoil(call);
  const std::string message = message_of([&] { function(call); });
  for (const std::string& part : bad.parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
  EXPECT_EQ(message.rfind(op, 0), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

// Wrong for every operator.
const std::vector<BadInput>& bad_tensors() {
  static const std::vector<BadInput> table{
      {"IntegerInput",
       [](Call& c) { c.t.input = c.t.input.to(at::kLong); },
       {"input must have a floating dtype", "got Long"}},
      {"ComplexInput",
       [](Call& c) { c.t.input = c.t.input.to(at::kComplexFloat); },
       {"input must have a floating dtype", "got Complex"}},
      {"InputOfOneDimension",
       [](Call& c) { c.t.input = at::ones({3}); },
       {"input must be [batch, channels, ...]", "got 1 dimension(s)"}},
      {"WeightForOtherChannels",
       [](Call& c) { c.t.weight = at::ones({4}); },
       {"weight must have one value for each of the 3 channels", "got sizes [4]"}},
      {"WeightOfTwoDimensions",
       [](Call& c) {
         c.t.weight = at::ones({1, 3});
       },
       {"weight must have one value for each of the 3 channels", "got sizes [1, 3]"}},
      {"BiasForOtherChannels",
       [](Call& c) { c.t.bias = at::ones({1}); },
       {"bias must have one value for each of the 3 channels", "got sizes [1]"}},
      {"WeightOfOtherType",
       [](Call& c) { c.t.weight = c.t.weight.to(at::kDouble); },
       {"weight must be Float for input of type Float", "got Double"}},
      {"BiasOfOtherType",
       [](Call& c) { c.t.bias = c.t.bias.to(at::kHalf); },
       {"bias must be Float for input of type Float", "got Half"}},
      {"WeightOnOtherDevice",
       [](Call& c) { c.t.weight = on_meta(c.t.weight); },
       {"weight must be on the device of input, cpu", "got meta"}},
      {"BiasOnOtherDevice",
       [](Call& c) { c.t.bias = on_meta(c.t.bias); },
       {"bias must be on the device of input, cpu", "got meta"}},
      {"InputOnOtherDevice",
       [](Call& c) { c.t.input = on_meta(c.t.input); },
       {" must be on the device of input, meta", "got cpu"}}};
  return table;
}

const std::vector<BadInput>& bad_residuals() {
  static const std::vector<BadInput> table{
      {"ResidualOfOtherSizes",
       [](Call& c) {
         c.t.residual = at::ones({4, 3, 6});
       },
       {"residual must have the sizes of input, [4, 3, 5]", "got [4, 3, 6]"}},
      {"ResidualOfOtherType",
       [](Call& c) { c.t.residual = c.t.input.to(at::kDouble); },
       {"residual must have the dtype of input, Float", "got Double"}},
      {"ResidualOnOtherDevice",
       [](Call& c) { c.t.residual = on_meta(c.t.input); },
       {"residual must be on the device of input, cpu", "got meta"}}};
  return table;
}

const std::vector<BadInput>& bad_averages() {
  static const std::vector<BadInput> table{
      {"RunningMeanForOtherChannels",
       [](Call& c) { c.t.running_mean = at::ones({2}); },
       {"running_mean must have one value for each of the 3 channels", "got sizes [2]"}},
      {"RunningStdForOtherChannels",
       [](Call& c) { c.t.running_std = at::ones({2}); },
       {"running_std must have one value for each of the 3 channels", "got sizes [2]"}},
      {"RunningMeanOfOtherType",
       [](Call& c) { c.t.running_mean = c.t.running_mean.to(at::kDouble); },
       {"running_mean must be Float for input of type Float", "got Double"}},
      {"RunningStdOfOtherType",
       [](Call& c) { c.t.running_std = c.t.running_std.to(at::kBFloat16); },
       {"running_std must be Float for input of type Float", "got BFloat16"}},
      {"RunningMeanOnOtherDevice",
       [](Call& c) { c.t.running_mean = on_meta(c.t.running_mean); },
       {"running_mean must be on the device of input, cpu", "got meta"}},
      {"RunningMeanAlone",
       [](Call& c) { c.t.running_std = at::Tensor(); },
       {"running_mean", "running_std", "got"}},
      {"RunningStdAlone",
       [](Call& c) { c.t.running_mean = at::Tensor(); },
       {"running_mean", "running_std", "got"}}};
  return table;
}

const std::vector<BadInput>& bad_groups() {
  static const std::vector<BadInput> table{{"GroupSizeThatDoesNotDivide",
                                            [](Call& c) { c.arguments.group_size = 3; },
                                            {"group_size must divide the batch of 4 examples", "got 3"}},
                                           {"GroupSizeAboveTheBatch",
                                            [](Call& c) { c.arguments.group_size = 8; },
                                            {"group_size must divide the batch of 4 examples", "got 8"}},
                                           {"NegativeGroupSize",
                                            [](Call& c) { c.arguments.group_size = -2; },
                                            {"group_size must be >= 0", "got -2"}}};
  return table;
}

const std::vector<BadInput>& bad_limits() {
  static const std::vector<BadInput> table{
      {"RMaxBelowOne", [](Call& c) { c.arguments.r_max = 0.5; }, {"r_max must be >= 1", "got 0.5"}},
      {"RMaxNotANumber",
       [](Call& c) { c.arguments.r_max = std::nan(""); },
       {"r_max must be >= 1", "got nan"}},
      {"NegativeDMax", [](Call& c) { c.arguments.d_max = -1.0; }, {"d_max must be >= 0", "got -1"}},
      {"DMaxNotANumber",
       [](Call& c) { c.arguments.d_max = std::nan(""); },
       {"d_max must be >= 0", "got nan"}},
      {"EpsZero", [](Call& c) { c.arguments.eps = 0.0; }, {"eps must be > 0", "got 0"}},
      {"NegativeEps", [](Call& c) { c.arguments.eps = -1e-3; }, {"eps must be > 0", "got -0.001"}},
      {"EpsThatRoundsToZero",
       [](Call& c) { c.arguments.eps = 1e-50; },
       {"eps must be > 0 as a Float", "got 1e-50"}},
      {"EpsNotANumber", [](Call& c) { c.arguments.eps = std::nan(""); }, {"eps must be > 0", "got nan"}}};
  return table;
}

const std::vector<BadInput>& bad_backward() {
  static const std::vector<BadInput> table{
      {"GradOutputOfOtherSizes",
       [](Call& c) {
         c.t.grad_output = at::ones({4, 3, 6});
       },
       {"grad_output must have the sizes of input, [4, 3, 5]", "got [4, 3, 6]"}},
      {"GradOutputOnOtherDevice",
       [](Call& c) { c.t.grad_output = on_meta(c.t.grad_output); },
       {"grad_output must be on the device of input, cpu", "got meta"}},
      {"NoGradOutput",
       [](Call& c) { c.t.grad_output = at::Tensor(); },
       {"grad_output, batch_mean and batch_std must be tensors"}},
      {"NoBatchMean",
       [](Call& c) { c.batch_mean = at::Tensor(); },
       {"grad_output, batch_mean and batch_std must be tensors"}},
      {"BatchMeanOfOtherGroups",
       [](Call& c) {
         c.batch_mean = at::ones({2, 3});
       },
       {"batch_mean must be [1, 3]", "got sizes [2, 3]"}},
      {"BatchStdOfOneDimension",
       [](Call& c) { c.batch_std = at::ones({3}); },
       {"batch_std must be [1, 3]", "got sizes [3]"}},
      {"BatchStdOfOtherType",
       [](Call& c) { c.batch_std = c.batch_std.to(at::kDouble); },
       {"batch_std must be Float for input of type Float", "got Double"}},
      {"ROnOtherDevice",
       [](Call& c) { c.r = on_meta(c.r); },
       {"must be on the device of input, cpu", "got meta"}},
      {"NoMask",
       [](Call& c) {
         c.t.residual = c.t.input;
         c.arguments.activation = Activation::kRelu;
       },
       {"a residual with ReLU needs the mask of the forward, got none"}},
      {"MaskOfOtherSize",
       [](Call& c) { c.mask = at::ones({9}, at::kByte); },
       {"mask must be that of the forward, which has 16 bytes", "got Byte of sizes [9]"}},
      {"MaskOfOtherType",
       [](Call& c) { c.mask = at::ones({16}, at::kChar); },
       {"mask must be that of the forward, which has 16 bytes", "got Char of sizes [16]"}},
      {"MaskOnOtherDevice",
       [](Call& c) { c.mask = on_meta(at::ones({16}, at::kByte)); },
       {"mask must be on the device of input, cpu", "got meta"}}};
  return table;
}

class BadInputOfAny : public ::testing::TestWithParam<BadInput> {};
class BadInputOfTraining : public ::testing::TestWithParam<BadInput> {};
class BadInputOfInference : public ::testing::TestWithParam<BadInput> {};
class BadInputOfBackward : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadInputOfAny, IsNamed) {
  expect_refused(GetParam(), "renorm::batch_renorm: ", training);
  expect_refused(GetParam(), "renorm::batch_renorm: ", composite);
  expect_refused(GetParam(), "renorm::batch_renorm_inference: ", inference);
  expect_refused(GetParam(), "renorm::batch_renorm_backward: ", backward_operator);
}

TEST_P(BadInputOfTraining, IsNamed) {
  expect_refused(GetParam(), "renorm::batch_renorm: ", training);
  expect_refused(GetParam(), "renorm::batch_renorm: ", composite);
}

TEST_P(BadInputOfInference, IsNamed) {
  expect_refused(GetParam(), "renorm::batch_renorm_inference: ", inference);
}

TEST_P(BadInputOfBackward, IsNamed) {
  expect_refused(GetParam(), "renorm::batch_renorm_backward: ", backward_operator);
}

std::string name_of(const ::testing::TestParamInfo<BadInput>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Tensors, BadInputOfAny, ::testing::ValuesIn(bad_tensors()), name_of);
INSTANTIATE_TEST_SUITE_P(Residuals, BadInputOfTraining, ::testing::ValuesIn(bad_residuals()), name_of);
INSTANTIATE_TEST_SUITE_P(Residuals, BadInputOfInference, ::testing::ValuesIn(bad_residuals()), name_of);
INSTANTIATE_TEST_SUITE_P(Averages, BadInputOfTraining, ::testing::ValuesIn(bad_averages()), name_of);
INSTANTIATE_TEST_SUITE_P(Groups, BadInputOfTraining, ::testing::ValuesIn(bad_groups()), name_of);
INSTANTIATE_TEST_SUITE_P(Limits, BadInputOfTraining, ::testing::ValuesIn(bad_limits()), name_of);
INSTANTIATE_TEST_SUITE_P(Averages, BadInputOfInference, ::testing::ValuesIn(bad_averages()), name_of);
INSTANTIATE_TEST_SUITE_P(Groups, BadInputOfBackward, ::testing::ValuesIn(bad_groups()), name_of);
INSTANTIATE_TEST_SUITE_P(Gradients, BadInputOfBackward, ::testing::ValuesIn(bad_backward()), name_of);

// Averages that training cannot produce.
TEST(BadInput, NamesTheChannelOfABadAverage) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const double bad : {0.0, -1.0, kInfinity, std::nan("")}) {
      Case c;
      c.type = type;
      c.sizes = {4, 40, 5};
      Tensors t = make_tensors(c);
      t.running_std[37] = bad;
      SCOPED_TRACE(::testing::Message() << type << " " << bad);
      for (const auto& message :
           {message_of([&] { train(t, {}); }), message_of([&] { infer(t, Activation::kNone); })}) {
        EXPECT_NE(message.find("running_std must be finite and > 0, got "), std::string::npos) << message;
        EXPECT_NE(message.find(" in channel 37"), std::string::npos) << message;
      }
      t = make_tensors(c);
      t.running_mean[0] = kInfinity;
      EXPECT_NE(message_of([&] { train(t, {}); }).find("running_mean must be finite, got inf in channel 0"),
                std::string::npos);
    }
  }
}

TEST(BadInput, NamesUnknownChoices) {
  EXPECT_EQ(message_of([] { ops::parse_grouping("renorm::op", "stride"); }),
            "renorm::op: grouping must be 'contiguous' or 'strided', got 'stride'");
  EXPECT_EQ(message_of([] { ops::parse_activation("renorm::op", "gelu"); }),
            "renorm::op: activation must be 'none' or 'relu', got 'gelu'");
}

// The same checks apply to a call that autograd records.
TEST(BadInput, IsNamedUnderAutograd) {
  Call call = right_call();
  call.t.input.requires_grad_();
  call.arguments.r_max = 0.5;
  EXPECT_NE(message_of([&] { training(call); }).find("r_max must be >= 1, got 0.5"), std::string::npos);
}

}  // namespace
}  // namespace renorm::test
