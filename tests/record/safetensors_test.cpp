#include "record/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "base/random.h"
#include "temporary_folder.h"

namespace renorm::record {
namespace {

using renorm::testing::expect_error;
using SafetensorsFile = renorm::testing::TemporaryFolder;

TensorBytes tensor(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
                   const std::string& data) {
  return {name, dtype, shape, data.data(), static_cast<int64_t>(data.size())};
}

TEST(Safetensors, ReadBackAsWritten) {
  RandomStream stream(1, Purpose::kModel);
  const std::pair<std::string, std::vector<int64_t>> kinds[] = {
      {"F32", {3, 5}}, {"U8", {7}},   {"F64", {}},    {"BF16", {1, 1, 3}},
      {"I64", {2}},    {"BOOL", {3}}, {"F32", {0, 4}}};
  std::vector<std::string> contents;
  std::vector<TensorBytes> tensors;
  contents.reserve(std::size(kinds));
  for (const auto& [dtype, shape] : kinds) {
    int64_t bytes = dtype_size(dtype);
    for (const int64_t size : shape) bytes *= size;
    std::string& content = contents.emplace_back();
    for (int64_t i = 0; i < bytes; ++i) content += static_cast<char>(stream.below(256));
    tensors.push_back(tensor("t" + std::to_string(tensors.size()), dtype, shape, content));
  }
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"ü\n", "\"x\""}};
  const std::string bytes = encode_safetensors(tensors, metadata);
  EXPECT_EQ(bytes, encode_safetensors(tensors, metadata));
  const Safetensors read = parse_safetensors(bytes, "x");
  EXPECT_EQ(read.metadata, metadata);
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (const TensorBytes& found : read.tensors) {
    const TensorBytes& expected = tensors.at(std::stoul(found.name.substr(1)));
    EXPECT_EQ(found.dtype, expected.dtype);
    EXPECT_EQ(found.shape, expected.shape);
    EXPECT_EQ(std::string(found.data, found.bytes), std::string(expected.data, expected.bytes));
    const auto offset = static_cast<int64_t>(found.data - bytes.data());
    EXPECT_EQ(offset % dtype_size(found.dtype), 0) << found.name;
  }
}

TEST(Safetensors, LayoutIsTheFormatsOwn) {
  const std::string bytes =
      encode_safetensors({tensor("a", "U8", {2}, "xy"), tensor("b", "F32", {1}, "1234")});
  const std::string header = R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const size_t padded = (header.size() + 7) / 8 * 8;
  EXPECT_EQ(bytes.substr(0, 8), std::string(1, static_cast<char>(padded)) + std::string(7, '\0'));
  EXPECT_EQ(bytes.substr(8), header + std::string(padded - header.size(), ' ') + "1234xy");
}

TEST(Safetensors, MayBeEmpty) {
  const std::string bytes = encode_safetensors({});
  EXPECT_EQ(bytes, std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(parse_safetensors(bytes, "x").tensors.empty());
}

TEST(Safetensors, OfManyTensorsAreQuick) {
  std::vector<TensorBytes> tensors;
  const std::string content = "abcd";
  tensors.reserve(100001);
  for (int i = 0; i < 100000; ++i) tensors.push_back(tensor("t" + std::to_string(i), "F32", {1}, content));
  const std::string bytes = encode_safetensors(tensors);
  EXPECT_EQ(parse_safetensors(bytes, "x").tensors.back().name, "t99999");
  tensors.push_back(tensor("one more", "F32", {1}, content));
  EXPECT_THROW(encode_safetensors(tensors), std::invalid_argument);
}

TEST(Safetensors, KnowsTheSizesOfDtypes) {
  EXPECT_EQ(dtype_size("F64"), 8);
  EXPECT_EQ(dtype_size("F32"), 4);
  EXPECT_EQ(dtype_size("BF16"), 2);
  EXPECT_EQ(dtype_size("BOOL"), 1);
  EXPECT_EQ(dtype_size("f32"), 0);
  EXPECT_EQ(dtype_size(""), 0);
}

TEST(Safetensors, WritingRefusesWhatReadingWould) {
  const std::string data = "abcd";
  const TensorBytes good = tensor("a", "F32", {1}, data);
  const auto refused = [](const TensorBytes& bad, const std::string& part) {
    expect_error<std::invalid_argument>(part, [&] { encode_safetensors({bad}); });
  };
  refused(tensor("a", "F31", {1}, data), "unknown dtype 'F31'");
  refused(tensor("a", "F32", {2}, data), "do not fit its shape");
  refused(tensor("a", "F32", {-1, -1}, data), "negative dimension");
  refused(tensor("a", "F32", {int64_t{1} << 32, int64_t{1} << 32}, data), "do not fit its shape");
  refused(tensor("a", "F32", std::vector<int64_t>(65, 1), data), "too many dimensions");
  refused(tensor("__metadata__", "F32", {1}, data), "the format reserves");
  refused(tensor("\xff", "F32", {1}, data), "UTF-8");
  refused({"a", "F32", {1}, nullptr, 4}, "no data");
  refused(tensor(std::string(1100000, 'n'), "F32", {1}, data), "without a quotation mark");
  expect_error<std::invalid_argument>("two tensors 'a'", [&] { encode_safetensors({good, good}); });
}

// The bytes as a reader in another language parses them.
constexpr const char* kReader = R"(
import json, struct, sys
raw = open(sys.argv[1], 'rb').read()
length = struct.unpack('<Q', raw[:8])[0]
header = json.loads(raw[8:8 + length].decode())
assert length % 8 == 0 and raw[8:9] == b'{'
assert header.pop('__metadata__') == {'format': 'pt'}
def values(name, code):
    begin, end = header[name]['data_offsets']
    part = raw[8 + length + begin:8 + length + end]
    return list(struct.unpack('<%d%s' % (len(part) // struct.calcsize(code), code), part))
assert header['weight']['dtype'] == 'F32' and header['weight']['shape'] == [2, 2]
assert values('weight', 'f') == [1.0, -2.0, 0.5, 3.0]
assert header['step']['dtype'] == 'I64' and header['step']['shape'] == []
assert values('step', 'q') == [-7]
assert sorted(header) == ['step', 'weight']
try:
    import safetensors
except ImportError:
    sys.exit(0)
with safetensors.safe_open(sys.argv[1], framework='np') as opened:
    assert sorted(opened.keys()) == ['step', 'weight']
)";

TEST_F(SafetensorsFile, OpensInPython) {
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "no python3 here";
  const float weight[] = {1.0f, -2.0f, 0.5f, 3.0f};
  const int64_t step = -7;
  put("a.safetensors",
      encode_safetensors({{"weight", "F32", {2, 2}, reinterpret_cast<const char*>(weight), 16},
                          {"step", "I64", {}, reinterpret_cast<const char*>(&step), 8}},
                         {{"format", "pt"}}));
  put("reader.py", kReader);
  const std::string command = "python3 '" + path("reader.py") + "' '" + path("a.safetensors") + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace renorm::record
