// Training: model, optimizer, averages, and the step that updates them. Without files.
#pragma once

#include <renorm/nn/model.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "dist/group.h"
#include "models/model.h"
#include "record/metrics.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/gradient_sum.h"
#include "train/learning_rate.h"
#include "train/optimizer.h"
#include "train/pass_stream.h"
#include "train/step_result.h"
#include "train/weight_average.h"

namespace renorm::train {

// With a group, its processes share each step: each takes its part of the workers, and all end with the same
// weights and averages. All of them call the same functions in the same order. Only step(), clips(),
// evaluate_test() and check_agreement() communicate.
class Trainer {
 public:
  // `config` is resolved. Throws UsageError, DataError.
  explicit Trainer(Config config, data::Dataset dataset, dist::Group* group = nullptr);
  // The same with other norms, for comparisons.
  Trainer(Config config, data::Dataset dataset, const models::MakeNorm& make_norm,
          dist::Group* group = nullptr);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Performs the next step. Throws NonFiniteError with step, layer and tensor; then weights and averages are
  // unchanged. An error in one process is one of all, see dist::Group::together. `stop` is passed on to the
  // result of every process.
  StepResult step(bool stop = false);
  int64_t steps_done() const { return steps_done_; }
  double epochs_done() const { return stream_.epochs(steps_done_); }

  // Clipping in the last step, one entry per Batch Renorm layer.
  std::vector<record::LayerClips> clips() const;

  const Config& config() const { return config_; }
  const data::Dataset& dataset() const { return dataset_; }
  models::Classifier& model() { return *model_; }
  const std::shared_ptr<models::Classifier>& shared_model() const { return model_; }
  WeightAverage* average() { return average_.get(); }  // null if the run has none
  int64_t parameter_count() const;                     // number of trained values
  int64_t norm_layer_count() const { return static_cast<int64_t>(layers_.size()); }
  int processes() const { return group_ == nullptr ? 1 : group_->size(); }
  int64_t pass() const { return plan_.pass; }  // examples per pass through the model

  // Throws InternalError unless all processes have the same weights, averages and state of the optimizer; it
  // names those that differ from most.
  void check_agreement();

  // On the test split, with averaged and with raw weights (the same if the run has no average). Embeddings
  // are evaluated by recall.
  record::EvaluationRecord evaluate_test();

  // Before the first step: loads the weights of a file, see models::load_weights. Returns the names of the
  // parameters that keep their random values.
  std::vector<std::string> start_from(const std::map<std::string, torch::Tensor>& tensors,
                                      const std::string& file);

  // All that determines the next step besides config and step: files of a checkpoint by name.
  std::map<std::string, std::string> encode();
  // `folder` starts the messages. Throws DataError; the trainer must then not be used.
  void restore(const std::map<std::string, std::string>& files, int64_t steps_done,
               const std::string& folder);

 private:
  // The phases of a step.
  void begin_step(StepResult* result);
  void compute_gradients(StepResult* result);
  void update(StepResult* result);
  // All passes of this process. The results are its part of the step's.
  void run_passes(StepResult* result);
  int64_t run_pass(StepResult* result, bool is_last);  // returns the number of examples
  // Makes the results, the gradients and the statistics those of all processes. `error` is this process's, or
  // null.
  void sum_over_processes(const std::exception_ptr& error, StepResult* result);
  data::DrawnBatch load_pass();
  void synchronize_layers();
  void check_gradients(double norm) const;
  // LibTorch's norms move their averages in each pass. A step of several passes begins with a copy of them.
  void keep_buffers(int64_t examples);
  struct TestFigures {
    int64_t images;
    int64_t skipped;
    record::Score score;
    std::optional<double> recall_at_5;  // of embeddings
  };
  TestFigures measure_test();  // with the weights of the model
  // Discards the passes of an unfinished step.
  void abandon_step();

  Config config_;
  data::Dataset dataset_;
  dist::Group* group_;  // null: one process
  PassPlan plan_;
  PassStream stream_;
  std::shared_ptr<models::Classifier> model_;
  std::vector<torch::Tensor> buffers_before_;  // of keep_buffers()
  std::vector<NamedLayer> layers_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<GradientSum> gradient_sum_;  // null: one process
  std::unique_ptr<StepSum> step_sum_;          // null: one process
  bool error_is_shared_ = false;               // all processes have the error of the step
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<WeightAverage> average_;
  LearningRate learning_rate_;
  int64_t steps_done_ = 0;
};

}  // namespace renorm::train
