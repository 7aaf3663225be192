#include "cli/eval_split.h"

#include <torch/torch.h>

#include <utility>
#include <vector>

namespace renorm::cli {
namespace {

class Restandardized : public data::Split {
 public:
  Restandardized(std::shared_ptr<const data::Split> split, const data::Description& own,
                 const data::Description& target)
      : split_(std::move(split)) {
    const auto column = [](const std::vector<double>& values) {
      return torch::tensor(values, torch::kDouble).view({1, -1, 1, 1});
    };
    scale_ = (column(own.std) / column(target.std)).to(torch::kFloat);
    shift_ = ((column(own.mean) - column(target.mean)) / column(target.std)).to(torch::kFloat);
  }
  const std::vector<int64_t>& labels() const override { return split_->labels(); }
  int64_t pixels() const override { return split_->pixels(); }
  bool is_slow() const override { return split_->is_slow(); }
  data::Batch load(const std::vector<data::Draw>& draws) const override {
    data::Batch batch = split_->load(draws);
    batch.images = batch.images * scale_ + shift_;
    return batch;
  }

 private:
  std::shared_ptr<const data::Split> split_;
  torch::Tensor scale_;
  torch::Tensor shift_;
};

class Lengthened : public data::Split {
 public:
  Lengthened(std::shared_ptr<const data::Split> split, int64_t rows)
      : split_(std::move(split)), rows_(rows) {}
  const std::vector<int64_t>& labels() const override { return split_->labels(); }
  int64_t pixels() const override { return split_->pixels(); }
  bool is_slow() const override { return split_->is_slow(); }
  data::Batch load(const std::vector<data::Draw>& draws) const override {
    data::Batch batch = split_->load(draws);
    // The last row of a drawn character is nearly always background. Shifted, its noise differs in each row.
    const torch::Tensor last = batch.images.narrow(2, batch.images.size(2) - 1, 1);
    std::vector<torch::Tensor> parts = {batch.images};
    for (int64_t row = 1; row <= rows_; ++row) parts.push_back(last.roll(row, 3));
    batch.images = torch::cat(parts, 2);
    return batch;
  }

 private:
  std::shared_ptr<const data::Split> split_;
  int64_t rows_;
};

}  // namespace

std::shared_ptr<const data::Split> restandardized(std::shared_ptr<const data::Split> split,
                                                  const data::Description& own,
                                                  const data::Description& target) {
  return std::make_shared<Restandardized>(std::move(split), own, target);
}

std::shared_ptr<const data::Split> lengthened(std::shared_ptr<const data::Split> split, int64_t rows) {
  return std::make_shared<Lengthened>(std::move(split), rows);
}

}  // namespace renorm::cli
