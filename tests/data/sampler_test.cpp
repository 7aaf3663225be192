#include "data/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/errors.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

using Indices = std::vector<int64_t>;

// Label i / each for example i.
Indices even_labels(int64_t classes, int64_t each) {
  Indices labels;
  for (int64_t i = 0; i < classes * each; ++i) labels.push_back(i / each);
  return labels;
}

StepShape shape(int64_t workers, int64_t minibatch, int64_t microbatch = 0) {
  StepShape made;
  made.workers = workers;
  made.minibatch = minibatch;
  made.microbatch = microbatch == 0 ? minibatch : microbatch;
  return made;
}

StepShape split_shape(int64_t workers, int64_t minibatch, int64_t microbatch) {
  StepShape made = shape(workers, minibatch, microbatch);
  made.split_pairs = true;
  return made;
}

StepShape dealt_shape(int64_t workers, int64_t minibatch) {
  StepShape made = shape(workers, minibatch);
  made.deal = true;
  return made;
}

constexpr int64_t kClasses = 20;
constexpr int64_t kEach = 10;

Sampler make(const std::string& spec, const StepShape& step, uint64_t seed = 1) {
  return Sampler(parse_sampler(spec), step, even_labels(kClasses, kEach), kClasses, seed);
}

// Chi-squared of counts that should be equal, less its mean, in its standard deviations.
double surprise(const std::map<int64_t, int64_t>& counts, size_t cells) {
  double total = 0.0;
  for (const auto& entry : counts) total += static_cast<double>(entry.second);
  const double expected = total / static_cast<double>(cells);
  double chi = (static_cast<double>(cells) - static_cast<double>(counts.size())) * expected;
  for (const auto& entry : counts) {
    const double off = static_cast<double>(entry.second) - expected;
    chi += off * off / expected;
  }
  const double freedom = static_cast<double>(cells) - 1.0;
  return (chi - freedom) / std::sqrt(2.0 * freedom);
}
constexpr double kSurprised = 5.0;

TEST(SamplerSpec, ReadsAndWritesEveryForm) {
  for (const char* text : {"iid", "labels:16x2", "labels:25x2:distinct", "blocks:8x16x2", "labels:1x1"}) {
    EXPECT_EQ(to_string(parse_sampler(text)), text);
  }
  const SamplerSpec spec = parse_sampler("blocks:8x16x2");
  EXPECT_EQ(spec.kind, SamplerSpec::Kind::kBlocks);
  EXPECT_EQ(spec.block, 8);
  EXPECT_EQ(spec.labels, 16);
  EXPECT_EQ(spec.images, 2);
  EXPECT_EQ(spec.minibatch(), 32);
  EXPECT_EQ(parse_sampler("iid").minibatch(), 0);
}

TEST(SamplerSpec, BadTextIsNamed) {
  struct Case {
    const char* text;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"", {"unknown sampler ''"}},
      {"idd", {"unknown sampler 'idd'", "did you mean 'iid'?"}},
      {"label:16x2", {"did you mean 'labels'?"}},
      {"iid:", {"'iid:'", "iid"}},
      {"iid:3", {"'iid:3'"}},
      {"labels", {"'labels'", "labels:LxK"}},
      {"labels:16", {"'labels:16'", "labels:LxK"}},
      {"labels:16x2x3", {"labels:LxK"}},
      {"labels:16x2:distinkt", {"labels:LxK:distinct"}},
      {"labels:16x2:distinct:", {"labels:LxK"}},
      {"labels:0x2", {"L (labels) of sampler 'labels:0x2'", "'0'"}},
      {"labels:16x-2", {"K (images per label)", "'-2'"}},
      {"labels:16x2 ", {"K (images per label)", "'2 '"}},
      {"labels:99999999999999999999x2", {"L (labels)"}},
      {"labels:1000000x2", {"2000000 images", "the maximum is 1000000"}},
      {"blocks:8x16", {"'blocks:8x16'", "blocks:BxLxK"}},
      {"blocks:8x16x2:distinct", {"K (images per label)"}},
      {"blocks:x16x2", {"B (labels in a block)"}},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.text);
    expect_error<UsageError>([&] { parse_sampler(bad.text); }, bad.parts);
  }
}

