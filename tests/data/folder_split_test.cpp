#include "data/folder_split.h"

#include <torch/torch.h>

#include <future>

#include "base/errors.h"
#include "image_files.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSide = 16;

// Three classes of 6, 4 and 12 training images, and 2 test images of each. Every image differs.
class FolderDataset : public ::testing::Test {
 protected:
  FolderDataset() {
    int number = 0;
    for (const auto& [name, count] : {std::pair("ant", 6), std::pair("bee", 4), std::pair("cat", 12)}) {
      for (int i = 0; i < count + 2; ++i) {
        const std::string split = i < count ? "train/" : "val/";
        folder.write(split + name + "/" + std::to_string(100 + i) + (i % 2 == 0 ? ".jpg" : ".png"),
                     file_of(++number, i % 2 == 0));
      }
    }
    options.cache = cache.path();
    options.images.transform.size = kSide;
  }

  static std::string file_of(int number, bool jpeg) {
    Image image = smooth_image(40 + number, 30);
    for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(value + 5 * number);
    return jpeg ? jpeg_file(image) : png_file(image);
  }

  Dataset open() const { return open_dataset("folder:" + folder.path(), options); }
  Dataset open_skipping() {
    options.images.on_bad_image = OnBadImage::kSkip;
    return open();
  }
  void spoil(const std::string& name) const { folder.write(name, "no image"); }

  static std::vector<Draw> all_of(const Split& split, uint64_t ticket = 0) {
    std::vector<Draw> draws;
    for (int64_t i = 0; i < split.size(); ++i) draws.push_back({i, ticket + static_cast<uint64_t>(i)});
    return draws;
  }

  TemporaryFolder folder;
  TemporaryFolder cache;
  OpenOptions options;
};

TEST_F(FolderDataset, DescribesWhatItOpened) {
  options.images.transform.centre = 0.75;
  const Dataset data = open();
  EXPECT_EQ(data.description.spec, "folder:" + folder.path());
  EXPECT_EQ(data.description.classes, (std::vector<std::string>{"ant", "bee", "cat"}));
  EXPECT_EQ(data.description.channels, 3);
  EXPECT_EQ(data.description.height, kSide);
  EXPECT_EQ(data.description.width, kSide);
  EXPECT_EQ(data.description.centre, 0.75);
  EXPECT_EQ(data.description.mean, (std::vector<double>{0.485, 0.456, 0.406}));
  EXPECT_EQ(data.description.std, (std::vector<double>{0.229, 0.224, 0.225}));
  EXPECT_EQ(data.train->size(), 22);
  EXPECT_EQ(data.test->labels(), (std::vector<int64_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_TRUE(data.train->is_slow());
  EXPECT_EQ(data.test->pixels(), kSide * kSide);
}

TEST_F(FolderDataset, TestImagesAreTheCentreStandardized) {
  const Dataset data = open();
  const Batch batch = data.test->load({{3, 0}, {0, 0}});
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{2, 3, kSide, kSide}));
  EXPECT_EQ(batch.images.scalar_type(), torch::kFloat);
  EXPECT_TRUE(batch.images.is_contiguous());
  EXPECT_TRUE(torch::equal(batch.labels, torch::tensor({1, 0}, torch::kLong)));
  EXPECT_EQ(batch.skipped, 0);
  // ant has 6 + 2 images and bee 4 before its second for validation.
  const Image expected = evaluation_image(file_of(14, false), "", options.images.transform);
  for (int64_t c = 0; c < 3; ++c) {
    const auto channel = static_cast<size_t>(c);
    for (const int64_t place : {int64_t{0}, kSide + 3, kSide * kSide - 1}) {
      const double value = expected.pixels[static_cast<size_t>(place * 3 + c)] / 255.0;
      EXPECT_EQ(batch.images[0][c].flatten()[place].item<float>(),
                static_cast<float>((value - data.description.mean[channel]) / data.description.std[channel]));
    }
  }
}

TEST_F(FolderDataset, NumberOfThreadsAndCallersChangesNothing) {
  const Dataset one = open();
  options.threads = 4;
  const Dataset four = open();
  const torch::Tensor expected = one.train->load(all_of(*one.train)).images;
  std::vector<std::future<torch::Tensor>> callers;
  callers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    callers.push_back(
        std::async(std::launch::async, [&] { return four.train->load(all_of(*four.train)).images; }));
  }
  for (std::future<torch::Tensor>& caller : callers) EXPECT_TRUE(torch::equal(caller.get(), expected));
}

