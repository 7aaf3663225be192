#include "train/tensor_file.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <map>

#include "base/errors.h"
#include "record/safetensors.h"

namespace renorm::train {
namespace {

class TensorFileTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1702); }
};

std::vector<NamedTensor> every_dtype() {
  const auto numbers = torch::randn({3, 5}) * 100;
  return {{"f32", numbers},
          {"f64", numbers.to(torch::kDouble)},
          {"bf16", numbers.to(torch::kBFloat16)},
          {"f16", numbers.to(torch::kHalf)},
          {"i64", numbers.to(torch::kLong)},
          {"i32", numbers.to(torch::kInt)},
          {"u8", numbers.abs().clamp(0, 255).to(torch::kByte)},
          {"bool", numbers.gt(0)},
          {"scalar", torch::tensor(int64_t{1} << 53, torch::kLong)},
          {"empty", torch::empty({0, 4})}};
}

std::vector<NamedTensor> blanks_of(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> blanks;
  blanks.reserve(tensors.size());
  for (const auto& named : tensors) blanks.push_back({named.name, torch::zeros_like(named.tensor)});
  return blanks;
}

void expect_equal(const std::vector<NamedTensor>& actual, const std::vector<NamedTensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(torch::equal(actual[i].tensor, expected[i].tensor)) << actual[i].name;
  }
}

// Restoring `bytes` must fail with all `parts` in the message and leave every live tensor as it was.
void expect_refused(const std::string& bytes, const std::vector<NamedTensor>& live,
                    const std::vector<std::string>& parts) {
  const std::string before = encode_tensors(live);
  try {
    restore_tensors(bytes, "run/model.safetensors", live);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DataError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.rfind("run/model.safetensors", 0), 0u) << message;
    for (const auto& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
  }
  EXPECT_EQ(encode_tensors(live), before);
}

TEST_F(TensorFileTest, EveryDtypeComesBack) {
  const auto tensors = every_dtype();
  const auto live = blanks_of(tensors);
  restore_tensors(encode_tensors(tensors), "f", live);
  expect_equal(live, tensors);
}

TEST_F(TensorFileTest, OrderOfNamesIsFreeAndOrderOfMemoryToo) {
  const auto wide = torch::randn({4, 6, 3, 5});
  const std::vector<NamedTensor> tensors = {{"last", wide.contiguous(at::MemoryFormat::ChannelsLast)},
                                            {"turned", wide.transpose(0, 3)},
                                            {"sliced", wide.slice(1, 1, 6, 2)},
                                            {"expanded", torch::randn({1, 4}).expand({3, 4})}};
  const std::string bytes = encode_tensors(tensors);
  std::vector<NamedTensor> plain;
  plain.reserve(tensors.size());
  for (const auto& named : tensors) plain.push_back({named.name, named.tensor.contiguous()});
  EXPECT_EQ(bytes, encode_tensors(plain));

  const std::vector<NamedTensor> live = {
      {"expanded", torch::zeros({3, 4})},
      {"sliced", torch::zeros({4, 9, 3, 5}).slice(1, 0, 9, 3)},
      {"turned", torch::zeros({5, 6, 3, 4}).contiguous(at::MemoryFormat::ChannelsLast)},
      {"last", torch::zeros({5, 6, 3, 4}).transpose(0, 3)}};
  restore_tensors(bytes, "f", live);
  for (const auto& named : live) {
    for (const auto& from : tensors) {
      if (from.name == named.name) {
        EXPECT_TRUE(torch::equal(named.tensor, from.tensor)) << named.name;
      }
    }
  }
}

TEST_F(TensorFileTest, RestoresInPlaceIntoParameters) {
  const auto linear = torch::nn::Linear(3, 2);
  const auto saved = linear->weight.detach().clone();
  const std::string bytes = encode_tensors({{"w", linear->weight}});
  const void* memory = linear->weight.data_ptr();
  torch::nn::init::zeros_(linear->weight);
  restore_tensors(bytes, "f", {{"w", linear->weight}});
  EXPECT_TRUE(torch::equal(linear->weight, saved));
  EXPECT_EQ(linear->weight.data_ptr(), memory);
  EXPECT_TRUE(linear->weight.requires_grad());
  EXPECT_TRUE(linear->weight.is_leaf());
}

