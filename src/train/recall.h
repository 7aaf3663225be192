// How well embeddings find images of the same class.
#pragma once

#include <cstdint>

#include "data/dataset.h"
#include "models/metric_net.h"

namespace renorm::train {

// Shares in percent of the images with one of the same class among their nearest, themselves excluded.
struct Recall {
  int64_t images = 0;
  int64_t skipped = 0;  // images that could not be read and are not counted
  double at_1 = 0.0;
  double at_5 = 0.0;
};

// Every image of the split once, by the cosine of embeddings, in evaluation mode. Of equally near images the
// earlier one counts as nearer. An embedding that is not finite finds nothing.
Recall recall_of(models::MetricNet& model, const data::Split& split);

}  // namespace renorm::train
