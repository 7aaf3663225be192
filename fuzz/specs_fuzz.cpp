// Input: a text for each of the small languages of the flags.
#include "base/text.h"
#include "data/sampler.h"
#include "data/strokes.h"
#include "fuzz.h"
#include "models/convnet_spec.h"
#include "train/clip_spec.h"

using namespace renorm;

namespace {

void sampler(const std::string& text) {
  data::SamplerSpec spec;
  if (!fuzz::accepts([&] { spec = data::parse_sampler(text); })) return;
  fuzz::expect(spec.minibatch() >= 0, "a minibatch that overflows");
  const std::string written = data::to_string(spec);
  fuzz::expect(data::to_string(data::parse_sampler(written)) == written, "the sampler changed");
}

void strokes(const std::string& text) {
  data::StrokesOptions options;
  if (!fuzz::accepts([&] { options = data::parse_strokes(text); })) return;
  const std::string written = data::to_spec(options);
  const std::string again = data::to_spec(data::parse_strokes(split_spec(written).second));
  fuzz::expect(again == written, "the options of strokes changed");
}

void clip(const std::string& text) {
  train::ClipSpec spec;
  if (!fuzz::accepts([&] { spec = train::parse_clip(text); })) return;
  for (const int64_t steps : {int64_t{1}, int64_t{1300}, int64_t{1} << 40})
    fuzz::accepts([&] {
      const ClipLimits limits = train::to_schedule(spec, steps).at(steps / 2);
      fuzz::expect(limits.r_max >= 1.0 && limits.d_max >= 0.0, "limits out of range");
    });
}

void convnet(const std::string& text, std::vector<models::ConvnetItem> (*parse)(const std::string& spec)) {
  std::vector<models::ConvnetItem> items;
  if (!fuzz::accepts([&] { items = parse(text); })) return;
  for (const int64_t side : {int64_t{1}, int64_t{20}, int64_t{65'536}})
    fuzz::accepts([&] {
      for (const auto& shape : models::convnet_shapes(items, {3, side, side}))
        fuzz::expect(shape.channels >= 1 && shape.height >= 1 && shape.width >= 1, "nothing is left");
    });
}

void options(const std::string& text) {
  fuzz::accepts([&] {
    for (const auto& [name, value] : parse_options(text, "WHAT"))
      fuzz::expect(!name.empty(), "an option without a name: " + value);
  });
  fuzz::accepts([&] { parse_integer(text, "WHAT", -5, 1'000'000); });
  fuzz::accepts([&] {
    const double value = parse_number(text, "WHAT", 0.0, 10.0);
    fuzz::expect(parse_number(shortest(value), "WHAT", 0.0, 10.0) == value, "a number changed");
  });
  fuzz::expect_sentence("'" + printable(text) + "'");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = fuzz::text_of(data, size);
  sampler(text);
  strokes(text);
  clip(text);
  options(text);
  convnet(text, models::parse_convnet);
  convnet(text, models::parse_mlp);
  return 0;
}
