// Images that are composed of two characters.
#include "data/stroke_overlay.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/checksum.h"
#include "base/errors.h"
#include "data/dataset.h"
#include "data/stroke_drawing.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

const auto kSilent = [](int64_t, int64_t) {};

ByteDataset generate(const std::string& options) {
  return generate_strokes(parse_strokes(options), 1, kSilent);
}

constexpr const char* kSmall = "classes=4,train=3,test=2,size=12,noise=0";

// The characters of both splits, without noise.
ByteDataset characters() { return generate(kSmall); }

std::vector<double> ink_of(const ByteImages& images, int64_t index) {
  std::vector<double> ink;
  for (int64_t i = 0; i < images.image_bytes(); ++i) ink.push_back(ink_of_byte(images.image(index)[i]));
  return ink;
}

// Half a step of a byte on each side: one of the character's, one of the image's.
constexpr double kByteError = 1.0 / 127.5 + 1e-9;

TEST(StrokeOverlay, WithoutDecoyAndSpreadIsThePlainCharacter) {
  const ByteDataset plain = characters();
  const ByteDataset composed = generate(std::string(kSmall) + ",amplitude=1e-9");
  for (int64_t i = 0; i < plain.test.size(); ++i) {
    const std::vector<double> expected = ink_of(plain.test, i), ink = ink_of(composed.test, i);
    for (size_t p = 0; p < ink.size(); ++p) EXPECT_NEAR(ink[p], expected[p], kByteError);
  }
}

TEST(StrokeOverlay, ImageIsTheMaximumOfACharacterAndAPalerOneOfAnotherClass) {
  const ByteDataset plain = characters();
  const ByteDataset composed = generate(std::string(kSmall) + ",decoy=1,decoy-ink=0.5");
  ASSERT_EQ(composed.train.labels, plain.train.labels);
  for (int64_t i = 0; i < composed.train.size(); ++i) {
    const std::vector<double> ink = ink_of(composed.train, i), own = ink_of(plain.train, i);
    int matches = 0;
    for (int64_t j = 0; j < plain.train.size(); ++j) {
      const std::vector<double> decoy = ink_of(plain.train, j);
      bool matched = true;
      for (size_t p = 0; p < ink.size(); ++p) {
        matched = matched && std::abs(ink[p] - std::max(own[p], 0.5 * decoy[p])) <= kByteError;
      }
      if (!matched) continue;
      ++matches;
      EXPECT_NE(plain.train.labels[j], plain.train.labels[i]);
    }
    EXPECT_EQ(matches, 1) << "image " << i;
  }
}

TEST(StrokeOverlay, ComposesWhatItPaints) {
  const StrokesOptions options = parse_strokes(std::string(kSmall) + ",decoy=0.5,amplitude=0.25");
  const ByteDataset plain = characters();
  const StrokeOverlay overlay(options, plain.train);
  const ByteImages images = overlay.paint_all(Purpose::kOverlayTrain);
  int decoys = 0;
  for (int64_t i = 0; i < images.size(); ++i) {
    RandomStream stream(options.seed, Purpose::kOverlayTrain, static_cast<uint64_t>(i));
    const Composition composition = overlay.compose(i, stream);
    EXPECT_EQ(composition.character, i);
    decoys += composition.decoy.has_value();
    if (composition.decoy) {
      EXPECT_NE(plain.train.labels[*composition.decoy], plain.train.labels[i]);
    }
    const std::vector<double> ink = ink_of(images, i), own = ink_of(plain.train, i),
                              decoy = ink_of(plain.train, composition.decoy.value_or(i));
    for (size_t p = 0; p < ink.size(); ++p) {
      EXPECT_NEAR(ink[p], std::max(composition.ink * own[p], composition.decoy_ink * decoy[p]), kByteError);
    }
  }
  EXPECT_GT(decoys, 0);
  EXPECT_LT(decoys, images.size());
}

TEST(StrokeOverlay, DecoysAndAmplitudesHaveTheirDistributions) {
  StrokesOptions options = parse_strokes("classes=5,train=2,test=1,noise=0,decoy=0.7,amplitude=0.25");
  ByteDataset plain = generate("classes=5,train=2,test=1,noise=0,ink=1");
  // A character of one pixel per class shows its ink and its class.
  std::fill(plain.train.pixels.begin(), plain.train.pixels.end(), to_byte(0.0));
  for (int64_t i = 0; i < plain.train.size(); ++i) {
    plain.train.pixels[i * plain.train.image_bytes() + plain.train.labels[i]] = to_byte(1.0);
  }
  const StrokeOverlay overlay(options, plain.train);
  constexpr int kImages = 20000;
  std::vector<uint8_t> pixels(plain.train.image_bytes());
  std::vector<int> decoys(5);
  double low = 2.0, high = 0.0, sum = 0.0;
  for (uint64_t i = 0; i < kImages; ++i) {
    RandomStream stream(1, Purpose::kAugment, i);
    overlay.paint(4, stream, pixels.data());  // of class 2
    const double ink = ink_of_byte(pixels[2]);
    low = std::min(low, ink), high = std::max(high, ink), sum += ink;
    for (size_t label = 0; label < decoys.size(); ++label) decoys[label] += ink_of_byte(pixels[label]) > 0.0;
  }
  EXPECT_EQ(decoys[2], kImages);
  // Binomial: five standard deviations of 0.7 / 4 in 20,000.
  for (const int label : {0, 1, 3, 4}) EXPECT_NEAR(decoys[label], 0.175 * kImages, 269.0) << label;
  EXPECT_NEAR(low, 0.75, 0.01);
  EXPECT_NEAR(high, 1.25, 0.01);
  EXPECT_NEAR(sum / kImages, 1.0, 5.0 * 0.25 / std::sqrt(3.0 * kImages) + kByteError);
}

