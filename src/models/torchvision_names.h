// The names of torchvision's state dicts for the tensors of inception-v3, resnet18 and resnet50.
#pragma once

#include <string>

namespace renorm::models {

struct TorchvisionTensor {
  std::string name;  // "layer1.0.bn1.running_var"; empty if torchvision has no such tensor
  double eps = 0.0;  // above 0: our tensor is sqrt(torchvision's + eps), a standard deviation from a variance
};

// `ours` is the name of a parameter or buffer, with norms of either kind: "layer1.0.conv1.norm.running_std".
// For tensors of other models the result is empty or a name that no file has.
TorchvisionTensor torchvision_tensor(const std::string& ours);

}  // namespace renorm::models
