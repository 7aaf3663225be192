#include "data/dataset.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "data/folder_split.h"

namespace renorm::data {
namespace {

constexpr int64_t kPixelsPerTask = 32768;

class InMemorySplit : public Split {
 public:
  using Paint = std::function<void(int64_t index, RandomStream& stream, uint8_t* pixels)>;

  // With `paint`, each draw has an image of its own, and `images` have no pixels.
  InMemorySplit(ByteImages images, std::vector<ByteTable> tables, Paint paint = nullptr, uint64_t seed = 1)
      : images_(std::move(images)), tables_(std::move(tables)), paint_(std::move(paint)), seed_(seed) {}

  const std::vector<int64_t>& labels() const override { return images_.labels; }

  int64_t pixels() const override { return images_.height * images_.width; }

  Batch load(const std::vector<Draw>& draws) const override {
    for (const Draw& draw : draws) check(draw.index);
    const int64_t count = static_cast<int64_t>(draws.size());
    Batch batch{torch::empty({count, images_.channels, images_.height, images_.width}, torch::kFloat),
                torch::empty({count}, torch::kLong)};
    float* pixels = batch.images.data_ptr<float>();
    int64_t* labels = batch.labels.data_ptr<int64_t>();
    const int64_t area = images_.height * images_.width;
    const int64_t images_per_task =
        std::max<int64_t>(1, kPixelsPerTask / std::max<int64_t>(1, images_.image_bytes()));
    at::parallel_for(0, count, images_per_task, [&](int64_t first, int64_t last) {
      std::vector<uint8_t> painted(paint_ ? static_cast<size_t>(images_.image_bytes()) : 0);
      for (int64_t i = first; i < last; ++i) {
        const Draw& draw = draws[static_cast<size_t>(i)];
        labels[i] = images_.labels[static_cast<size_t>(draw.index)];
        if (paint_) {
          RandomStream stream = stream_for(seed_, draw);
          paint_(draw.index, stream, painted.data());
        }
        const uint8_t* image = paint_ ? painted.data() : images_.image(draw.index);
        standardize(image, area, area, 1, tables_, pixels + i * images_.image_bytes());
      }
    });
    return batch;
  }

 private:
  void check(int64_t index) const {
    if (index < 0 || index >= size()) {
      throw std::out_of_range(fmt::format("example {} of a split of {}", index, size()));
    }
  }

  ByteImages images_;
  std::vector<ByteTable> tables_;
  Paint paint_;
  uint64_t seed_;
};

}  // namespace

RandomStream stream_for(uint64_t seed, const Draw& draw) {
  RandomStream of_ticket(seed, Purpose::kAugment, draw.ticket);
  return RandomStream(of_ticket.bits(), Purpose::kAugment, static_cast<uint64_t>(draw.index));
}

Description describe(const ByteDataset& data) {
  ChannelMoments moments = channel_moments(data.train);
  Description description;
  description.spec = data.name;
  description.classes = data.classes;
  description.channels = data.train.channels;
  description.height = data.train.height;
  description.width = data.train.width;
  description.mean = std::move(moments.mean);
  description.std = std::move(moments.std);
  description.fingerprint = fingerprint_of(data.train.labels, data.test.labels, "");
  return description;
}

Dataset open_dataset(const std::string& spec, const OpenOptions& options) {
  std::optional<FolderIndex> index = open_folder_index(spec, options);
  if (index) return folder_dataset(std::move(*index), spec, options);
  return in_memory(open_byte_dataset(spec, options), options.images.seed);
}

Dataset in_memory(ByteDataset data, uint64_t seed) {
  Dataset dataset;
  dataset.description = describe(data);
  const std::vector<ByteTable> tables = standardizing_tables(dataset.description);
  if (data.paint_anew) {
    ByteImages shape{data.train.channels, data.train.height, data.train.width, {}, data.train.labels};
    dataset.train =
        std::make_shared<InMemorySplit>(std::move(shape), tables, std::move(data.paint_anew), seed);
  }
  dataset.plain_train = std::make_shared<InMemorySplit>(std::move(data.train), tables);
  if (!dataset.train) dataset.train = dataset.plain_train;
  dataset.test = std::make_shared<InMemorySplit>(std::move(data.test), tables);
  return dataset;
}

}  // namespace renorm::data
