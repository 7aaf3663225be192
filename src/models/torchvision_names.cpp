#include "models/torchvision_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace renorm::models {
namespace {

using Parts = std::vector<std::string>;

// The eps of torchvision's batchnorm, which differs between models.
constexpr double kInceptionEps = 1e-3;
constexpr double kResnetEps = 1e-5;

bool starts_with(const std::string& text, const char* beginning) { return text.rfind(beginning, 0) == 0; }

bool of_inception(const std::string& module) {
  return starts_with(module, "Conv2d_") || starts_with(module, "Mixed_") || module == "AuxLogits" ||
         module == "fc";
}

// Replaces the first `count` parts by `with`.
void replace_front(Parts* parts, std::ptrdiff_t count, const Parts& with) {
  parts->erase(parts->begin(), parts->begin() + count);
  parts->insert(parts->begin(), with.begin(), with.end());
}

// "convK.conv" is torchvision's convK and "convK.norm" its bnK; a shortcut is a list of the two.
Parts resnet_layer(const std::string& layer, const std::string& inner) {
  const bool is_norm = inner == "norm";
  if (layer == "shortcut") return {"downsample", is_norm ? "1" : "0"};
  return {is_norm && starts_with(layer, "conv") ? "bn" + layer.substr(4) : layer};
}

// Returns false for a name that no ResNet has.
bool rename_resnet(Parts* parts) {
  const Parts& p = *parts;
  if (p[0] == "classifier") {
    replace_front(parts, 1, {"fc"});
  } else if (p[0] == "stem" && p.size() > 2) {
    replace_front(parts, 2, resnet_layer("conv1", p[1]));
  } else if (starts_with(p[0], "layer") && p.size() > 4) {
    Parts renamed = resnet_layer(p[2], p[3]);
    renamed.insert(renamed.begin(), {p[0], p[1]});
    replace_front(parts, 4, renamed);
  } else {
    return false;
  }
  return true;
}

}  // namespace

TorchvisionTensor torchvision_tensor(const std::string& ours) {
  Parts parts = split(ours, '.');
  // The module inside LibTorch's own norm.
  parts.erase(std::remove(parts.begin(), parts.end(), "batch_norm"), parts.end());
  if (parts.empty()) return {};
  const bool inception = of_inception(parts[0]);
  if (inception) {
    std::replace(parts.begin(), parts.end(), std::string("norm"), std::string("bn"));
  } else if (!rename_resnet(&parts)) {
    return {};
  }
  TorchvisionTensor result;
  if (parts.back() == "running_std") {
    parts.back() = "running_var";
    result.eps = inception ? kInceptionEps : kResnetEps;
  }
  result.name = fmt::format("{}", fmt::join(parts, "."));
  return result;
}

}  // namespace renorm::models
