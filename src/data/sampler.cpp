#include "data/sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "base/random.h"
#include "base/text.h"

namespace renorm::data {
namespace {

using Kind = SamplerSpec::Kind;

constexpr int64_t kMax = 1000000;

[[noreturn]] void refuse(const std::string& text, const char* expected) {
  throw UsageError(fmt::format("sampler '{}' is not of the form {}", printable(text), expected));
}

// The numbers of "16x2", one for each name.
std::vector<int64_t> parse_sizes(const std::string& text, const std::string& sizes,
                                 const std::vector<std::string>& names, const char* expected) {
  const std::vector<std::string> pieces = split(sizes, 'x');
  if (pieces.size() != names.size()) refuse(text, expected);
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < pieces.size(); ++i) {
    numbers.push_back(
        parse_integer(pieces[i], fmt::format("{} of sampler '{}'", names[i], printable(text)), 1, kMax));
  }
  return numbers;
}

SamplerSpec parse_labels(const std::string& text, const std::string& rest) {
  constexpr const char* kForm = "labels:LxK or labels:LxK:distinct, as in labels:16x2";
  const std::vector<std::string> parts = split(rest, ':');
  if (parts.size() > 2 || (parts.size() == 2 && parts[1] != "distinct")) refuse(text, kForm);
  const std::vector<int64_t> sizes =
      parse_sizes(text, parts[0], {"L (labels)", "K (images per label)"}, kForm);
  SamplerSpec spec;
  spec.kind = SamplerSpec::Kind::kLabels;
  spec.labels = sizes[0];
  spec.images = sizes[1];
  spec.distinct = parts.size() == 2;
  return spec;
}

SamplerSpec parse_blocks(const std::string& text, const std::string& rest) {
  const std::vector<int64_t> sizes =
      parse_sizes(text, rest, {"B (labels in a block)", "L (labels)", "K (images per label)"},
                  "blocks:BxLxK, as in blocks:8x16x2");
  SamplerSpec spec;
  spec.kind = SamplerSpec::Kind::kBlocks;
  spec.block = sizes[0];
  spec.labels = sizes[1];
  spec.images = sizes[2];
  return spec;
}

void check_shape(const SamplerSpec& spec, const StepShape& shape) {
  if (shape.workers < 1 || shape.minibatch < 1 || shape.microbatch < 1) {
    throw UsageError(fmt::format("workers, minibatch and microbatch must be at least 1, got {}, {} and {}",
                                 shape.workers, shape.minibatch, shape.microbatch));
  }
  if (shape.minibatch % shape.microbatch != 0) {
    throw UsageError(fmt::format("microbatch {} does not divide minibatch {}; use a divisor of {}",
                                 shape.microbatch, shape.minibatch, shape.minibatch));
  }
  if (spec.kind != Kind::kIid && shape.minibatch != spec.minibatch()) {
    throw UsageError(
        fmt::format("sampler {} makes minibatches of {} images, but minibatch is {}; use --minibatch {}",
                    to_string(spec), spec.minibatch(), shape.minibatch, spec.minibatch()));
  }
}

void check_order(const SamplerSpec& spec, const StepShape& shape) {
  if (!shape.split_pairs) return;
  if (shape.deal) {
    throw UsageError(
        "--split-pairs and --deal both determine which images are normalized together; use one of them");
  }
  if (spec.kind == Kind::kIid) {
    throw UsageError(
        "--split-pairs needs several images of each label; use --sampler labels:LxK or blocks:BxLxK");
  }
  if (spec.labels % shape.microbatch != 0) {
    throw UsageError(fmt::format(
        "--split-pairs with sampler {} cannot spread {} labels evenly over microbatches of {}; use "
        "--microbatch {}",
        to_string(spec), spec.labels, shape.microbatch, spec.labels));
  }
}

void check_labels(const std::vector<int64_t>& labels, int64_t classes) {
  if (labels.empty()) throw DataError("the data set has no images to draw from");
  const auto wrong = std::find_if(labels.begin(), labels.end(),
                                  [&](int64_t label) { return label < 0 || label >= classes; });
  if (wrong != labels.end()) {
    throw DataError(fmt::format("image {} of the data set has label {}, expected 0 to {}",
                                wrong - labels.begin(), *wrong, classes - 1));
  }
}

void check_classes(const SamplerSpec& spec, int64_t classes) {
  if (spec.distinct && spec.labels > classes) {
    throw DataError(
        fmt::format("sampler {} requires {} different labels, but the data set has {} classes; use at "
                    "most {} or leave :distinct out",
                    to_string(spec), spec.labels, classes, classes));
  }
  if (spec.kind == Kind::kBlocks && spec.block > classes) {
    throw DataError(fmt::format(
        "sampler {} requires blocks of {} labels, but the data set has {} classes; use at most {}",
        to_string(spec), spec.block, classes, classes));
  }
}

// The examples of each label. Every label may be drawn, so each must have enough images.
std::vector<std::vector<int64_t>> group_by_label(const SamplerSpec& spec, const std::vector<int64_t>& labels,
                                                 int64_t classes) {
  std::vector<std::vector<int64_t>> examples(static_cast<size_t>(classes));
  for (size_t i = 0; i < labels.size(); ++i) {
    examples[static_cast<size_t>(labels[i])].push_back(static_cast<int64_t>(i));
  }
  for (size_t label = 0; label < examples.size(); ++label) {
    const int64_t images = static_cast<int64_t>(examples[label].size());
    if (images < spec.images) {
      throw DataError(fmt::format(
          "sampler {} draws {} different images of a label, but label {} of the data set has {}; use fewer "
          "images per label or --sampler iid",
          to_string(spec), spec.images, label, images));
    }
  }
  return examples;
}

std::vector<int64_t> split_pairs(const std::vector<int64_t>& drawn, const SamplerSpec& spec,
                                 int64_t microbatch) {
  std::vector<int64_t> order;
  order.reserve(drawn.size());
  const int64_t labels = static_cast<int64_t>(drawn.size()) / spec.images;  // of all minibatches
  for (int64_t first = 0; first < labels; first += microbatch) {
    for (int64_t image = 0; image < spec.images; ++image) {
      for (int64_t label = first; label < first + microbatch; ++label) {
        order.push_back(drawn[static_cast<size_t>(label * spec.images + image)]);
      }
    }
  }
  return order;
}

std::vector<int64_t> deal(const std::vector<int64_t>& drawn, const StepShape& shape) {
  std::vector<int64_t> order(drawn.size());
  for (int64_t place = 0; place < shape.minibatch; ++place) {
    for (int64_t worker = 0; worker < shape.workers; ++worker) {
      order[static_cast<size_t>(worker * shape.minibatch + place)] =
          drawn[static_cast<size_t>(place * shape.workers + worker)];
    }
  }
  return order;
}

}  // namespace

