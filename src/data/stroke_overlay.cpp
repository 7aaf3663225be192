#include "data/stroke_overlay.h"

#include <algorithm>
#include <utility>

#include "data/stroke_drawing.h"

namespace renorm::data {

StrokeOverlay::StrokeOverlay(const StrokesOptions& options, ByteImages characters)
    : options_(options), characters_(std::move(characters)) {}

Composition StrokeOverlay::compose(int64_t index, RandomStream& stream) const {
  const auto amplitude = [&] { return stream.uniform(1.0 - options_.amplitude, 1.0 + options_.amplitude); };
  Composition composition;
  composition.character = index;
  composition.ink = amplitude();
  if (stream.uniform() < options_.decoy) {
    const int64_t other = (index / per_class() + 1 + stream.below(options_.classes - 1)) % options_.classes;
    composition.decoy = other * per_class() + stream.below(per_class());
    composition.decoy_ink = options_.decoy_ink * amplitude();
  }
  return composition;
}

void StrokeOverlay::paint(int64_t index, RandomStream& stream, uint8_t* pixels) const {
  draw(compose(index, stream), stream, pixels);
}

void StrokeOverlay::draw(const Composition& composition, RandomStream& stream, uint8_t* pixels) const {
  const uint8_t* character = characters_.image(composition.character);
  const uint8_t* decoy = characters_.image(composition.decoy.value_or(composition.character));
  for (int64_t i = 0; i < characters_.image_bytes(); ++i) {
    double value =
        std::max(composition.ink * ink_of_byte(character[i]), composition.decoy_ink * ink_of_byte(decoy[i]));
    if (options_.noise > 0.0) value += options_.noise * stream.normal();
    pixels[i] = to_byte(value);
  }
}

ByteImages StrokeOverlay::paint_all(Purpose purpose) const {
  ByteImages images = characters_;
  for (int64_t i = 0; i < images.size(); ++i) {
    RandomStream stream(options_.seed, purpose, static_cast<uint64_t>(i));
    paint(i, stream, images.pixels.data() + i * images.image_bytes());
  }
  return images;
}

}  // namespace renorm::data
