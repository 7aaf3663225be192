#pragma once

#include "data/strokes.h"

namespace renorm::data {

// The set as it is before anything is drawn: names, labels and sizes in place, class after class.
ByteDataset blank_strokes(const StrokesOptions& options);

}  // namespace renorm::data