TEST_F(TensorFileTest, SameValuesGiveTheSameBytes) {
  const auto tensors = every_dtype();
  std::vector<NamedTensor> copies;
  copies.reserve(tensors.size());
  for (const auto& named : tensors) copies.push_back({named.name, named.tensor.clone()});
  EXPECT_EQ(encode_tensors(tensors), encode_tensors(copies));
  restore_tensors(encode_tensors({}), "f", {});
}

TEST_F(TensorFileTest, FileIsReadableWithoutTorch) {
  const auto weight = torch::randn({2, 3});
  const std::string bytes = encode_tensors({{"w", weight}, {"count", torch::tensor(int64_t{258})}});
  std::map<std::string, record::TensorBytes> parsed;
  for (const auto& tensor : record::parse_safetensors(bytes, "f").tensors) parsed[tensor.name] = tensor;
  ASSERT_EQ(parsed.size(), 2u);
  EXPECT_EQ(parsed["w"].dtype, "F32");
  EXPECT_EQ(parsed["w"].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(parsed["w"].data, weight.data_ptr(), 24), 0);
  EXPECT_EQ(parsed["count"].dtype, "I64");
  EXPECT_TRUE(parsed["count"].shape.empty());
  EXPECT_EQ(std::string(parsed["count"].data, 8), std::string("\2\1\0\0\0\0\0\0", 8));
}

TEST_F(TensorFileTest, MissingTensorIsNamed) {
  const std::string bytes = encode_tensors({{"a", torch::ones({2})}});
  expect_refused(bytes, {{"a", torch::zeros({2})}, {"layer.bias", torch::zeros({2})}},
                 {"'layer.bias'", "missing"});
}

TEST_F(TensorFileTest, TensorThatIsNotExpectedIsNamed) {
  const std::string bytes = encode_tensors({{"a", torch::ones({2})}, {"layer\n.bias", torch::ones({2})}});
  expect_refused(bytes, {{"a", torch::zeros({2})}}, {"layer\\x0a.bias", "not expected"});
}

TEST_F(TensorFileTest, OtherShapeIsNamed) {
  const std::string bytes = encode_tensors({{"a", torch::ones({2})}, {"b", torch::ones({2, 3})}});
  const auto a = torch::zeros({2});
  expect_refused(bytes, {{"a", a}, {"b", torch::zeros({3, 2})}}, {"'b'", "[2, 3]", "expected [3, 2]"});
  expect_refused(bytes, {{"a", a}, {"b", torch::zeros({6})}}, {"'b'", "[2, 3]", "expected [6]"});
}

TEST_F(TensorFileTest, OtherDtypeIsNamed) {
  const std::string bytes = encode_tensors({{"a", torch::ones({2})}, {"b", torch::ones({2})}});
  const auto a = torch::zeros({2});
  expect_refused(bytes, {{"a", a}, {"b", torch::zeros({2}, torch::kDouble)}}, {"'b'", "F32", "expected F64"});
  expect_refused(bytes, {{"a", a}, {"b", torch::zeros({2}, torch::kInt)}}, {"'b'", "F32", "expected I32"});
}

TEST_F(TensorFileTest, TornFileIsRefused) {
  const std::vector<NamedTensor> tensors = {{"a", torch::ones({20})}, {"b", torch::ones({2, 3})}};
  const std::string bytes = encode_tensors(tensors);
  for (const size_t length : {size_t{0}, size_t{7}, size_t{40}, bytes.size() - 1}) {
    expect_refused(bytes.substr(0, length), blanks_of(tensors), {});
  }
}

TEST_F(TensorFileTest, BytesThatAreNoBoolAreRefused) {
  std::string bytes = encode_tensors({{"a", torch::ones({1})}, {"mask", torch::ones({8}, torch::kBool)}});
  const size_t place = bytes.find(std::string(8, '\1'));
  ASSERT_NE(place, std::string::npos);
  bytes[place + 3] = '\2';
  expect_refused(bytes, {{"a", torch::zeros({1})}, {"mask", torch::zeros({8}, torch::kBool)}},
                 {"'mask'", "neither 0 nor 1"});
}

TEST_F(TensorFileTest, DtypeThatTheFormatLacksIsRefused) {
  EXPECT_THROW(encode_tensors({{"z", torch::zeros({2}, torch::kComplexFloat)}}), c10::Error);
}

}  // namespace
}  // namespace renorm::train