TEST_F(FolderDataset, DrawGivesTheSameImageInAnyBatch) {
  const Dataset data = open();
  const torch::Tensor all = data.train->load(all_of(*data.train, 7)).images;
  const torch::Tensor some = data.train->load({{9, 1}, {5, 12}, {2, 9}}).images;
  EXPECT_TRUE(torch::equal(some[1], all[5]));
  EXPECT_TRUE(torch::equal(some[2], all[2]));
}

TEST_F(FolderDataset, TicketAndSeedChangeTrainingImagesAlone) {
  const Dataset data = open();
  options.images.seed = 2;
  const Dataset other = open();
  const torch::Tensor image = data.train->load({{4, 1}}).images;
  EXPECT_FALSE(torch::equal(data.train->load({{4, 2}}).images, image));
  EXPECT_FALSE(torch::equal(other.train->load({{4, 1}}).images, image));
  const torch::Tensor test = data.test->load({{4, 1}}).images;
  EXPECT_TRUE(torch::equal(data.test->load({{4, 2}}).images, test));
  EXPECT_TRUE(torch::equal(other.test->load({{4, 1}}).images, test));
}

TEST_F(FolderDataset, PlainTrainingImagesAreNotAugmented) {
  const Dataset data = open();
  EXPECT_EQ(data.plain_train->labels(), data.train->labels());
  const torch::Tensor plain = data.plain_train->load({{7, 1}}).images;
  EXPECT_TRUE(torch::equal(data.plain_train->load({{7, 2}}).images, plain));
  fs::copy(folder.file("train/bee/101.png"), folder.file("val/bee/100.png"));  // image 7 of training
  const Dataset more = open();
  EXPECT_TRUE(torch::equal(more.test->load({{2, 0}}).images, plain));
}

// The same file twice in a class, drawn with one ticket: the augmentation differs.
TEST_F(FolderDataset, IndexIsPartOfTheAugmentation) {
  fs::copy(folder.file("train/ant/100.jpg"), folder.file("train/ant/100b.jpg"));
  const torch::Tensor images = open().train->load({{0, 5}, {1, 5}}).images;
  EXPECT_FALSE(torch::equal(images[0], images[1]));
}

TEST_F(FolderDataset, EmptyBatchAndWrongNumbers) {
  const Dataset data = open();
  EXPECT_EQ(data.train->load({}).images.sizes(), (std::vector<int64_t>{0, 3, kSide, kSide}));
  EXPECT_THROW(data.train->load({{22, 0}}), std::out_of_range);
  EXPECT_THROW(data.test->load({{0, 0}, {-1, 0}}), std::out_of_range);
}

TEST_F(FolderDataset, FingerprintIsOfNamesAndLabels) {
  const std::string before = open().description.fingerprint;
  // Pinned: checkpoints hold it.
  EXPECT_EQ(before, "2c2e7060e9719bac90a0b025569f6190995af9899e4828db36df751af7ceb033");
  EXPECT_EQ(open().description.fingerprint, before);
  folder.write("train/ant/100.jpg", file_of(99, true));
  EXPECT_EQ(open().description.fingerprint, before);  // files are not opened
  fs::rename(folder.file("val/bee/104.jpg"), folder.file("val/bee/104b.jpg"));
  const std::string renamed = open().description.fingerprint;
  EXPECT_NE(renamed, before);
  for (const char* split : {"train/", "val/"}) {
    fs::rename(folder.file(std::string(split) + "ant"), folder.file(std::string(split) + "ape"));
  }
  EXPECT_NE(open().description.fingerprint, renamed);
}

TEST_F(FolderDataset, FractionSplitsOneFolder) {
  fs::remove_all(folder.file("val"));
  options.images.val_fraction = 0.3;
  const Dataset data = open();
  EXPECT_EQ(data.train->size() + data.test->size(), 22);
  EXPECT_EQ(data.test->load(all_of(*data.test)).images.size(0), data.test->size());
}

