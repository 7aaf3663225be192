#include "train/tensors.h"

#include <unordered_set>
#include <utility>

namespace renorm::train {
namespace {

class Collector {
 public:
  template <typename Dictionary>
  void add(const Dictionary& named) {
    for (const auto& item : named) {
      const torch::Tensor& tensor = item.value();
      if (tensor.defined() && seen_.insert(tensor.unsafeGetTensorImpl()).second) {
        tensors_.push_back({item.key(), tensor});
      }
    }
  }
  std::vector<NamedTensor> take() { return std::move(tensors_); }

 private:
  std::unordered_set<const void*> seen_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace

std::vector<NamedTensor> named_state(const torch::nn::Module& model) {
  Collector collector;
  collector.add(model.named_parameters());
  collector.add(model.named_buffers());
  return collector.take();
}

std::vector<NamedTensor> named_parameters(const torch::nn::Module& model) {
  Collector collector;
  collector.add(model.named_parameters());
  return collector.take();
}

int64_t first_non_finite(const torch::Tensor& tensor) {
  const torch::Tensor bad = torch::isfinite(tensor.detach()).logical_not().flatten().nonzero();
  return bad.numel() == 0 ? -1 : bad[0].item<int64_t>();
}

}  // namespace renorm::train
