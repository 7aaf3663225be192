// How often a classifier prefers the right one of two characters in an image (data/stroke_overlay.h), by the
// other images of the minibatch. This shows the reason for the loss on 16 x 2 minibatches.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/description.h"
#include "data/strokes.h"
#include "models/model.h"

namespace renorm::train {

// Shares in percent of the probed images whose own class has a larger logit than the class of their decoy.
struct DecoyProbe {
  int64_t images = 0;
  double alone = 0.0;         // with moving averages; the others in minibatches of 32 with their statistics
  double with_partner = 0.0;  // a second image of its class
  double with_decoys_partner = 0.0;  // an image of the decoy's class
  double with_neither = 0.0;
  // With moving averages, by the ink of the character; the decoy has 0.7 of it.
  struct AtInk {
    double ink;
    double own;
  };
  std::vector<AtInk> by_ink;
};

// Composes `images` images from the characters of the test split, each with a decoy at the data's decoy_ink.
// The rest of a minibatch is 15 pairs of other classes. The same options and seed give the same images.
// `characters` are those of data::characters_of(options). There must be at least 18 classes with 2 test
// characters each.
DecoyProbe probe_decoys(models::Classifier& model, const data::StrokesOptions& options,
                        const data::Description& description, const data::ByteImages& characters,
                        int64_t images, uint64_t seed);

constexpr int64_t kProbeClasses = 18;

}  // namespace renorm::train
