#include "data/idx.h"

#include "base/errors.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

const std::string kImages = idx({2, 2, 3}, counting(12));
const std::string kLabels = idx({2}, std::string("\x09\x00", 2));

ByteImages parse(const std::string& images, const std::string& labels) {
  return parse_idx(images, "images", labels, "labels", 10);
}

TEST(Idx, HoldsImagesAndLabels) {
  const ByteImages parsed = parse(kImages, kLabels);
  EXPECT_EQ(parsed.channels, 1);
  EXPECT_EQ(parsed.height, 2);
  EXPECT_EQ(parsed.width, 3);
  EXPECT_EQ(parsed.labels, (std::vector<int64_t>{9, 0}));
  EXPECT_EQ(parsed.pixels, (std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(Idx, LargestLabelAndByteAreNotNegative) {
  const ByteImages parsed = parse_idx(idx({1, 1, 1}, "\xff"), "images", idx({1}, "\xfe"), "labels", 255);
  EXPECT_EQ(parsed.labels[0], 254);
  EXPECT_EQ(parsed.pixels[0], 255);
}

TEST(Idx, EveryCutIsNoticed) {
  for (size_t length = 0; length < kImages.size(); ++length) {
    expect_error<DataError>([&] { parse(kImages.substr(0, length), kLabels); }, {"images: "});
  }
  for (size_t length = 0; length < kLabels.size(); ++length) {
    expect_error<DataError>([&] { parse(kImages, kLabels.substr(0, length)); }, {"labels: "});
  }
}

TEST(Idx, BadInputIsNamed) {
  struct Case {
    std::string images;
    std::string labels;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"", kLabels, {"images: 0 bytes", "header", "16"}},
      {kLabels + counting(8), kLabels, {"images: starts with 0x00000801", "0x00000803"}},
      {kImages, kImages, {"labels: starts with 0x00000803", "0x00000801"}},
      {kImages + "x", kLabels, {"images: 29 bytes", "2 images", "take 28"}},
      {kImages, kLabels + "x", {"labels: 11 bytes", "2 labels", "take 10"}},
      {kImages, idx({3}, "abc"), {"labels: 3 labels", "images has 2 images"}},
      {kImages, idx({2}, std::string("\x01\x0a", 2)), {"labels: label 10 at byte 9", "0 to 9"}},
      {kImages, idx({2}, "\xff\x01"), {"labels: label 255 at byte 8"}},
      {idx({0, 2, 3}, ""), idx({0}, ""), {"images: holds no images"}},
      {idx({2, 0, 3}, ""), kLabels, {"images: ", "0 rows", "1 to 4096"}},
      {idx({2, 2, 4097}, ""), kLabels, {"images: ", "4097 columns", "1 to 4096"}},
      // Products that do not fit into 64 and 32 bits.
      {idx({0xffffffff, 0xffffffff, 0xffffffff}, "x"), kLabels, {"images: ", "4294967295 rows"}},
      {idx({0xffffffff, 4096, 4096}, counting(4)), kLabels, {"images: 20 bytes", "take 72057594021150736"}},
      {idx({0x10000000, 4, 4}, ""), kLabels, {"images: 16 bytes", "take 4294967312"}},
      {kImages, idx({0xffffffff}, "xy"), {"labels: 4294967295 labels"}},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.parts.front());
    expect_error<DataError>([&] { parse(bad.images, bad.labels); }, bad.parts);
  }
}

class Mnist : public ::testing::Test {
 protected:
  void SetUp() override {
    folder.write("train-images-idx3-ubyte", kImages);
    folder.write("train-labels-idx1-ubyte.gz", gzip(kLabels));
    folder.write("t10k-images-idx3-ubyte.gz", gzip(idx({1, 2, 3}, counting(6, 100))));
    folder.write("t10k-labels-idx1-ubyte", idx({1}, "\x05"));
  }

  ByteDataset read() const { return read_mnist(folder.path(), mnist_classes()); }

  TemporaryFolder folder;
};

TEST_F(Mnist, ReadsPlainAndPackedFiles) {
  const ByteDataset data = read();
  EXPECT_EQ(data.classes, mnist_classes());
  EXPECT_EQ(data.train.labels, (std::vector<int64_t>{9, 0}));
  EXPECT_EQ(data.test.labels, (std::vector<int64_t>{5}));
  EXPECT_EQ(data.test.pixels[5], 105);
  EXPECT_EQ(fashion_mnist_classes().size(), 10U);
  EXPECT_EQ(fashion_mnist_classes()[9], "Ankle boot");
}

TEST_F(Mnist, EachMissingFileIsNamed) {
  for (const std::string name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz",
                                 "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"}) {
    std::filesystem::rename(folder.file(name), folder.file("away"));
    expect_error<MissingInputError>([&] { read(); },
                                    {folder.path(), "neither " + name.substr(0, name.find(".gz"))});
    std::filesystem::rename(folder.file("away"), folder.file(name));
  }
  EXPECT_NO_THROW(read());
}