TEST(StrokeOverlay, BitsArePinned) {
  const ByteDataset data = generate("classes=5,train=4,test=2,decoy=0.7,amplitude=0.15");
  const auto digest = [](const std::vector<uint8_t>& bytes) {
    return sha256(std::string(bytes.begin(), bytes.end())).substr(0, 16);
  };
  EXPECT_EQ(digest(data.train.pixels), "ed14e882b8cd2496");
  EXPECT_EQ(digest(data.test.pixels), "bc8d0d951026c7a6");
}

TEST(StrokeOverlay, SpecHasTheKeysOnlyIfTheyMatter) {
  EXPECT_EQ(to_spec(parse_strokes("decoy=0,decoy-ink=0.5")), to_spec(parse_strokes("")));
  EXPECT_EQ(
      to_spec(parse_strokes("decoy=0.7")),
      "strokes:classes=200,train=100,test=20,size=20,strokes=3,ink=0.6,noise=0.1,jitter=1,seed=1,decoy=0.7,"
      "decoy-ink=0.9,amplitude=0");
  expect_error<UsageError>([] { parse_strokes("decoy=1.5"); }, {"strokes: decoy", "'1.5'"});
  expect_error<UsageError>([] { parse_strokes("decoy=0.5,classes=1"); }, {"strokes: classes", "2"});
}

TEST(StrokeOverlay, CharactersAreCachedAndImagesComposedFromThem) {
  const TemporaryFolder folder;
  const StrokesOptions options = parse_strokes("classes=3,train=4,test=2,decoy=0.5");
  const ByteDataset first = cached_strokes(options, folder.path(), 1, kSilent);
  bool drawn = false;
  const ByteDataset second =
      cached_strokes(options, folder.path(), 1, [&](int64_t, int64_t) { drawn = true; });
  EXPECT_FALSE(drawn);
  EXPECT_EQ(first.train.pixels, second.train.pixels);
  EXPECT_EQ(second.train.pixels, generate_strokes(options, 1, kSilent).train.pixels);
}

// As bytes, to compare images.
std::string image(const Batch& batch, int64_t i) {
  const torch::Tensor one = batch.images[i].contiguous();
  return {reinterpret_cast<const char*>(one.data_ptr<float>()), one.nbytes()};
}

TEST(ComposedDataset, EveryDrawHasAnImageOfItsOwn) {
  const TemporaryFolder folder;
  OpenOptions options;
  options.cache = folder.path();
  const Dataset data = open_dataset("strokes:classes=3,train=4,test=2,decoy=0.5", options);
  const std::vector<Draw> draws = {{5, 100}, {5, 101}, {5, 100}, {6, 100}};
  const Batch batch = data.train->load(draws);
  EXPECT_EQ(image(batch, 0), image(batch, 2));
  std::set<std::string> images;
  for (int64_t i = 0; i < 4; ++i) images.insert(image(batch, i));
  EXPECT_EQ(images.size(), 3U);
  // The label is that of the example, whatever is drawn over it.
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(batch.labels[i].item<int64_t>(), 1);
  // Another batch, another order: the same images.
  const Batch again = data.train->load({{6, 100}, {5, 101}});
  EXPECT_EQ(image(again, 0), image(batch, 3));
  EXPECT_EQ(image(again, 1), image(batch, 1));

  options.images.seed = 2;
  const Dataset other = open_dataset("strokes:classes=3,train=4,test=2,decoy=0.5", options);
  EXPECT_NE(image(other.train->load(draws), 0), image(batch, 0));
}

TEST(ComposedDataset, ImagesOfEvaluationsStayTheSame) {
  const TemporaryFolder folder;
  OpenOptions options;
  options.cache = folder.path();
  const Dataset data = open_dataset("strokes:classes=3,train=4,test=2,decoy=0.5", options);
  for (const auto& split : {data.test, data.plain_train}) {
    const Batch batch = split->load({{1, 100}, {1, 101}});
    EXPECT_EQ(image(batch, 0), image(batch, 1));
  }
}

}  // namespace
}  // namespace renorm::data::testing
