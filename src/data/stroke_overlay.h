// Images with two drawn characters: one of the image's class and, in some of them, a paler one of another
// class.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "data/byte_images.h"
#include "data/strokes.h"

namespace renorm::data {

// An image is max(a * character, decoy_ink * b * decoy) + noise, with a and b uniform in 1 +- amplitude. The
// decoy, with probability `decoy`, is a character of another class. Thread-safe.
class StrokeOverlay {
 public:
  // `characters` are drawn without noise, all classes alike in number, class after class.
  StrokeOverlay(const StrokesOptions& options, ByteImages characters);

  // An image whose class and first character are those of character `index`. All randomness comes from
  // `stream`, in a fixed order.
  void paint(int64_t index, RandomStream& stream, uint8_t* pixels) const;

  // One image per character; image i has the stream (options.seed, purpose, i).
  ByteImages paint_all(Purpose purpose) const;

 private:
  StrokesOptions options_;
  ByteImages characters_;
};

}  // namespace renorm::data
