// The maker of each kind of model, for make_model alone. They may rely on an input of 1 to 65,536 channels,
// rows and columns and at least one class.
#pragma once

#include <memory>
#include <string>

#include "models/model.h"

namespace renorm::models {

std::shared_ptr<Classifier> make_convnet(const std::string& spec, const InputShape& input,
                                         const MakeNorm& make_norm);
std::shared_ptr<Classifier> make_inception_small(const InputShape& input, const MakeNorm& make_norm);
std::shared_ptr<Classifier> make_resnet_small(const InputShape& input, const MakeNorm& make_norm);

}  // namespace renorm::models
