// From a config to a model.
#pragma once

#include <cstdint>
#include <memory>

#include "data/description.h"
#include "models/model.h"
#include "train/config.h"

namespace renorm::train {

// The norm layers of a resolved config.
models::MakeNorm norm_of(const Config& config);

// The model of a resolved config, initialized from its seed.
std::shared_ptr<models::Classifier> build_model(const Config& config, const data::Description& data);
// The same with other norms.
std::shared_ptr<models::Classifier> build_model(const Config& config, const data::Description& data,
                                                const models::MakeNorm& make_norm);

// The memory format in which the net of a config computes.
torch::MemoryFormat memory_format_of(const Config& config);

// Whether all layers of the model have more than one value per channel in a group of `examples`: one value
// alone cannot be normalized.
bool can_normalize(const Config& config, const data::Description& data, int64_t examples);

// The number of examples per pass through the model: whole groups, at most `chunk` examples, or as many as
// fit into a fixed amount of memory.
int64_t examples_per_pass(const Config& config, const data::Description& data);

}  // namespace renorm::train
