// Loads weights into a model: of an earlier run, or torchvision's.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/model.h"

namespace renorm::models {

struct LoadedWeights {
  int64_t loaded = 0;             // tensors of the model with values of the file
  std::vector<std::string> left;  // unchanged: those of classifiers with another number of classes
};

// `tensors` are those of `file`, which starts the messages. They have our own names, as in a checkpoint, or,
// for inception-v3, resnet18 and resnet50, the names of torchvision's state dict; both are recognized. Any
// floating dtype.
//   Averages: running_std is sqrt(torchvision's running_var + torchvision's eps). LibTorch's own norm takes
//     running_var unchanged, and so gives torchvision's logits if its eps is torchvision's.
//   num_batches_tracked is not loaded: the clip schedule starts with the new run.
//   A classifier for another number of classes is unchanged and reported in `left`.
//   An auxiliary head that only the file has is ignored.
//   Weights of norms whose weight is fixed must all be 1.
// Throws DataError with file and tensor if a tensor is missing, unexpected, of another shape or not of a
// floating dtype, or has an impossible value (not finite, a variance below 0); then nothing was changed.
LoadedWeights load_weights(Classifier& model, const std::map<std::string, torch::Tensor>& tensors,
                           const std::string& file);

}  // namespace renorm::models
