#include "cli/why_panel.h"

#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "cli/contact_sheet.h"
#include "data/stroke_overlay.h"
#include "data/strokes.h"

namespace renorm::cli {
namespace {

using data::ByteImages;
using data::Composition;

// A small part of the set is drawn, in few enough pixels for a page.
constexpr int64_t kClasses = 10;
constexpr int64_t kImages = 8;
constexpr int64_t kMaxSide = 64;

std::optional<data::StrokesOptions> options_of(const std::string& spec) try {
  std::optional<data::StrokesOptions> options = data::strokes_of_spec(spec);
  if (!options || !(options->decoy > 0.0)) return std::nullopt;
  options->classes = std::min(options->classes, kClasses);
  options->train = std::min(options->train, kImages);
  options->test = 1;
  options->size = std::min(options->size, kMaxSide);
  return options;
} catch (const UsageError&) {
  return std::nullopt;
}

ByteImages training_characters(const data::StrokesOptions& options) {
  const auto silent = [](int64_t /*done*/, int64_t /*total*/) {};
  return data::generate_strokes(data::characters_of(options), /*threads=*/1, silent).train;
}

struct Pair {
  Composition image;
  Composition partner;
};

// The first image with a decoy that has a partner of the same class without it.
std::optional<Pair> first_pair(const ByteImages& characters, const std::vector<Composition>& images) {
  const auto label = [&](int64_t i) { return characters.labels[static_cast<size_t>(i)]; };
  for (const Composition& image : images) {
    if (!image.decoy) continue;
    for (const Composition& partner : images) {
      const bool same_class = label(partner.character) == label(image.character);
      const bool same_decoy = partner.decoy && label(*partner.decoy) == label(*image.decoy);
      if (same_class && partner.character != image.character && !same_decoy) return Pair{image, partner};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<report::WhyPanel> why_panel(const std::string& spec) {
  const std::optional<data::StrokesOptions> options = options_of(spec);
  if (!options) return std::nullopt;
  const ByteImages characters = training_characters(*options);
  const data::StrokeOverlay overlay(*options, characters);
  std::vector<Composition> compositions;
  for (int64_t i = 0; i < characters.size(); ++i) {
    RandomStream stream(options->seed, Purpose::kOverlayTrain, static_cast<uint64_t>(i));
    compositions.push_back(overlay.compose(i, stream));
  }
  const std::optional<Pair> pair = first_pair(characters, compositions);
  if (!pair) return std::nullopt;
  const ByteImages images = overlay.paint_all(Purpose::kOverlayTrain);
  report::WhyPanel panel;
  panel.data = spec;
  panel.image_png = image_png(images, pair->image.character);
  panel.meant_png = image_png(characters, pair->image.character);
  panel.decoy_png = image_png(characters, *pair->image.decoy);
  panel.partner_png = image_png(images, pair->partner.character);
  return panel;
}

}  // namespace renorm::cli
