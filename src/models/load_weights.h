// The weights of a file into a model: those of an earlier run, or torchvision's.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/model.h"

namespace renorm::models {

struct LoadedWeights {
  int64_t loaded = 0;             // tensors of the model that have the file's values now
  std::vector<std::string> left;  // those of classifiers of another number of classes, as they were
};

// `tensors` are those of `file`, which starts the messages: by our own names, as a checkpoint has them, or,
// for inception-v3, resnet18 and resnet50, by those of torchvision's state dict; which, is seen by the names.
// Any floating dtype.
//   Averages: running_std is sqrt(torchvision's running_var + torchvision's eps). LibTorch's own norm takes
//     running_var as it is, and so gives torchvision's logits if its eps is torchvision's.
//   num_batches_tracked is not taken over: the clip schedule begins with the new run.
//   A classifier for another number of classes stays as it was and is told in `left`.
//   An auxiliary head in the file that the model does not have is passed over.
//   Weights of norms whose weight is fixed must all be 1.
// Throws DataError naming file and tensor if a tensor is missing or not expected, has another shape or is no
// floating dtype, or holds what cannot be (not finite, a variance below 0); then nothing was changed.
LoadedWeights load_weights(Classifier& model, const std::map<std::string, torch::Tensor>& tensors,
                           const std::string& file);

}  // namespace renorm::models