TEST_F(Mnist, FilesMustAgreeInSize) {
  folder.write("t10k-images-idx3-ubyte.gz", gzip(idx({1, 3, 2}, counting(6))));
  expect_error<DataError>([&] { read(); }, {folder.file("t10k-images-idx3-ubyte.gz") + ": images of 3x2",
                                            folder.file("train-images-idx3-ubyte") + " has 2x3"});
}

TEST_F(Mnist, PackedFilesAreUnpackedOnlyAsFarAsTheirHeadersState) {
  const std::string zeros(size_t{64} << 20, '\0');
  folder.write("t10k-images-idx3-ubyte.gz", gzip(idx({1, 2, 3}, zeros)));
  expect_error<DataError>(
      [&] { read(); }, {folder.file("t10k-images-idx3-ubyte.gz"), "holds more than 22 bytes when unpacked"});
  folder.write("t10k-images-idx3-ubyte.gz", gzip(zeros));
  expect_error<DataError>([&] { read(); },
                          {folder.file("t10k-images-idx3-ubyte.gz"), "starts with 0x00000000"});
  folder.write("train-labels-idx1-ubyte.gz", gzip(idx({2}, zeros)));
  expect_error<DataError>(
      [&] { read(); }, {folder.file("train-labels-idx1-ubyte.gz"), "holds more than 10 bytes when unpacked"});
}

// The headers are right; images and labels are a thousand times as large as their files.
TEST_F(Mnist, SmallPackedFilesAreNotUnpackedToMillionsOfImages) {
  constexpr uint32_t kCount = 8 << 20;
  const std::string zeros(kCount, '\0');
  folder.write("t10k-images-idx3-ubyte.gz", gzip(idx({kCount, 1, 1}, zeros)));
  expect_error<DataError>([&] { read(); }, {folder.file("t10k-images-idx3-ubyte.gz"), "packed size"});
  std::filesystem::remove(folder.file("t10k-images-idx3-ubyte.gz"));
  std::filesystem::remove(folder.file("t10k-labels-idx1-ubyte"));
  folder.write("t10k-images-idx3-ubyte", idx({kCount, 1, 1}, zeros));
  folder.write("t10k-labels-idx1-ubyte.gz", gzip(idx({kCount}, zeros)));
  expect_error<DataError>([&] { read(); }, {folder.file("t10k-labels-idx1-ubyte.gz"), "packed size"});
}

TEST_F(Mnist, SortedLabelsOfAMillionImagesAreUnpacked) {
  constexpr uint32_t kCount = 1'300'000;
  std::string labels(kCount / 2, '\0');
  labels.resize(kCount, '\1');
  std::filesystem::remove(folder.file("t10k-labels-idx1-ubyte"));
  folder.write("t10k-labels-idx1-ubyte.gz", gzip(idx({kCount}, labels)));
  folder.write("t10k-images-idx3-ubyte", idx({kCount, 2, 3}, counting(size_t{6} * kCount)));
  EXPECT_EQ(read().test.size(), kCount);
}

TEST_F(Mnist, FoldersAndDamagedFilesAreNamed) {
  folder.write("t10k-labels-idx1-ubyte", "short");
  expect_error<DataError>([&] { read(); }, {folder.file("t10k-labels-idx1-ubyte")});
  std::filesystem::remove(folder.file("t10k-labels-idx1-ubyte"));
  std::filesystem::create_directory(folder.file("t10k-labels-idx1-ubyte"));
  expect_error<MissingInputError>([&] { read(); }, {folder.file("t10k-labels-idx1-ubyte"), "folder"});
  expect_error<MissingInputError>([&] { read_mnist(folder.file("nowhere"), mnist_classes()); },
                                  {folder.file("nowhere"), "no such folder"});
}

}  // namespace
}  // namespace renorm::data::testing