// On every machine and compiler, so that runs resume elsewhere with the same draws.
TEST(Sampler, DrawsArePinned) {
  EXPECT_EQ(make("iid", shape(2, 4)).step(0), (Indices{54, 24, 26, 101, 118, 157, 122, 154}));
  EXPECT_EQ(make("labels:4x2", shape(1, 8)).step(3), (Indices{44, 47, 137, 135, 52, 50, 158, 152}));
  EXPECT_EQ(make("labels:4x2:distinct", shape(1, 8)).step(3), (Indices{44, 47, 117, 115, 72, 70, 178, 172}));
  EXPECT_EQ(make("blocks:5x4x2", shape(1, 8)).step(3), (Indices{39, 35, 0, 3, 6, 7, 41, 45}));
  EXPECT_EQ(make("blocks:5x4x2", shape(1, 8)).step(8), (Indices{148, 146, 131, 130, 118, 117, 114, 115}));
  EXPECT_EQ(make("blocks:20x4x2", shape(1, 8)).step(3), (Indices{139, 135, 50, 53, 156, 157, 141, 145}));
  // With a smaller last block.
  EXPECT_EQ(make("blocks:3x4x2", shape(1, 8)).step(3), (Indices{39, 35, 50, 53, 36, 37, 41, 45}));
}

TEST(Sampler, IsAFunctionOfSeedAndStep) {
  for (const char* spec : {"iid", "labels:4x2", "labels:4x2:distinct", "blocks:3x4x2"}) {
    Sampler one = make(spec, shape(3, 8)), other = make(spec, shape(3, 8)),
            different = make(spec, shape(3, 8), 2);
    std::vector<Indices> forward;
    for (int64_t step = 0; step < 40; ++step) forward.push_back(one.step(step));
    for (int64_t step = 39; step >= 0; --step)
      EXPECT_EQ(other.step(step), forward[static_cast<size_t>(step)]);
    EXPECT_NE(different.step(5), forward[5]);
    EXPECT_NE(forward[5], forward[6]);
  }
}

TEST(IidSampler, EveryEpochHasEachExampleOnce) {
  constexpr int64_t kExamples = kClasses * kEach;
  // 24 does not divide 200: steps reach over the epochs' ends. 600 is three epochs per step.
  for (const int64_t workers : {3, 75}) {
    Sampler sampler = make("iid", shape(workers, 8));
    Indices all;
    for (int64_t step = 0; static_cast<int64_t>(all.size()) < 6 * kExamples; ++step) {
      const Indices drawn = sampler.step(step);
      ASSERT_EQ(static_cast<int64_t>(drawn.size()), workers * 8);
      all.insert(all.end(), drawn.begin(), drawn.end());
    }
    std::set<Indices> orders;
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      Indices part(all.begin() + epoch * kExamples, all.begin() + (epoch + 1) * kExamples);
      orders.insert(part);
      std::sort(part.begin(), part.end());
      for (int64_t i = 0; i < kExamples; ++i) ASSERT_EQ(part[static_cast<size_t>(i)], i);
    }
    EXPECT_EQ(orders.size(), 6U);
  }
}

TEST(IidSampler, FirstPlaceIsUniform) {
  std::map<int64_t, int64_t> counts;
  for (uint64_t seed = 0; seed < 4000; ++seed) ++counts[make("iid", shape(1, 1), seed).step(0)[0] / kEach];
  EXPECT_LT(surprise(counts, kClasses), kSurprised);
}

TEST(Sampler, CountsEpochs) {
  EXPECT_DOUBLE_EQ(make("iid", shape(4, 25)).epochs(3), 1.5);
  EXPECT_DOUBLE_EQ(make("labels:4x2", shape(5, 8)).epochs(10), 2.0);
}

