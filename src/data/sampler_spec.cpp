#include <fmt/format.h>

#include "base/errors.h"
#include "base/text.h"
#include "data/sampler.h"

namespace renorm::data {
namespace {

constexpr int64_t kMost = 1000000;

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
        parse_integer(pieces[i], fmt::format("{} of sampler '{}'", names[i], printable(text)), 1, kMost));
  }
  return numbers;
}

SamplerSpec parse_labels(const std::string& text, const std::string& rest) {
  constexpr const char* kForm = "labels:LxK or labels:LxK:distinct, as in labels:16x2";
  const std::vector<std::string> parts = split(rest, ':');
  if (parts.size() > 2 || (parts.size() == 2 && parts[1] != "distinct")) refuse(text, kForm);
  const std::vector<int64_t> sizes = parse_sizes(text, parts[0], {"L (labels)", "K (images a label)"}, kForm);
  SamplerSpec spec;
  spec.kind = SamplerSpec::Kind::kLabels;
  spec.labels = sizes[0];
  spec.images = sizes[1];
  spec.distinct = parts.size() == 2;
  return spec;
}

SamplerSpec parse_blocks(const std::string& text, const std::string& rest) {
  const std::vector<int64_t> sizes =
      parse_sizes(text, rest, {"B (labels in a block)", "L (labels)", "K (images a label)"},
                  "blocks:BxLxK, as in blocks:8x16x2");
  SamplerSpec spec;
  spec.kind = SamplerSpec::Kind::kBlocks;
  spec.block = sizes[0];
  spec.labels = sizes[1];
  spec.images = sizes[2];
  return spec;
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
    throw UsageError(
        fmt::format("unknown sampler '{}'{}", printable(name), name_hint(name, {"iid", "labels", "blocks"})));
  }
  if (spec.minibatch() > kMost) {
    throw UsageError(fmt::format("sampler '{}' makes minibatches of {} images, at most {} are possible",
                                 printable(text), spec.minibatch(), kMost));
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

}  // namespace renorm::data
