#include "data/strokes.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/checksum.h"
#include "base/errors.h"
#include "base/random.h"
#include "base/text.h"
#include "data/stroke_drawing.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

const auto kSilent = [](int64_t, int64_t) {};

ByteDataset generate(const std::string& options, int threads = 1) {
  return generate_strokes(parse_strokes(options), threads, kSilent);
}

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

TEST(StrokesSpec, EveryKeyIsRead) {
  const StrokesOptions options =
      parse_strokes("seed=9,jitter=0.5,noise=0.25,ink=0.2,strokes=4,size=28,test=3,train=7,classes=12");
  EXPECT_EQ(to_spec(options),
            "strokes:classes=12,train=7,test=3,size=28,strokes=4,ink=0.2,noise=0.25,jitter=0.5,seed=9");
  EXPECT_EQ(to_spec(parse_strokes("")),
            "strokes:classes=200,train=100,test=20,size=20,strokes=3,ink=0.6,noise=0.1,jitter=1,seed=1");
  EXPECT_EQ(to_spec(parse_strokes("noise=1e-1")), to_spec(parse_strokes("")));
}

TEST(StrokesSpec, UsageListsEveryKeyWithItsDefault) {
  const std::string usage = strokes_usage();
  ASSERT_EQ(usage.rfind("strokes[:", 0), 0U);
  ASSERT_EQ(usage.back(), ']');
  const std::string options = usage.substr(9, usage.size() - 10);
  EXPECT_EQ(to_spec(parse_strokes(options)), to_spec({}));
  std::string message;
  try {
    parse_strokes("zzzzzzzzzzzz=1");
  } catch (const UsageError& error) {
    message = error.what();
  }
  const std::string list = "; there are ";  // of all keys
  ASSERT_NE(message.find(list), std::string::npos);
  const std::vector<std::string> keys = split(message.substr(message.find(list) + list.size()), ',');
  EXPECT_EQ(keys.size(), 12U);
  for (const std::string& key : keys) {
    const std::string name = key.substr(key.find_first_not_of(' '));
    EXPECT_NE(("," + options).find("," + name + "="), std::string::npos) << name;
  }
}

TEST(StrokesSpec, BadOptionsAreNamed) {
  struct Case {
    const char* text;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"clases=3", {"strokes: unknown option 'clases'", "did you mean 'classes'?"}},
      {"classes=1", {"strokes: classes", "2", "100000", "'1'"}},
      {"classes=20x", {"strokes: classes", "'20x'"}},
      {"classes", {"strokes", "classes"}},
      {"classes=5,classes=6", {"strokes", "'classes'", "twice"}},
      {"classes=5,", {"strokes"}},
      {"train=0", {"strokes: train", "'0'"}},
      {"test=1000001", {"strokes: test", "1000000"}},
      {"size=7", {"strokes: size", "8", "256"}},
      {"strokes=17", {"strokes: strokes", "16"}},
      {"noise=-0.1", {"strokes: noise"}},
      {"noise=nan", {"strokes: noise"}},
      {"ink=1.1", {"strokes: ink"}},
      {"jitter=inf", {"strokes: jitter"}},
      {"seed=-1", {"strokes: seed"}},
      {"seed=9223372036854775808", {"strokes: seed"}},
      {"classes=100000,train=1000000,test=1000000,size=256", {"strokes:", "GiB", "fewer or smaller"}},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.text);
    expect_error<UsageError>([&] { parse_strokes(bad.text); }, bad.parts);
  }
}

