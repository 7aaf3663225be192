// Our names and torchvision's.
#include "models/torchvision_names.h"

#include <gtest/gtest.h>

namespace renorm::models {
namespace {

struct Pair {
  const char* ours;
  const char* theirs;
  double eps;
};

TEST(TorchvisionNames, AreFoundForEveryKindOfTensor) {
  const Pair table[] = {
      {"stem.conv.weight", "conv1.weight", 0.0},
      {"stem.norm.weight", "bn1.weight", 0.0},
      {"stem.norm.running_mean", "bn1.running_mean", 0.0},
      {"stem.norm.running_std", "bn1.running_var", 1e-5},
      {"stem.norm.batch_norm.running_var", "bn1.running_var", 0.0},
      {"layer1.0.conv1.conv.weight", "layer1.0.conv1.weight", 0.0},
      {"layer3.11.conv3.norm.bias", "layer3.11.bn3.bias", 0.0},
      {"layer2.0.shortcut.conv.weight", "layer2.0.downsample.0.weight", 0.0},
      {"layer2.0.shortcut.norm.running_std", "layer2.0.downsample.1.running_var", 1e-5},
      {"layer2.0.shortcut.norm.batch_norm.running_mean", "layer2.0.downsample.1.running_mean", 0.0},
      {"classifier.bias", "fc.bias", 0.0},
      {"Conv2d_1a_3x3.conv.weight", "Conv2d_1a_3x3.conv.weight", 0.0},
      {"Conv2d_1a_3x3.norm.running_std", "Conv2d_1a_3x3.bn.running_var", 1e-3},
      {"Mixed_5b.branch3x3dbl_1.norm.bias", "Mixed_5b.branch3x3dbl_1.bn.bias", 0.0},
      {"Mixed_7c.branch_pool.norm.batch_norm.running_var", "Mixed_7c.branch_pool.bn.running_var", 0.0},
      {"AuxLogits.conv1.conv.weight", "AuxLogits.conv1.conv.weight", 0.0},
      {"AuxLogits.conv0.norm.running_std", "AuxLogits.conv0.bn.running_var", 1e-3},
      {"AuxLogits.fc.weight", "AuxLogits.fc.weight", 0.0},
      {"fc.weight", "fc.weight", 0.0},
  };
  for (const Pair& pair : table) {
    const TorchvisionTensor found = torchvision_tensor(pair.ours);
    EXPECT_EQ(found.name, pair.theirs) << pair.ours;
    EXPECT_EQ(found.eps, pair.eps) << pair.ours;
  }
}

TEST(TorchvisionNames, AreEmptyForTensorsOfOtherModels) {
  for (const char* ours : {"", "conv1.conv.weight", "mixed.a.branch1x1.norm.bias", "stem", "stem.conv",
                           "layer1", "layer1.0.conv1.conv", "batch_norm", "."}) {
    EXPECT_EQ(torchvision_tensor(ours).name, "") << ours;
  }
}

}  // namespace
}  // namespace renorm::models
