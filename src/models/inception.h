// The blocks of Inception v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision")
// with any widths, in the layout and with the names of torchvision's InceptionA to InceptionE.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/blocks.h"

namespace renorm::models {

// Pooling, then a chain of convolutions, then optionally a fan of parallel convolutions of the same map. All
// outputs of all branches are concatenated.
struct InceptionBranch {
  enum class Pooling { kNone, kAverage, kMax };  // average: 3x3, size kept; max: 3x3, stride 2
  std::string name;
  Pooling pooling = Pooling::kNone;
  std::vector<ConvShape> chain;
  std::vector<ConvShape> fan;
};

class InceptionBlockImpl : public torch::nn::Module {
 public:
  // `in` channels; `padding` is that of max pooling.
  InceptionBlockImpl(int64_t in, const std::vector<InceptionBranch>& branches, int64_t padding,
                     const MakeNorm& make_norm);
  torch::Tensor forward(const torch::Tensor& x);

  int64_t out_channels = 0;

 private:
  struct Branch {
    InceptionBranch::Pooling pooling;
    std::vector<ConvNorm> chain;
    std::vector<ConvNorm> fan;
  };
  void add(const InceptionBranch& plan, int64_t in, const MakeNorm& make_norm);
  torch::Tensor pool(InceptionBranch::Pooling pooling, const torch::Tensor& x) const;

  std::vector<Branch> branches_;
  int64_t padding_;
};
TORCH_MODULE(InceptionBlock);

// The numbers in the comments are the published widths.
struct InceptionAWidths {
  int64_t out_1x1;       // 64
  int64_t inner_5x5;     // 48
  int64_t out_5x5;       // 64
  int64_t inner_3x3dbl;  // 64
  int64_t out_3x3dbl;    // 96
  int64_t out_pool;      // 32, 64, 64
};
InceptionBlock inception_a(int64_t in, const InceptionAWidths& widths, const MakeNorm& make_norm);

// Halves the map. `padding` 0 is the published one: (side - 3) / 2 + 1; 1 is for small maps.
struct InceptionBWidths {
  int64_t out_3x3;       // 384
  int64_t inner_3x3dbl;  // 64
  int64_t out_3x3dbl;    // 96
};
InceptionBlock inception_b(int64_t in, const InceptionBWidths& widths, int64_t padding,
                           const MakeNorm& make_norm);

struct InceptionCWidths {
  int64_t inner_7x7;  // 128, 160, 160, 192
  int64_t out;        // 192, of each of the four branches
};
InceptionBlock inception_c(int64_t in, const InceptionCWidths& widths, const MakeNorm& make_norm);

// Halves the map, as B does.
struct InceptionDWidths {
  int64_t inner_3x3;  // 192
  int64_t out_3x3;    // 320
  int64_t out_7x7x3;  // 192, of each layer of the branch
};
InceptionBlock inception_d(int64_t in, const InceptionDWidths& widths, int64_t padding,
                           const MakeNorm& make_norm);

struct InceptionEWidths {
  int64_t out_1x1;       // 320
  int64_t out_3x3;       // 384, of each of the four ends of the two branches
  int64_t inner_3x3dbl;  // 448
  int64_t out_pool;      // 192
};
InceptionBlock inception_e(int64_t in, const InceptionEWidths& widths, const MakeNorm& make_norm);

}  // namespace renorm::models
