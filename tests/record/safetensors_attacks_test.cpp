// Files made to break a reader. Each must be refused with a sentence that names the file.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "base/random.h"
#include "record/safetensors.h"
#include "temporary_folder.h"

namespace renorm::record {
namespace {

using renorm::testing::expect_error;

std::string length_bytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>((length >> (8 * i)) & 0xff);
  return bytes;
}

std::string file_of(const std::string& header, const std::string& data = "") {
  return length_bytes(header.size()) + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

// One tensor of so many bytes of data.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                size_t bytes) {
  return file_of("{" + entry("t", dtype, shape, offsets) + "}", std::string(bytes, 'x'));
}

// Two tensors of bytes.
std::string two(const std::string& first, const std::string& first_shape, const std::string& second,
                const std::string& second_shape, size_t bytes) {
  return file_of(
      "{" + entry("a", "U8", first_shape, first) + "," + entry("b", "U8", second_shape, second) + "}",
      std::string(bytes, 'x'));
}

struct Attack {
  std::string bytes;
  std::string part;  // of the message
};

void expect_refused(const std::vector<Attack>& attacks) {
  for (const Attack& attack : attacks) {
    expect_error<DataError>(attack.part, [&] { parse_safetensors(attack.bytes, "evil.safetensors"); });
    expect_error<DataError>("evil.safetensors: ",
                            [&] { parse_safetensors(attack.bytes, "evil.safetensors"); });
  }
}

TEST(SafetensorsAttacks, OnTheLengthOfTheHeader) {
  std::string too_long = "{";
  too_long.resize(101000000, ' ');
  expect_refused({
      {"", "at least 8 bytes, this one has 0"},
      {std::string(7, '\0'), "at least 8 bytes, this one has 7"},
      {length_bytes(0), "must start with '{'"},
      {length_bytes(0) + "{}", "must start with '{'"},
      {length_bytes(3) + "{}", "has 3 bytes, but only 2 follow"},
      {length_bytes(uint64_t{1} << 63) + "{}", "has 9223372036854775808 bytes, more than the 100 MB"},
      {length_bytes(~uint64_t{0}) + "{}", "more than the 100 MB"},
      {length_bytes(~uint64_t{0} - 7) + "{}", "more than the 100 MB"},
      {length_bytes(100000000) + "{}", "only 2 follow"},
      {file_of(too_long + "}"), "more than the 100 MB"},
  });
}

TEST(SafetensorsAttacks, OnTheSyntaxOfTheHeader) {
  expect_refused({
      {file_of("[]"), "must start with '{'"},
      {file_of(" {}"), "must start with '{'"},
      {file_of("\xef\xbb\xbf{}"), "must start with '{'"},
      {file_of("{"), "not valid JSON"},
      {file_of("{}}"), "not valid JSON"},
      {file_of("{} x"), "not valid JSON"},
      {file_of(std::string("{}\0}", 4)), "a zero byte"},
      {file_of(std::string("{\0}", 3)), "a zero byte"},
      {file_of("{\"\xff\":1}"), "not valid JSON"},
      {file_of("{\"t\":1e999}"), "not valid JSON"},
      {file_of("{\"t\":" + std::string(100000, '[')), "nested deeper than 3 levels"},
      {file_of("{\"t\":" + std::string(100000, '{')), "not valid JSON"},
      {file_of("{\"t\":{\"shape\":" + std::string(100000, '[')), "nested deeper than 3 levels"},
      {file_of("{\"t\":{\"dtype\":" + std::string(100000, '[')), "nested deeper than 3 levels"},
  });
  std::string bomb;
  for (int i = 0; i < 100000; ++i) bomb += "{\"a\":";
  expect_refused({{file_of(bomb), "nested deeper than 3 levels"}});
}

TEST(SafetensorsAttacks, OnTheEntries) {
  expect_refused({
      {file_of("{\"t\":null}"), "'t' must be an object, got null"},
      {file_of("{\"t\":{}}"), "'t.dtype' is missing"},
      {file_of(R"({"t":{"dtype":"U8","shape":[]}})"), "'t.data_offsets' is missing"},
      {file_of(R"({"t":{"dtype":"U8","data_offsets":[0,0]}})"), "'t.shape' is missing"},
      {file_of(R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})"), "unknown entry 't.x'"},
      {file_of(R"({"t":{"dtype":7}})"), "'t.dtype' must be a string, got 7"},
      {file_of(R"({"t":{"dtype":"","shape":"[1]"}})"), "'t.shape' must be an array, got \"[1]\""},
      {file_of(R"({"t":{"dtype":"","shape":{"a":1}}})"), "'t.shape' must be an array"},
      {file_of(R"({"t":{"dtype":"","shape":[true]}})"),
       "'t.shape[0]' must be a whole number of at least 0, got true"},
      {file_of(R"({"__metadata__":{"a":1}})"), "'__metadata__.a' must be a string, got 1"},
      {file_of(R"({"__metadata__":{"a":{}}})"), "'__metadata__.a' must be a string, got {}"},
      {file_of(R"({"__metadata__":[]})"), "'__metadata__' must be an object"},
      {one("U8", "[1]", "[0]", 1), "must be two numbers, got 1"},
      {one("U8", "[1]", "[]", 1), "must be two numbers, got 0"},
      {one("U8", "[1]", "[0,1,1]", 1), "must be two numbers, got 3"},
      {one("F31", "[1]", "[0,4]", 4), "unknown dtype 'F31'"},
      {one("", "[1]", "[0,4]", 4), "unknown dtype ''"},
      {one("f32", "[1]", "[0,4]", 4), "unknown dtype 'f32'"},
  });
}

TEST(SafetensorsAttacks, ByGivingSomethingTwice) {
  const std::string t = entry("t", "U8", "[0]", "[0,0]");
  expect_refused({
      {file_of("{" + t + "," + t + "}"), "'t' is given twice in one object"},
      {file_of("{" + t + "," + entry("\\u0074", "U8", "[0]", "[0,0]") + "}"),
       "'t' is given twice in one object"},
      {file_of(R"({"t":{"dtype":"U8","dtype":"U8"}})"), "'dtype' is given twice in one object"},
      {file_of(R"({"t":{"shape":[1],"shape":[2]}})"), "'shape' is given twice in one object"},
      {file_of(R"({"__metadata__":{"a":"","a":""}})"), "'a' is given twice in one object"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})"), "'__metadata__' is given twice in one object"},
  });
}