SamplerSpec parse_sampler(const std::string& text) {
  const auto [name, rest] = split_spec(text);
  SamplerSpec spec;
  if (name == "iid") {
    if (text != "iid") refuse(text, "iid: it has no options");
  } else if (name == "labels") {
    spec = parse_labels(text, rest);
  } else if (name == "blocks") {
    spec = parse_blocks(text, rest);
  } else {
    throw UsageError(unknown_name("sampler", name, {"iid", "labels", "blocks"}));
  }
  if (spec.minibatch() > kMax) {
    throw UsageError(fmt::format("sampler '{}' makes minibatches of {} images, the maximum is {}",
                                 printable(text), spec.minibatch(), kMax));
  }
  return spec;
}

std::string to_string(const SamplerSpec& spec) {
  switch (spec.kind) {
    case SamplerSpec::Kind::kLabels:
      return fmt::format("labels:{}x{}{}", spec.labels, spec.images, spec.distinct ? ":distinct" : "");
    case SamplerSpec::Kind::kBlocks:
      return fmt::format("blocks:{}x{}x{}", spec.block, spec.labels, spec.images);
    case SamplerSpec::Kind::kIid:
      break;
  }
  return "iid";
}

struct Sampler::Source {
  SamplerSpec spec;
  StepShape shape;
  int64_t classes;
  uint64_t seed;
  int64_t examples;                              // in the data set
  std::vector<std::vector<int64_t>> of_label{};  // not for iid
  int64_t epoch = -1;                            // whose order is below
  std::vector<int64_t> order{};

