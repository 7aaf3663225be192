// Clipping in a step, for the records of a run.
#pragma once

#include <renorm/nn/model.h>

#include <vector>

#include "dist/group.h"
#include "record/metrics.h"

namespace renorm::train {

// One entry per layer: the telemetry since it was last cleared, over all processes of `group` unless it is
// null.
std::vector<record::LayerClips> clip_records(const std::vector<NamedLayer>& layers, dist::Group* group);

}  // namespace renorm::train
