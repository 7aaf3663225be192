#include "data/cifar.h"

#include "base/errors.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

constexpr size_t kPixels = 3072;

std::string record(const std::string& label, size_t first = 0) { return label + counting(kPixels, first); }

TEST(Cifar, AppendsRecords) {
  ByteImages images;
  parse_cifar(record("\x03") + record("\x09", 7), "one", 1, 10, &images);
  parse_cifar(record("\x01", 9), "two", 1, 10, &images);
  EXPECT_EQ(images.channels, 3);
  EXPECT_EQ(images.height, 32);
  EXPECT_EQ(images.width, 32);
  EXPECT_EQ(images.labels, (std::vector<int64_t>{3, 9, 1}));
  ASSERT_EQ(images.pixels.size(), 3 * kPixels);
  EXPECT_EQ(images.pixels[0], 0);
  EXPECT_EQ(images.pixels[kPixels], 7);
  EXPECT_EQ(images.pixels[3 * kPixels - 1], (9 + kPixels - 1) & 0xff);
}

TEST(Cifar, LastLabelByteCounts) {
  ByteImages images;
  parse_cifar(record("\xff\x63"), "file", 2, 100, &images);
  EXPECT_EQ(images.labels, (std::vector<int64_t>{99}));
  EXPECT_EQ(images.pixels[0], 0);
}

TEST(Cifar, BadInputIsNamedAndAppendsNothing) {
  struct Case {
    std::string bytes;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"", {"file: 0 bytes", "3073"}},
      {record("\x01").substr(0, 3072), {"file: 3072 bytes", "multiple of 3073"}},
      {record("\x01") + "x", {"file: 3074 bytes"}},
      {record("\x01") + record("\x0a"), {"file: label 10 at byte 3073", "0 to 9"}},
      {record("\xff"), {"file: label 255 at byte 0"}},
  };
  ByteImages images;
  parse_cifar(record("\x01"), "good", 1, 10, &images);
  for (const Case& bad : cases) {
    expect_error<DataError>([&] { parse_cifar(bad.bytes, "file", 1, 10, &images); }, bad.parts);
    EXPECT_EQ(images.size(), 1);
    EXPECT_EQ(images.pixels.size(), kPixels);
  }
}

void write_cifar10(const TemporaryFolder& folder, const std::string& prefix) {
  for (char batch = '1'; batch <= '5'; ++batch) {
    folder.write(prefix + "data_batch_" + batch + ".bin",
                 record(std::string(1, static_cast<char>(batch - '0'))));
  }
  folder.write(prefix + "test_batch.bin.gz", gzip(record("\x07")));
}

TEST(Cifar10, ReadsTheFolderOrTheOneInside) {
  for (const std::string prefix : {"", "cifar-10-batches-bin/"}) {
    const TemporaryFolder folder;
    write_cifar10(folder, prefix);
    ByteDataset data = read_cifar10(folder.path());
    EXPECT_EQ(data.train.labels, (std::vector<int64_t>{1, 2, 3, 4, 5}));
    EXPECT_EQ(data.test.labels, (std::vector<int64_t>{7}));
    EXPECT_EQ(data.classes.size(), 10U);
    EXPECT_EQ(data.classes[2], "class-2");
    folder.write(prefix + "batches.meta.txt", "a\r\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
    data = read_cifar10(folder.path());
    EXPECT_EQ(data.classes[0], "a");
    EXPECT_EQ(data.classes[9], "j");
  }
}

TEST(Cifar10, WhatIsMissingOrWrongIsNamed) {
  const TemporaryFolder folder;
  write_cifar10(folder, "");
  folder.write("batches.meta.txt", "a\nb\n");
  expect_error<DataError>([&] { read_cifar10(folder.path()); },
                          {folder.file("batches.meta.txt") + ": 2 names", "expected 10"});
  std::filesystem::remove(folder.file("batches.meta.txt"));
  std::filesystem::remove(folder.file("data_batch_4.bin"));
  expect_error<MissingInputError>([&] { read_cifar10(folder.path()); }, {"neither data_batch_4.bin"});
  expect_error<MissingInputError>([&] { read_cifar10(folder.file("x")); }, {"no such folder"});
}

TEST(Cifar10, NamesThatAreNotUtf8StayDistinct) {
  const TemporaryFolder folder;
  write_cifar10(folder, "");
  folder.write("batches.meta.txt", "caf\xe9\ncaf\xe8\nc\nd\ne\nf\ng\nh\ni\nj\n");
  const ByteDataset data = read_cifar10(folder.path());
  EXPECT_EQ(data.classes[0], "caf\\xe9");
  EXPECT_EQ(data.classes[1], "caf\\xe8");
  folder.write("batches.meta.txt", "a\\xe9\na\xe9\nc\nd\ne\nf\ng\nh\ni\nj\n");
  expect_error<DataError>([&] { read_cifar10(folder.path()); },
                          {folder.file("batches.meta.txt"), "two classes are shown as 'a\\xe9'", "rename"});
}

TEST(Cifar100, ReadsFineLabels) {
  const TemporaryFolder folder;
  folder.write("cifar-100-binary/train.bin",
               record(std::string("\x00\x63", 2)) + record(std::string("\x13\x00", 2)));
  folder.write("cifar-100-binary/test.bin", record("\x01\x02"));
  const ByteDataset data = read_cifar100(folder.path());
  EXPECT_EQ(data.train.labels, (std::vector<int64_t>{99, 0}));
  EXPECT_EQ(data.test.labels, (std::vector<int64_t>{2}));
  EXPECT_EQ(data.classes.size(), 100U);
}

}  // namespace
}  // namespace renorm::data::testing