TEST(LabelsSampler, ImagesOfADrawAreDifferentAndOfOneLabel) {
  for (const char* spec : {"labels:4x3", "labels:4x3:distinct", "blocks:5x4x3", "labels:4x10"}) {
    const SamplerSpec parsed = parse_sampler(spec);
    Sampler sampler = make(spec, shape(2, parsed.minibatch()));
    for (int64_t step = 0; step < 200; ++step) {
      const Indices drawn = sampler.step(step);
      ASSERT_EQ(static_cast<int64_t>(drawn.size()), 2 * parsed.minibatch());
      for (size_t first = 0; first < drawn.size(); first += static_cast<size_t>(parsed.images)) {
        const std::set<int64_t> images(drawn.begin() + static_cast<int64_t>(first),
                                       drawn.begin() + static_cast<int64_t>(first) + parsed.images);
        ASSERT_EQ(static_cast<int64_t>(images.size()), parsed.images);
        ASSERT_EQ(*images.begin() / kEach, *images.rbegin() / kEach);
      }
    }
  }
}

TEST(LabelsSampler, LabelsAndImagesAreUniform) {
  // The last block of blocks:6x4x2 has 2 labels.
  for (const char* spec : {"labels:4x2", "labels:4x2:distinct", "blocks:5x4x2", "blocks:6x4x2"}) {
    Sampler sampler = make(spec, shape(1, 8));
    std::map<int64_t, int64_t> labels, images;
    // One draw per step, so that the counts are independent.
    for (int64_t step = 0; step < 20000; ++step) {
      const int64_t drawn = sampler.step(step)[5];
      ++labels[drawn / kEach];
      ++images[drawn];
    }
    EXPECT_LT(surprise(labels, kClasses), kSurprised) << spec;
    EXPECT_LT(surprise(images, kClasses * kEach), kSurprised) << spec;
  }
}

// Two of the four labels agree with probability 1 - 20 19 18 17 / 20^4 = 0.27325 with replacement.
TEST(LabelsSampler, RepeatsLabelsUnlessDistinct) {
  constexpr int kSteps = 4000;
  const auto repeats = [](const char* spec) {
    Sampler sampler = make(spec, shape(1, 4));
    int count = 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      std::set<int64_t> labels;
      for (const int64_t index : sampler.step(step)) labels.insert(index / kEach);
      count += labels.size() < 4 ? 1 : 0;
    }
    return count;
  };
  const double expected = 0.27325 * kSteps;
  EXPECT_NEAR(repeats("labels:4x1"), expected, 4.0 * std::sqrt(expected * 0.72675));
  EXPECT_EQ(repeats("labels:4x1:distinct"), 0);
}

TEST(BlocksSampler, MinibatchHasLabelsOfOneBlock) {
  // Blocks of 6, 6, 6 and 2 labels.
  Sampler sampler = make("blocks:6x4x2", shape(3, 8));
  std::map<int64_t, int64_t> blocks;
  std::set<int64_t> seen;
  int64_t mixed_steps = 0;
  for (int64_t step = 0; step < 1000; ++step) {
    const Indices drawn = sampler.step(step);
    std::set<int64_t> of_step;
    for (size_t worker = 0; worker < 3; ++worker) {
      const int64_t block = drawn[worker * 8] / kEach / 6;
      of_step.insert(block);
      ++blocks[block];
      for (size_t i = 0; i < 8; ++i) {
        ASSERT_EQ(drawn[worker * 8 + i] / kEach / 6, block);
        seen.insert(drawn[worker * 8 + i] / kEach);
      }
    }
    mixed_steps += of_step.size() > 1 ? 1 : 0;
  }
  // A block is drawn in proportion to its labels, so the last one in a tenth of the 3000 minibatches.
  EXPECT_NEAR(static_cast<double>(blocks[3]), 300.0, kSurprised * std::sqrt(300.0 * 0.9));
  EXPECT_EQ(seen.size(), static_cast<size_t>(kClasses));
  EXPECT_GT(mixed_steps, 850);  // of 918 expected: 1 - 3 * 0.3^3 - 0.1^3 of the steps
}

TEST(SplitPairs, ImagesOfALabelGoToDifferentMicrobatches) {
  Sampler plain = make("labels:4x2", shape(2, 8)), split = make("labels:4x2", split_shape(2, 8, 4));
  const Indices p = plain.step(3), s = split.step(3);
  EXPECT_EQ(s, (Indices{p[0], p[2], p[4], p[6], p[1], p[3], p[5], p[7],           // the first minibatch
                        p[8], p[10], p[12], p[14], p[9], p[11], p[13], p[15]}));  // and the second
}

