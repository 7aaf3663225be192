// Images with two drawn characters: one of the image's class and, in some of them, a paler one of another
// class.
#pragma once

#include <cstdint>
#include <optional>

#include "base/random.h"
#include "data/byte_images.h"
#include "data/strokes.h"

namespace renorm::data {

// The parts of an image: characters by their numbers, and factors on their ink.
struct Composition {
  int64_t character = 0;
  double ink = 1.0;
  std::optional<int64_t> decoy{};
  double decoy_ink = 0.0;
};

// An image is max(a * character, decoy_ink * b * decoy) + noise, with a and b uniform in 1 +- amplitude. The
// decoy, with probability `decoy`, is a character of another class. Thread-safe.
class StrokeOverlay {
 public:
  // `characters` are drawn without noise, all classes alike in number, class after class.
  StrokeOverlay(const StrokesOptions& options, ByteImages characters);

  // An image whose class and first character are those of character `index`. All randomness comes from
  // `stream`, in a fixed order: compose takes the part of it before the noise.
  Composition compose(int64_t index, RandomStream& stream) const;
  void paint(int64_t index, RandomStream& stream, uint8_t* pixels) const;

  // An image of this composition; its noise comes from `stream`.
  void draw(const Composition& composition, RandomStream& stream, uint8_t* pixels) const;

  const ByteImages& characters() const { return characters_; }
  int64_t per_class() const { return characters_.size() / options_.classes; }

  // One image per character; image i has the stream (options.seed, purpose, i).
  ByteImages paint_all(Purpose purpose) const;

 private:
  StrokesOptions options_;
  ByteImages characters_;
};

}  // namespace renorm::data
