#include "data/dataset.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <future>

#include "base/errors.h"
#include "data/strokes.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

std::vector<Draw> draws_of(const std::vector<int64_t>& indices) {
  std::vector<Draw> draws;
  draws.reserve(indices.size());
  for (const int64_t index : indices) draws.push_back({index, 0});
  return draws;
}

// Two classes of 3-channel images of 2x2 pixels.
ByteDataset colours() {
  ByteDataset data;
  data.name = "colours";
  data.classes = {"a", "b"};
  data.train = {3, 2, 2, {}, {0, 1, 1}};
  for (int i = 0; i < 36; ++i) data.train.pixels.push_back(static_cast<uint8_t>(7 * i));
  data.test = {3, 2, 2, {}, {1}};
  for (int i = 0; i < 12; ++i) data.test.pixels.push_back(static_cast<uint8_t>(255 - i));
  return data;
}

TEST(InMemory, LoadsStandardizedImagesInTheOrderRequested) {
  const ByteDataset bytes = colours();
  const Dataset data = in_memory(bytes);
  const Batch batch = data.train->load(draws_of({2, 0, 2}));
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(batch.images.scalar_type(), torch::kFloat);
  EXPECT_TRUE(batch.images.is_contiguous());
  EXPECT_TRUE(torch::equal(batch.labels, torch::tensor({1, 0, 1}, torch::kLong)));
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t p = 0; p < 4; ++p) {
      const double byte = bytes.train.image(2)[c * 4 + p];
      const size_t channel = static_cast<size_t>(c);
      const double expected = (byte / 255.0 - data.description.mean[channel]) / data.description.std[channel];
      EXPECT_EQ(batch.images[0][c][p / 2][p % 2].item<float>(), static_cast<float>(expected));
    }
  }
  EXPECT_TRUE(torch::equal(batch.images[0], batch.images[2]));
}

TEST(InMemory, TrainingImagesHaveMeanZeroAndDeviationOne) {
  OpenOptions options;
  const TemporaryFolder folder;
  options.cache = folder.path();
  const Dataset data = open_dataset("strokes:classes=20,train=10,test=2", options);
  std::vector<int64_t> all(static_cast<size_t>(data.train->size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const torch::Tensor images = data.train->load(draws_of(all)).images.to(torch::kDouble);
  EXPECT_NEAR(images.mean().item<double>(), 0.0, 1e-6);  // float values
  EXPECT_NEAR(images.std(/*unbiased=*/false).item<double>(), 1.0, 1e-6);
}

TEST(InMemory, TestImagesAreStandardizedAsTrainingImagesAre) {
  const ByteDataset bytes = colours();
  const Dataset data = in_memory(bytes);
  const double expected = (bytes.test.pixels[0] / 255.0 - data.description.mean[0]) / data.description.std[0];
  EXPECT_EQ(data.test->load(draws_of({0})).images.flatten()[0].item<float>(), static_cast<float>(expected));
}

TEST(InMemory, NumberOfThreadsAndCallersChangesNothing) {
  OpenOptions options;
  const TemporaryFolder folder;
  options.cache = folder.path();
  const Dataset data = open_dataset("strokes:classes=10,train=50,test=2", options);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < 1000; ++i) indices.push_back(i * 37 % 500);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const torch::Tensor one = data.train->load(draws_of(indices)).images;
  at::set_num_threads(before);
  std::vector<std::future<torch::Tensor>> callers;
  callers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    callers.push_back(
        std::async(std::launch::async, [&] { return data.train->load(draws_of(indices)).images; }));
  }
  for (std::future<torch::Tensor>& caller : callers) EXPECT_TRUE(torch::equal(caller.get(), one));
}

TEST(InMemory, EmptyBatchAndWrongNumbers) {
  const Dataset data = in_memory(colours());
  EXPECT_EQ(data.train->load({}).images.sizes(), (std::vector<int64_t>{0, 3, 2, 2}));
  EXPECT_THROW(data.train->load(draws_of({3})), std::out_of_range);
  EXPECT_THROW(data.train->load(draws_of({0, -1})), std::out_of_range);
}

TEST(OpenDataset, DescribesWhatItOpened) {
  OpenOptions options;
  const TemporaryFolder folder;
  options.cache = folder.path();
  int64_t drawn = 0;
  options.progress = [&](int64_t done, int64_t) { drawn = done; };
  const Dataset data = open_dataset("strokes:classes=3,train=2,test=1,size=10", options);
  EXPECT_EQ(data.description.spec, "strokes:classes=3,train=2,test=1,size=10");
  EXPECT_EQ(data.description.classes.size(), 3U);
  EXPECT_EQ(data.description.channels, 1);
  EXPECT_EQ(data.description.height, 10);
  EXPECT_EQ(data.description.width, 10);
  EXPECT_EQ(data.train->size(), 6);
  EXPECT_EQ(data.test->labels(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(drawn, 9);
}

TEST(OpenDataset, OpensFilesOfEveryKind) {
  const TemporaryFolder folder;
  const std::string images = idx({2, 4, 4}, counting(32)), labels = idx({2}, std::string("\x00\x09", 2));
  for (const std::string prefix : {"train", "t10k"}) {
    folder.write(prefix + "-images-idx3-ubyte.gz", gzip(images));
    folder.write(prefix + "-labels-idx1-ubyte", labels);
  }
  for (const std::string name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                 "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    folder.write(name, "\x03" + counting(3072));
  }
  for (const std::string name : {"train.bin", "test.bin"}) folder.write(name, "\x03\x63" + counting(3072));
  const auto open = [&](const std::string& kind) { return open_dataset(kind + ":" + folder.path(), {}); };
  EXPECT_EQ(open("mnist").description.classes[9], "9");
  EXPECT_EQ(open("fashion-mnist").description.classes[9], "Ankle boot");
  EXPECT_EQ(open("cifar10").train->size(), 5);
  EXPECT_EQ(open("cifar10").description.channels, 3);
  EXPECT_EQ(open("cifar100").train->labels(), (std::vector<int64_t>{99}));
  EXPECT_EQ(open("mnist").description.spec, "mnist:" + folder.path());
}

TEST(OpenDataset, BadSpecsAreNamed) {
  const auto open = [](const std::string& spec) { return [spec] { open_dataset(spec, {}); }; };
  expect_error<UsageError>(open("stroke"), {"unknown data set 'stroke'", "did you mean 'strokes'?"});
  expect_error<UsageError>(open(""), {"unknown data set ''", "cifar100"});
  expect_error<UsageError>(open("mnist"), {"'mnist'", "folder", "mnist:DIR"});
  expect_error<UsageError>(open("cifar10:"), {"cifar10:DIR"});
  expect_error<UsageError>(open("strokes:size=3"), {"strokes: size"});
  expect_error<MissingInputError>(open("mnist:/no/such/folder"), {"/no/such/folder", "no such folder"});
}

}  // namespace
}  // namespace renorm::data::testing
