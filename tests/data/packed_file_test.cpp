#include "data/packed_file.h"

#include "base/errors.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

NamedBytes read_any(const std::string& folder, const std::string& name) {
  return read_plain_or_gz(
      folder, name, [](const std::string& /*start*/, const std::string& /*file*/) { return kMaxFileBytes; });
}

TEST(Gunzip, GivesBackWhatWasPacked) {
  for (const size_t size : {0, 1, 1000, 65536, 200000}) {
    const std::string bytes = counting(size);
    EXPECT_EQ(gunzip(gzip(bytes), "f.gz", 1 << 20), bytes) << size;
  }
}

TEST(Gunzip, JoinsPartsThatFollowEachOther) {
  EXPECT_EQ(gunzip(gzip("one") + gzip("") + gzip("two"), "f.gz", 6), "onetwo");
}

TEST(Gunzip, LimitIsExact) {
  const std::string packed = gzip(std::string(1000, 'x'));
  EXPECT_EQ(gunzip(packed, "f.gz", 1000).size(), 1000U);
  expect_error<DataError>([&] { gunzip(packed, "f.gz", 999); }, {"f.gz: holds more than 999 bytes"});
  expect_error<DataError>([&] { gunzip(packed, "f.gz", 0); }, {"more than 0 bytes"});
  EXPECT_EQ(gunzip(gzip(""), "f.gz", 0), "");
}

TEST(Gunzip, StopsUnpackingABombAtTheLimit) {
  const std::string bomb = gzip(std::string(size_t{64} << 20, '\0'));
  EXPECT_LT(bomb.size(), size_t{100000});
  expect_error<DataError>([&] { gunzip(bomb, "bomb.gz", 1000); }, {"bomb.gz: holds more than 1000 bytes"});
  // Each part is small, together they are not.
  const std::string part = gzip(std::string(600, 'x'));
  expect_error<DataError>([&] { gunzip(part + part, "bomb.gz", 1000); }, {"more than 1000 bytes"});
}

TEST(Gunzip, EveryCutIsNoticed) {
  const std::string packed = gzip(counting(500));
  for (size_t length = 0; length < packed.size(); ++length) {
    expect_error<DataError>([&] { gunzip(packed.substr(0, length), "f.gz", 1000); }, {"f.gz: "});
  }
  expect_error<DataError>([&] { gunzip(packed.substr(0, 100), "f.gz", 1000); },
                          {"cut short after 100 bytes", "fetch the file again"});
}

TEST(Gunzip, NamesWhatIsWrong) {
  const std::string packed = gzip(counting(500));
  expect_error<DataError>([&] { gunzip(packed + "rubbish", "f.gz", 1000); },
                          {"f.gz: the gzip data end at byte", "7 more bytes follow"});
  std::string altered = packed;
  altered[altered.size() - 5] ^= 1;  // in the checksum
  expect_error<DataError>([&] { gunzip(altered, "f.gz", 1000); }, {"f.gz: the gzip data are damaged"});
  expect_error<DataError>([&] { gunzip("plain text", "f.gz", 1000); },
                          {"f.gz: not gzip data", "take the .gz off its name"});
}

TEST(Gunzip, StartIsThatOfTheContent) {
  const std::string bytes = counting(500);
  EXPECT_EQ(gunzip_start(gzip(bytes), "f.gz", 16), bytes.substr(0, 16));
  EXPECT_EQ(gunzip_start(gzip("ab") + gzip("") + gzip("cdef"), "f.gz", 4), "abcd");
  EXPECT_EQ(gunzip_start(gzip("ab"), "f.gz", 16), "ab");
  EXPECT_EQ(gunzip_start(gzip(""), "f.gz", 16), "");
  expect_error<DataError>([&] { gunzip_start(gzip(bytes).substr(0, 8), "f.gz", 16); },
                          {"f.gz: ", "cut short"});
  expect_error<DataError>([&] { gunzip_start("plain text", "f.gz", 16); }, {"f.gz: not gzip data"});
}

// Memory that is not needed is not even reserved: at most as much as the packed bytes can hold.
TEST(Gunzip, TakesNoMoreMemoryThanTheContent) {
  EXPECT_LT(gunzip(gzip("small"), "f.gz", int64_t{1} << 40).capacity(), size_t{100000});
  const std::string bytes(100000, 'x');
  EXPECT_LT(gunzip(gzip(bytes), "f.gz", 100000).capacity(), size_t{110000});
}

TEST(PackedFile, ContentIsLimitedByItsStart) {
  const TemporaryFolder folder;
  folder.write("a.gz", gzip("0123456789abcdefghij"));
  std::string seen;
  const auto limited = [&](int64_t max) {
    return read_plain_or_gz(folder.path(), "a", [&](const std::string& start, const std::string& /*file*/) {
      seen = start;
      return max;
    });
  };
  EXPECT_EQ(limited(20).bytes, "0123456789abcdefghij");
  EXPECT_EQ(seen, "0123456789abcdef");
  expect_error<DataError>([&] { limited(19); }, {folder.file("a.gz"), "holds more than 19 bytes"});
}

TEST(PackedFile, IsUnpackedOnlyUpToAMultipleOfItsSize) {
  const TemporaryFolder folder;
  const auto read = [&](int64_t ratio) {
    return read_plain_or_gz(
               folder.path(), "a", [](const auto& /*start*/, const auto& /*file*/) { return kMaxFileBytes; },
               ratio)
        .bytes.size();
  };
  const std::string packed = gzip(std::string(size_t{8} << 20, '\0'));
  folder.write("a.gz", packed);
  EXPECT_EQ(read(1032), size_t{8} << 20);
  expect_error<DataError>(
      [&] { read(2); },
      {folder.file("a.gz"), "holds more than " + std::to_string((4 << 20) + 2 * packed.size()), "packed size",
       "unpack it yourself"});
  folder.write("a.gz", gzip(std::string(size_t{4} << 20, '\0')));
  EXPECT_EQ(read(2), size_t{4} << 20);
}

TEST(PackedFile, PlainIsTakenBeforePacked) {
  const TemporaryFolder folder;
  folder.write("a.gz", gzip("packed"));
  EXPECT_EQ(read_any(folder.path(), "a").bytes, "packed");
  EXPECT_EQ(read_any(folder.path(), "a").file, folder.file("a.gz"));
  folder.write("a", "plain");
  EXPECT_EQ(read_any(folder.path(), "a").bytes, "plain");
  EXPECT_EQ(read_any(folder.path(), "a").file, folder.file("a"));
}

TEST(PackedFile, MissingFilesAreNamed) {
  const TemporaryFolder folder;
  expect_error<MissingInputError>([&] { read_any(folder.path(), "a"); },
                                  {folder.path(), "neither a nor a.gz"});
  folder.write("a/inside", "");
  expect_error<MissingInputError>([&] { read_any(folder.path(), "a"); }, {folder.file("a"), "folder"});
  expect_error<MissingInputError>([&] { check_data_folder(folder.file("b")); },
                                  {folder.file("b"), "no such folder"});
  expect_error<MissingInputError>([&] { check_data_folder(folder.file("a/inside")); }, {"no such folder"});
}

}  // namespace
}  // namespace renorm::data::testing
