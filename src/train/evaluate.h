// Loss and accuracy of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"
#include "dist/group.h"
#include "models/model.h"

namespace renorm::train {

struct Evaluation {
  int64_t images = 0;
  int64_t skipped = 0;  // images that could not be read and are not counted
  int64_t correct = 0;
  double loss = 0.0;  // mean cross-entropy
  std::vector<int64_t> class_images;
  std::vector<int64_t> class_correct;

  double accuracy() const {  // percent
    return images == 0 ? 0.0 : 100.0 * static_cast<double>(correct) / static_cast<double>(images);
  }
};

// Images per pass: depends only on their size, so that training and `renorm eval` compute the same bits.
// Fewer for large images, so that memory is bounded.
constexpr int64_t kEvaluationBatch = 250;
constexpr int64_t kEvaluationPixels = 1'600'000;
int64_t evaluation_batch(const data::Split& split);

// Evaluation mode while this object exists; then every module returns to its former mode.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& model);
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& model_;
  bool training_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<bool> modules_training_;
};

// A prediction is the label with the largest logit, the first of equals. Logits that are not finite predict
// no label and make the loss NaN. The model computes in evaluation mode without gradients; afterwards every
// module is in its former mode, also after an exception.

// Logits of images, normalized with moving averages or with the statistics of these images.
enum class Statistics { kAverages, kBatch };
torch::Tensor logits_of(models::Classifier& model, const torch::Tensor& images, Statistics statistics);

// Every example once. With a group, its processes share the batches, and all get the result of one process.
Evaluation evaluate(models::Classifier& model, const data::Split& split, int64_t classes,
                    dist::Group* group = nullptr);

// Images per minibatch: as many as the sampler fixes (labels, blocks), otherwise `minibatch`, but at most all
// of the split.
int64_t statistics_minibatch(const data::Split& split, const data::SamplerSpec& sampler, int64_t minibatch);

// The paper's training-mode evaluation: each minibatch of the sampler is normalized with its own statistics,
// and no average changes. As many minibatches of statistics_minibatch() as cover the split once, rounded up.
// Throws as data::Sampler does.
Evaluation evaluate_with_batch_statistics(models::Classifier& model, const data::Split& split,
                                          int64_t classes, const data::SamplerSpec& sampler,
                                          int64_t minibatch, uint64_t seed);

}  // namespace renorm::train