TEST(SafetensorsAttacks, OnShapes) {
  std::string dimensions = "[1";
  for (int i = 0; i < 64; ++i) dimensions += ",1";
  expect_refused({
      // 2^64 and 4 bytes more: unchecked products come out small
      {one("F32", "[4194305,4194305,211106198978564]", "[0,4]", 4), "needs more than 2^63"},
      {one("U8", "[4294967296,4294967296]", "[0,0]", 0), "needs more than 2^63"},
      {one("F64", "[2305843009213693952]", "[0,0]", 0), "needs more than 2^63"},
      {one("F64", "[1152921504606846976,2]", "[0,16]", 16), "needs more than 2^63"},
      {one("U8", "[9223372036854775808]", "[0,0]", 0), "at most 2^63 - 1"},
      {one("U8", "[18446744073709551616]", "[0,0]", 0), "a whole number of at least 0, got 1.8"},
      {one("U8", "[-1]", "[0,1]", 1), "a whole number of at least 0, got -1"},
      {one("U8", "[-1,-1]", "[0,1]", 1), "a whole number of at least 0, got -1"},
      {one("U8", "[1.0]", "[0,1]", 1), "a whole number of at least 0, got 1.0"},
      {one("U8", "[\"1\"]", "[0,1]", 1), "a whole number of at least 0, got \"1\""},
      {one("U8", dimensions + "]", "[0,1]", 1), "an array has more than 64 entries"},
      {one("F32", "[2]", "[0,4]", 4), "has 4 bytes, but shape [2] of F32 needs 8"},
      {one("F32", "[0]", "[0,4]", 4), "has 4 bytes, but shape [0] of F32 needs 0"},
      {one("F32", "[]", "[0,0]", 0), "has 0 bytes, but shape [] of F32 needs 4"},
  });
}

TEST(SafetensorsAttacks, OnOffsets) {
  expect_refused({
      {one("U8", "[2]", "[0,2]", 1), "ends at byte 2, but the file has only 1 bytes"},
      {one("U8", "[1]", "[1,0]", 1), "ends at byte 0 before it begins at 1"},
      {one("U8", "[1]", "[9223372036854775806,9223372036854775807]", 1), "ends at byte 9223372036854775807"},
      {one("U8", "[1]", "[18446744073709551615,0]", 1), "at most 2^63 - 1"},
      {one("U8", "[1]", "[-1,0]", 1), "a whole number of at least 0, got -1"},
      {one("U8", "[1]", "[0,1]", 2), "the last 1 of 2 bytes of data belong to no tensor"},
      {one("U8", "[1]", "[1,2]", 2), "begins at byte 1, but the one before it ends at 0"},
      {one("U8", "[0]", "[1,1]", 1), "begins at byte 1, but the one before it ends at 0"},
      {one("U8", "[0]", "[0,0]", 1), "belong to no tensor"},
      {file_of("{}", "x"), "the last 1 of 1 bytes of data belong to no tensor"},
      {two("[0,2]", "[2]", "[1,3]", "[2]", 3),
       "tensor 'b' begins at byte 1, but the one before it ends at 2"},
      {two("[0,2]", "[2]", "[0,2]", "[2]", 2), "begins at byte 0, but the one before it ends at 2"},
      {two("[0,1]", "[1]", "[2,3]", "[1]", 3), "begins at byte 2, but the one before it ends at 1"},
      {two("[0,3]", "[3]", "[1,1]", "[0]", 3),
       "tensor 'b' begins at byte 1, but the one before it ends at 3"},
  });
}