TEST(Strokes, HasTheRequestedSizes) {
  const ByteDataset data = generate("classes=3,train=4,test=2,size=9");
  EXPECT_EQ(data.classes, (std::vector<std::string>{"class-000", "class-001", "class-002"}));
  EXPECT_EQ(data.train.labels, (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(data.test.labels, (std::vector<int64_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(data.train.pixels.size(), 12U * 81);
  EXPECT_EQ(data.test.image_bytes(), 81);
}

// On every machine and compiler; a change here needs a new version of the cache.
TEST(Strokes, BitsArePinned) {
  const ByteDataset data = generate("classes=5,train=4,test=2");
  EXPECT_EQ(sha256(text_of(data.train.pixels)),
            "76a72d6348604a75d665038f39c9e59dc0d4773561107013148f50392449e85c");
  EXPECT_EQ(sha256(text_of(data.test.pixels)),
            "501237c2cafb95f618aec9e25645579818e6ec3d2cfae35b4639a01cc83b9f78");
  const ByteDataset other =
      generate("classes=4,train=3,test=3,size=33,strokes=5,noise=0.02,jitter=2.5,seed=77");
  EXPECT_EQ(sha256(text_of(other.train.pixels)),
            "8bcc17bf7a41d7aee311e72f58441b0bfec425d97eb3443cedeb8e0db0745f71");
}

TEST(Strokes, NumberOfThreadsChangesNothing) {
  const ByteDataset one = generate("classes=7,train=31,test=5", 1);
  for (const int threads : {2, 5, 16}) {
    const ByteDataset many = generate("classes=7,train=31,test=5", threads);
    EXPECT_EQ(many.train.pixels, one.train.pixels);
    EXPECT_EQ(many.test.pixels, one.test.pixels);
  }
}

TEST(Strokes, LargerSetContainsTheSmaller) {
  const ByteDataset small = generate("classes=2,train=3,test=1"),
                    large = generate("classes=4,train=5,test=2");
  const int64_t bytes = small.train.image_bytes();
  for (int64_t label = 0; label < 2; ++label) {
    for (int64_t k = 0; k < 3; ++k) {
      EXPECT_TRUE(std::equal(small.train.image(label * 3 + k), small.train.image(label * 3 + k) + bytes,
                             large.train.image(label * 5 + k)));
    }
    EXPECT_TRUE(
        std::equal(small.test.image(label), small.test.image(label) + bytes, large.test.image(label * 2)));
  }
}

TEST(Strokes, ImagesSeedsAndSplitsDiffer) {
  const ByteDataset data = generate("classes=3,train=6,test=6");
  std::vector<std::string> images;
  for (const ByteImages* split : {&data.train, &data.test}) {
    for (int64_t i = 0; i < split->size(); ++i) images.emplace_back(split->image(i), split->image(i + 1));
  }
  std::sort(images.begin(), images.end());
  EXPECT_EQ(std::unique(images.begin(), images.end()), images.end());
  EXPECT_NE(generate("classes=3,train=6,test=6,seed=2").train.pixels, data.train.pixels);
}

TEST(Strokes, ProgressComesFromTheCallingThreadAndReachesTheEnd) {
  const auto caller = std::this_thread::get_id();
  int64_t before = 0, last_total = 0, calls = 0;
  generate_strokes(parse_strokes("classes=20,train=30,test=2"), 3, [&](int64_t done, int64_t total) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_GE(done, before);
    before = done;
    last_total = total;
    ++calls;
  });
  EXPECT_EQ(before, 640);
  EXPECT_EQ(last_total, 640);
  EXPECT_GE(calls, 1);
}

TEST(Strokes, ErrorInProgressStopsTheWork) {
  expect_error<Interrupted>(
      [] {
        generate_strokes(parse_strokes("classes=100,train=50"), 3,
                         [](int64_t, int64_t) { throw Interrupted("enough"); });
      },
      {"enough"});
}

// The recipe in its plainest form: every pixel against every segment, the library's functions.
class Plain {
 public:
  Plain(const StrokesOptions& options, int64_t label, uint64_t image)
      : options_(options),
        shape_(stroke_class(options, label)),
        stream_(options.seed, Purpose::kStrokeTrain, (static_cast<uint64_t>(label) << 32) + image) {}

  std::vector<double> bytes() {
    distort();
    const double w = stream_.uniform(0.02, 0.045), ink = stream_.uniform(options_.ink, 1.0);
    const double size = static_cast<double>(options_.size);
    std::vector<double> values;
    for (double row = 0.5; row < size; ++row) {
      for (double column = 0.5; column < size; ++column) {
        const double cover = 0.5 + (w - distance(column / size, row / size)) * size * 0.75;
        const double value = ink * std::clamp(cover, 0.0, 1.0) + options_.noise * stream_.normal();
        values.push_back(std::clamp(std::round((value + 0.5) * 127.5), 0.0, 255.0));
      }
    }
    return values;
  }

 private:
  double jitter(double spread) { return options_.jitter * spread * stream_.normal(); }

  void distort() {
    for (Stroke& stroke : shape_) {
      for (Point& p : stroke.points) {
        p.x += jitter(0.05);
        p.y += jitter(0.05);
      }
    }
    const double turn = jitter(0.15), log_x = jitter(0.1), log_y = jitter(0.1), shear = jitter(0.15);
    const double right = jitter(0.04), down = jitter(0.04);
    for (Stroke& stroke : shape_) {
      for (Point& p : stroke.points) {
        const double y = (p.y - 0.5) * std::exp(log_y), x = (p.x - 0.5) * std::exp(log_x) + shear * y;
        p.x = 0.5 + right + std::cos(turn) * x - std::sin(turn) * y;
        p.y = 0.5 + down + std::sin(turn) * x + std::cos(turn) * y;
      }
    }
  }

  static Point at(const Stroke& s, double t) {
    const auto mix = [t](Point a, Point b) { return Point{a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)}; };
    return mix(mix(s.points[0], s.points[1]), mix(s.points[1], s.points[2]));
  }

  double distance(double x, double y) const {
    double min = 1e9;
    for (const Stroke& stroke : shape_) {
      for (int i = 0; i < 8; ++i) {
        const Point a = at(stroke, i / 8.0), b = at(stroke, (i + 1) / 8.0);
        const double dx = b.x - a.x, dy = b.y - a.y;
        const double t = std::clamp(((x - a.x) * dx + (y - a.y) * dy) / (dx * dx + dy * dy), 0.0, 1.0);
        min = std::min(min, std::hypot(x - a.x - t * dx, y - a.y - t * dy));
      }
    }
    return min;
  }

  StrokesOptions options_;
  std::vector<Stroke> shape_;
  RandomStream stream_;
};

TEST(Strokes, FollowsTheRecipe) {
  for (const char* spec : {"classes=3,train=20", "classes=3,train=20,size=32,strokes=5,jitter=2.5,seed=4",
                           "classes=3,train=20,noise=0,jitter=0,seed=5"}) {
    const StrokesOptions options = parse_strokes(spec);
    const ByteDataset data = generate(spec);
    for (int64_t i = 0; i < data.train.size(); ++i) {
      const std::vector<double> expected = Plain(options, i / 20, static_cast<uint64_t>(i % 20)).bytes();
      int64_t differ = 0;
      for (size_t p = 0; p < expected.size(); ++p) {
        const double difference = std::abs(expected[p] - data.train.image(i)[p]);
        EXPECT_LE(difference, 1.0);  // a half that was rounded the other way
        if (difference > 0.0) ++differ;
      }
      EXPECT_LE(differ, 1) << spec << ", image " << i;
    }
  }
}

// The upper left pixel is almost never drawn on: what is left is the noise.
TEST(Strokes, NoiseHasTheRequestedSpread) {
  const ByteDataset data = generate("classes=50,train=40,test=1,noise=0.2,jitter=0");
  double sum = 0.0, squares = 0.0;
  const double count = static_cast<double>(data.train.size());
  for (int64_t i = 0; i < data.train.size(); ++i) {
    const double centred = data.train.image(i)[0] - 63.75;
    sum += centred;
    squares += centred * centred;
  }
  const double spread = 0.2 * 127.5;
  EXPECT_NEAR(sum / count, 0.0, 4.0 * spread / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), spread, 4.0 * spread / std::sqrt(2.0 * count) + 0.5);
}

}  // namespace
}  // namespace renorm::data::testing