TEST(SplitPairs, SmallerMicrobatchesTakeTheLabelsInTurn) {
  Sampler plain = make("labels:4x3", shape(1, 12)), split = make("labels:4x3", split_shape(1, 12, 2));
  const Indices p = plain.step(0), s = split.step(0);
  EXPECT_EQ(s, (Indices{p[0], p[3], p[1], p[4], p[2], p[5], p[6], p[9], p[7], p[10], p[8], p[11]}));
}

TEST(Deal, StepIsDealtRoundRobin) {
  Sampler plain = make("blocks:5x2x2", shape(3, 4)), dealt = make("blocks:5x2x2", dealt_shape(3, 4));
  const Indices p = plain.step(7), d = dealt.step(7);
  EXPECT_EQ(d, (Indices{p[0], p[3], p[6], p[9], p[1], p[4], p[7], p[10], p[2], p[5], p[8], p[11]}));
  EXPECT_EQ(make("iid", dealt_shape(1, 8)).step(2), make("iid", shape(1, 8)).step(2));
}

TEST(SamplerRefuses, ShapesThatDoNotFit) {
  expect_error<UsageError>([] { make("labels:16x2", shape(1, 30)); },
                           {"sampler labels:16x2", "minibatches of 32", "minibatch is 30", "--minibatch 32"});
  expect_error<UsageError>([] { make("iid", shape(1, 32, 5)); }, {"microbatch 5", "divide", "minibatch 32"});
  expect_error<UsageError>([] { make("iid", shape(0, 32)); }, {"workers", "at least 1", "got 0"});
  expect_error<UsageError>([] { make("iid", shape(1, 32, -1)); }, {"microbatch", "-1"});
  expect_error<UsageError>([] { make("iid", split_shape(1, 32, 16)); },
                           {"--split-pairs", "--sampler labels:LxK"});
  expect_error<UsageError>([] { make("labels:16x2", split_shape(1, 32, 32)); },
                           {"--split-pairs", "labels:16x2", "--microbatch 16"});
  expect_error<UsageError>([] { make("labels:6x2", split_shape(1, 12, 4)); }, {"--microbatch 6"});
  StepShape both = split_shape(2, 32, 16);
  both.deal = true;
  expect_error<UsageError>([&] { make("labels:16x2", both); }, {"--split-pairs", "--deal"});
}

TEST(SamplerRefuses, DataThatIsTooSmall) {
  const auto with = [](const std::string& spec, const Indices& labels, int64_t classes) {
    const SamplerSpec parsed = parse_sampler(spec);
    const int64_t minibatch = std::max<int64_t>(1, parsed.minibatch());
    return [=] { Sampler(parsed, shape(1, minibatch), labels, classes, 1); };
  };
  expect_error<DataError>(with("iid", {}, 3), {"no images"});
  expect_error<DataError>(with("labels:2x1", {}, 3), {"no images"});
  expect_error<DataError>(with("labels:4x1:distinct", {0, 1, 2}, 3),
                          {"labels:4x1:distinct", "4 different labels", "3 classes", "at most 3"});
  expect_error<DataError>(with("labels:2x3", {0, 0, 0, 1, 1, 2, 2, 2}, 3),
                          {"labels:2x3", "3 different images", "label 1", "has 2"});
  expect_error<DataError>(with("labels:2x1", {0, 0, 2}, 3), {"label 1", "has 0"});
  expect_error<DataError>(with("blocks:4x2x1", {0, 1, 2}, 3), {"blocks of 4 labels", "3 classes"});
  expect_error<DataError>(with("iid", {0, 3}, 3), {"image 1", "label 3", "0 to 2"});
  expect_error<DataError>(with("iid", {-1}, 3), {"image 0", "label -1"});
  EXPECT_NO_THROW(with("labels:4x1", {0, 1, 2}, 3)());
  EXPECT_NO_THROW(with("blocks:3x7x1", {0, 1, 2}, 3)());
}

}  // namespace
}  // namespace renorm::data::testing