TEST(SafetensorsAttacks, ByNumber) {
  std::string tensors = "{";
  std::string metadata = R"({"__metadata__":{)";
  for (int i = 0; i < 1000000; ++i) {
    const std::string comma = i == 0 ? "" : ",";
    tensors += comma + entry(std::to_string(i), "U8", "[0]", "[0,0]");
    metadata += comma + "\"" + std::to_string(i) + "\":\"\"";
  }
  std::string shape = "[0";
  for (int i = 0; i < 100000; ++i) shape += ",0";
  std::string one_too_many = "{";
  for (int i = 0; i <= 100000; ++i) {
    one_too_many += (i == 0 ? "" : ",") + entry(std::to_string(i), "U8", "[0]", "[0,0]");
  }
  std::string long_shapes = "{";
  std::string long_shape = "[0";
  for (int i = 0; i < 99999; ++i) long_shape += ",0";
  for (int i = 0; i < 100; ++i) {
    long_shapes += (i == 0 ? "" : ",") + entry(std::to_string(i), "U8", long_shape + "]", "[0,0]");
  }
  std::string one_metadata_too_many = R"({"__metadata__":{)";
  for (int i = 0; i <= 100000; ++i) {
    one_metadata_too_many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"\"";
  }
  // Quotation marks inside of a name.
  std::string quotes;
  for (int i = 0; i < 20000000; ++i) quotes += "\\\"";
  std::string many_names = "{";
  for (int i = 0; i < 6; ++i) {
    many_names += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":{";
    for (int k = 0; k < 99999; ++k) many_names += (k == 0 ? "\"" : ",\"") + std::to_string(k) + "\":0";
    many_names += "}";
  }
  std::string name;
  name.resize(90000000, 'n');
  expect_refused({
      {file_of(tensors + "}"), "an object has more than 100001 entries"},
      {file_of(one_too_many + "}"), "more than 100000 tensors"},
      {file_of(long_shapes + "}"), "an array has more than 64 entries"},
      {file_of(metadata + "}}"), "an object has more than 100001 entries"},
      {file_of(one_metadata_too_many + "}}"), "more than 100000 metadata"},
      {one("U8", shape + "]", "[0,0]", 0), "an array has more than 64 entries"},
      {file_of("{" + entry(quotes, "U8", shape + "]", "[0,0]") + "}"), "a name has more than 1000000 bytes"},
      {file_of(many_names + "}"), "more than 500001 names"},
      {one("U8", "[{}]", "[0,0]", 0), "nested deeper than 3 levels"},
      {file_of("{" + entry(name, "U8", "[0]", "[0,0]") + "}"), "more than 1000000 bytes without"},
  });
}

TEST(SafetensorsAttacks, MessagesAreOneShortLine) {
  const std::string name(500000, 'n');
  try {
    parse_safetensors(file_of("{" + entry("\\n\\u001b[31m" + name, "F31", "[]", "[0,0]") + "}"), "a\nb");
    ADD_FAILURE();
  } catch (const DataError& error) {
    const std::string message = error.what();
    EXPECT_LT(message.size(), 1000u);
    EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos);
  }
}

// Every byte of a good file replaced, and the file cut at every byte: read or refused, never anything else.
TEST(SafetensorsAttacks, ByChangingSingleBytes) {
  const std::string good = encode_safetensors(
      {{"a", "F32", {2, 1}, "12345678", 8}, {"b", "U8", {0}, nullptr, 0}}, {{"format", "pt"}});
  ASSERT_EQ(parse_safetensors(good, "x").tensors.size(), 2u);
  RandomStream stream(1, Purpose::kModel);
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_THROW(parse_safetensors(good.substr(0, i), "x"), DataError) << i;
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::string bad = good;
      bad[i] = static_cast<char>(stream.below(256));
      try {
        parse_safetensors(bad, "x");
      } catch (const DataError&) {
        continue;
      }
    }
  }
}

// Odd files that are allowed.
TEST(SafetensorsAttacks, AreToldFromUnusualFiles) {
  std::string padded = "{}";
  padded.resize(90000000, ' ');
  EXPECT_EQ(parse_safetensors(file_of(padded), "x").tensors.size(), 0u);
  EXPECT_EQ(parse_safetensors(file_of(R"({"__metadata__":{}})"), "x").tensors.size(), 0u);
  EXPECT_EQ(parse_safetensors(one("F32", "[]", "[0,4]", 4), "x").tensors.at(0).bytes, 4);
  EXPECT_EQ(parse_safetensors(one("F32", "[0,9223372036854775807,9223372036854775807]", "[0,0]", 0), "x")
                .tensors.at(0)
                .bytes,
            0);
  EXPECT_EQ(parse_safetensors(two("[1,3]", "[2]", "[0,1]", "[1]", 3), "x").tensors.at(0).name, "b");
  EXPECT_EQ(parse_safetensors(two("[0,1]", "[1]", "[1,1]", "[0,7]", 1), "x").tensors.at(1).name, "b");
  EXPECT_EQ(parse_safetensors(file_of("{" + entry("", "U8", "[0]", "[0,0]") + "}"), "x").tensors.at(0).name,
            "");
}

}  // namespace
}  // namespace renorm::record
