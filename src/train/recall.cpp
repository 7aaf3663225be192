#include "train/recall.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "data/batch_stream.h"
#include "train/evaluate.h"

namespace renorm::train {
namespace {

constexpr int64_t kRows = 256;  // of the similarities, at a time
constexpr size_t kNearest = 5;

// The embeddings of all images that can be read, and their labels.
struct Embedded {
  torch::Tensor vectors;
  std::vector<int64_t> labels;
  int64_t skipped = 0;
};

Embedded embedded(models::MetricNet& model, const data::Split& split) {
  Embedded result;
  std::vector<torch::Tensor> parts;
  const int64_t size = evaluation_batch(split);
  data::BatchStream stream(split, [&, first = int64_t{0}]() mutable {
    std::vector<data::Draw> draws;
    for (; first < split.size() && static_cast<int64_t>(draws.size()) < size; ++first) {
      draws.push_back({first, static_cast<uint64_t>(first)});
    }
    return draws;
  });
  while (const auto drawn = stream.next()) {
    const data::Batch& batch = drawn->batch;
    result.skipped += batch.skipped;
    if (batch.labels.size(0) == 0) continue;
    parts.push_back(model.embed(batch.images).to(torch::kFloat));
    const torch::Tensor labels = batch.labels.contiguous();
    result.labels.insert(result.labels.end(), labels.data_ptr<int64_t>(),
                         labels.data_ptr<int64_t>() + labels.numel());
  }
  if (!parts.empty()) result.vectors = torch::cat(parts);
  return result;
}

// The place of the nearest image of the same class among all others; kNearest if it is not among the first.
size_t place_of_match(const float* similarities, const std::vector<int64_t>& labels, size_t own) {
  std::vector<size_t> nearest;  // in order
  for (size_t i = 0; i < labels.size(); ++i) {
    if (i == own || !(similarities[i] >= -2.0F)) continue;
    const auto place = std::find_if(nearest.begin(), nearest.end(),
                                    [&](size_t other) { return similarities[i] > similarities[other]; });
    if (nearest.size() == kNearest && place == nearest.end()) continue;
    nearest.insert(place, i);
    if (nearest.size() > kNearest) nearest.pop_back();
  }
  const auto match = std::find_if(nearest.begin(), nearest.end(),
                                  [&](size_t other) { return labels[other] == labels[own]; });
  return match == nearest.end() ? kNearest : static_cast<size_t>(match - nearest.begin());
}

}  // namespace

Recall recall_of(models::MetricNet& model, const data::Split& split) {
  const torch::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const Embedded images = embedded(model, split);
  Recall recall;
  recall.skipped = images.skipped;
  recall.images = static_cast<int64_t>(images.labels.size());
  if (recall.images == 0) return recall;
  int64_t first = 0, among = 0;
  for (int64_t row = 0; row < recall.images; row += kRows) {
    const int64_t rows = std::min(kRows, recall.images - row);
    const torch::Tensor similarities =
        images.vectors.narrow(0, row, rows).mm(images.vectors.t()).contiguous();
    for (int64_t i = 0; i < rows; ++i) {
      const size_t place = place_of_match(similarities.data_ptr<float>() + i * recall.images, images.labels,
                                          static_cast<size_t>(row + i));
      first += place == 0 ? 1 : 0;
      among += place < kNearest ? 1 : 0;
    }
  }
  const auto percent = [&](int64_t count) {
    return 100.0 * static_cast<double>(count) / static_cast<double>(recall.images);
  };
  recall.at_1 = percent(first);
  recall.at_5 = percent(among);
  return recall;
}

}  // namespace renorm::train