TEST_F(FolderDataset, FirstBadImageOfTheBatchIsNamed) {
  options.threads = 4;
  spoil("train/cat/103.png");
  spoil("train/ant/101.png");
  const Dataset data = open();
  for (int i = 0; i < 20; ++i) {
    expect_error<DataError>(
        [&] {
          data.train->load({{0, 0}, {13, 0}, {1, 0}});
        },
        {"'" + folder.file("train/cat/103.png") + "': not a JPEG or PNG image"});
  }
  fs::remove(folder.file("train/ant/101.png"));
  expect_error<MissingInputError>([&] { data.train->load({{1, 0}}); }, {folder.file("train/ant/101.png")});
}

TEST_F(FolderDataset, DamagedFilesOfEveryKindAreNamed) {
  const std::string jpeg = file_of(1, true), png = file_of(1, false);
  const std::vector<std::string> files = {"",
                                          "some text\n",
                                          jpeg.substr(0, jpeg.size() / 2),
                                          png.substr(0, png.size() / 2),
                                          std::string(png).replace(png.size() / 2, 8, 8, '\x55'),
                                          png_header(60000, 60000),
                                          jpeg_with_size(jpeg, 65000, 65000)};
  const Dataset data = open();
  const Dataset skipping = open_skipping();
  for (const std::string& bytes : files) {
    folder.write("train/ant/100.jpg", bytes);
    expect_error<DataError>([&] { data.train->load({{0, 0}}); }, {folder.file("train/ant/100.jpg") + "': "});
    EXPECT_EQ(skipping.train->load({{0, 0}}).skipped, 1);
  }
}

// A sparse file, which takes no space on the disk.
TEST_F(FolderDataset, HugeFileIsRefusedUnread) {
  fs::resize_file(folder.file("train/ant/100.jpg"), uintmax_t{1} << 36);
  const Dataset data = open();
  expect_error<DataError>([&] { data.train->load({{0, 0}}); }, {"train/ant/100.jpg", "longer than"});
}

TEST_F(FolderDataset, TrainingTakesTheNextOfTheClassInstead) {
  spoil("train/ant/104.jpg");
  spoil("train/ant/105.png");
  const Dataset data = open_skipping();
  const Batch batch = data.train->load({{4, 3}, {0, 3}, {6, 8}, {5, 9}});
  EXPECT_EQ(batch.skipped, 2);
  EXPECT_EQ(batch.images.size(0), 4);
  EXPECT_TRUE(torch::equal(batch.labels, torch::tensor({0, 0, 1, 0}, torch::kLong)));
  // After the last image of the class comes its first, as if it had been drawn itself.
  EXPECT_TRUE(torch::equal(batch.images[0], batch.images[1]));
  EXPECT_TRUE(torch::equal(batch.images[3], data.train->load({{0, 9}}).images[0]));
}

TEST_F(FolderDataset, EvaluationLeavesBadImagesOut) {
  const Dataset whole = open();
  const Batch before = whole.test->load(all_of(*whole.test));
  spoil("val/ant/107.png");
  fs::remove(folder.file("val/cat/112.jpg"));
  folder.write("val/cat/112.jpg", "");
  options.threads = 2;
  const Dataset data = open_skipping();
  const Batch batch = data.test->load(all_of(*data.test));
  EXPECT_EQ(batch.skipped, 2);
  EXPECT_TRUE(batch.images.is_contiguous());
  const torch::Tensor kept = torch::tensor({0, 2, 3, 5}, torch::kLong);
  EXPECT_TRUE(torch::equal(batch.images, before.images.index_select(0, kept)));
  EXPECT_TRUE(torch::equal(batch.labels, before.labels.index_select(0, kept)));
  EXPECT_EQ(data.test->load({{1, 0}}).images.sizes(), (std::vector<int64_t>{0, 3, kSide, kSide}));
}

TEST_F(FolderDataset, FilesThatVanishAreSkippedToo) {
  const Dataset data = open_skipping();
  fs::remove(folder.file("train/bee/100.jpg"));
  EXPECT_EQ(data.train->load({{6, 0}, {7, 0}}).skipped, 1);
}

TEST_F(FolderDataset, ClassOfBadImagesIsRefused) {
  for (const char* name : {"100.jpg", "101.png", "102.jpg", "103.png"})
    spoil(std::string("train/bee/") + name);
  const Dataset data = open_skipping();
  EXPECT_EQ(data.train->load({{0, 0}}).skipped, 0);
  expect_error<DataError>(
      [&] {
        data.train->load({{8, 0}});
      },
      {"'" + folder.file("train/bee") + "': none of the 4 training images",
       "train/bee/101.png': not a JPEG or PNG image"});
}