  std::vector<int64_t> epochs_cut(int64_t step);
  int64_t draw_block(RandomStream& stream) const;
  std::vector<int64_t> draw_labels(RandomStream& stream) const;
  std::vector<int64_t> draw_images(int64_t step) const;
};

std::vector<int64_t> Sampler::Source::epochs_cut(int64_t step) {
  std::vector<int64_t> drawn;
  drawn.reserve(static_cast<size_t>(shape.examples()));
  const int64_t end = (step + 1) * shape.examples();
  for (int64_t position = step * shape.examples(); position < end;) {
    if (position / examples != epoch) {
      epoch = position / examples;
      RandomStream stream(seed, Purpose::kEpoch, static_cast<uint64_t>(epoch));
      order = permutation(examples, stream);
    }
    const int64_t first = position % examples, last = std::min(examples, first + end - position);
    drawn.insert(drawn.end(), order.begin() + first, order.begin() + last);
    position += last - first;
  }
  return drawn;
}

// Equal blocks are equally likely. With a smaller last block the block of a random label is taken, so that
// labels stay equally likely. Both ways give the same chances for equal blocks, but other numbers.
int64_t Sampler::Source::draw_block(RandomStream& stream) const {
  if (classes % spec.block == 0) return stream.below(classes / spec.block);
  return stream.below(classes) / spec.block;
}

std::vector<int64_t> Sampler::Source::draw_labels(RandomStream& stream) const {
  if (spec.distinct) return choose(spec.labels, classes, stream);
  int64_t first = 0, count = classes;
  if (spec.kind == Kind::kBlocks) {
    first = spec.block * draw_block(stream);
    count = std::min(spec.block, classes - first);
  }
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < spec.labels; ++i) labels.push_back(first + stream.below(count));
  return labels;
}

std::vector<int64_t> Sampler::Source::draw_images(int64_t step) const {
  RandomStream stream(seed, Purpose::kMinibatch, static_cast<uint64_t>(step));
  std::vector<int64_t> drawn;
  drawn.reserve(static_cast<size_t>(shape.examples()));
  for (int64_t worker = 0; worker < shape.workers; ++worker) {
    for (const int64_t label : draw_labels(stream)) {
      const std::vector<int64_t>& images = of_label[static_cast<size_t>(label)];
      for (const int64_t chosen : choose(spec.images, static_cast<int64_t>(images.size()), stream)) {
        drawn.push_back(images[static_cast<size_t>(chosen)]);
      }
    }
  }
  return drawn;
}

Sampler::Sampler(const SamplerSpec& spec, const StepShape& shape, const std::vector<int64_t>& labels,
                 int64_t classes, uint64_t seed) {
  check_shape(spec, shape);
  check_order(spec, shape);
  check_labels(labels, classes);
  check_classes(spec, classes);
  source_ = std::make_unique<Source>(Source{spec, shape, classes, seed, static_cast<int64_t>(labels.size())});
  if (spec.kind != Kind::kIid) source_->of_label = group_by_label(spec, labels, classes);
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

std::vector<int64_t> Sampler::step(int64_t step) {
  const SamplerSpec& spec = source_->spec;
  const StepShape& shape = source_->shape;
  std::vector<int64_t> drawn =
      spec.kind == Kind::kIid ? source_->epochs_cut(step) : source_->draw_images(step);
  if (shape.split_pairs) return split_pairs(drawn, spec, shape.microbatch);
  if (shape.deal) return deal(drawn, shape);
  return drawn;
}

double Sampler::epochs(int64_t steps) const {
  return static_cast<double>(steps) * static_cast<double>(source_->shape.examples()) /
         static_cast<double>(source_->examples);
}

}  // namespace renorm::data