TEST_F(FolderDataset, ClassThatVanishesIsMissing) {
  const Dataset data = open_skipping();
  fs::remove_all(folder.file("train/bee"));
  expect_error<MissingInputError>(
      [&] {
        data.train->load({{8, 0}});
      },
      {"'" + folder.file("train/bee") + "': none of the 4 training images"});
}

// One of them was damaged before, and one of another class is.
TEST_F(FolderDataset, LargeClassThatVanishesIsMissing) {
  spoil("train/ant/100.jpg");
  spoil("train/cat/105.png");
  const Dataset data = open_skipping();
  EXPECT_EQ(data.train->load(all_of(*data.train)).skipped, 2);
  fs::remove_all(folder.file("train/cat"));
  expect_error<MissingInputError>(
      [&] {
        data.train->load({{12, 0}});
      },
      {"11 of the 22 training images are missing or bad, more than the 10", "'" + folder.file("train/cat")});
}

// Ten bad files of 22 are skipped, however often they come up; the eleventh is one too many.
TEST_F(FolderDataset, TooManyBadFilesAreAnError) {
  for (int i = 0; i < 10; ++i) spoil("train/cat/" + std::to_string(100 + i) + (i % 2 == 0 ? ".jpg" : ".png"));
  const Dataset data = open_skipping();
  for (uint64_t ticket = 0; ticket < 3; ++ticket) {
    EXPECT_EQ(data.train->load(all_of(*data.train, ticket)).skipped, 10);
  }
  spoil("train/ant/101.png");
  expect_error<DataError>(
      [&] {
        data.train->load({{0, 0}, {1, 0}});
      },
      {"11 of the 22 training images were found bad, more than the 10 that are skipped",
       "'" + folder.file("train/ant/101.png") + "': not a JPEG or PNG image",
       "renorm data folder:" + folder.path() + " --check"});
}

TEST_F(FolderDataset, OnePercentOfManyFilesIsSkipped) {
  const std::string text = "no image";
  for (int i = 0; i < 1200; ++i) folder.write("val/ant/x" + std::to_string(i) + ".jpg", text);
  const Dataset data = open_skipping();
  EXPECT_EQ(data.test->size(), 1206);
  std::vector<Draw> draws;
  for (int64_t i = 2; i < 14; ++i) draws.push_back({i, 0});
  EXPECT_EQ(data.test->load(draws).skipped, 12);
  expect_error<DataError>([&] { data.test->load({{14, 0}}); }, {"13 of the 1206 test images"});
}

TEST_F(FolderDataset, NamesOfAnyKindMakeOneLine) {
  const std::string name = "new\nline \x1b[31m<b>\xff";
  folder.write("train/ant/" + name + ".jpg", "no image");
  const Dataset data = open();
  expect_error<DataError>([&] { data.train->load(all_of(*data.train)); },
                          {"train/ant/new\\x0aline \\x1b[31m<b>\\xff.jpg': not a JPEG or PNG image"});
}

TEST_F(FolderDataset, ClassNamesThatAreNoUtf8StayDistinct) {
  for (const char* split : {"train/", "val/"}) {
    for (const char* name : {"\xff", "\xfe\\", "\xc3\xa4"}) {
      folder.write(std::string(split) + name + "/1.png", file_of(1, false));
    }
  }
  const Dataset data = open();
  EXPECT_EQ(data.description.classes,
            (std::vector<std::string>{"ant", "bee", "cat", "\xc3\xa4", "\\xfe\\x5c", "\\xff"}));
  EXPECT_EQ(data.test->load(all_of(*data.test)).labels.size(0), 9);
  for (const char* split : {"train/", "val/"}) {
    folder.write(std::string(split) + "\\xff/1.png", file_of(1, false));
  }
  expect_error<DataError>([&] { open(); }, {"two classes are shown as '\\xff'", "rename one"});
}

TEST(OpenFolderIndex, OtherDataSetsHaveNone) {
  EXPECT_FALSE(open_folder_index("strokes", {}).has_value());
  expect_error<UsageError>([] { open_folder_index("folder:", {}); }, {"'folder'", "folder:DIR"});
  expect_error<UsageError>([] { open_byte_dataset("folder:/tmp", {}); }, {"folder:/tmp"});
  expect_error<MissingInputError>([] { open_dataset("folder:/no/such", {}); }, {"/no/such: no such folder"});
}

}  // namespace
}  // namespace renorm::data::testing
