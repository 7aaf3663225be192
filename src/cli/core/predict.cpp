// renorm predict: the likeliest classes of people's own pictures.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "cli/core/commands.h"
#include "cli/core/picture_input.h"
#include "export/ready_model.h"

namespace renorm::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBatch = 32;

struct Guess {
  int64_t label;
  double probability;
};

struct Prediction {
  std::string file;
  std::vector<Guess> guesses;  // the likeliest first
  std::string error;           // why there are none
  bool missing = false;        // there is no such file
};

// Tells of bad pictures in one line each; the last one becomes the error with which the command ends.
class Complaints {
 public:
  void add(const Prediction& prediction) {
    if (!last_.empty()) {
      std::fflush(stdout);
      std::fputs(fmt::format("renorm: {}\n", last_).c_str(), stderr);
    }
    last_ = prediction.error;
    all_missing_ = all_missing_ && prediction.missing;
  }
  void end() const {
    if (last_.empty()) return;
    if (all_missing_) throw MissingInputError(last_);
    throw DataError(last_);
  }

 private:
  std::string last_;
  bool all_missing_ = true;
};

// Fills in the errors. Images of those that have one are left as they are.
torch::Tensor load(const PictureInput& input, const train::ModelCard::Input& shape,
                   std::vector<Prediction>* batch) {
  const auto count = static_cast<int64_t>(batch->size());
  torch::Tensor images = torch::zeros({count, shape.channels, shape.height, shape.width});
  float* values = images.data_ptr<float>();
  at::parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      Prediction& prediction = (*batch)[static_cast<size_t>(i)];
      try {
        input.read(prediction.file, values + i * input.size());
      } catch (const MissingInputError& error) {
        prediction.error = error.what();
        prediction.missing = true;
      } catch (const DataError& error) {
        prediction.error = error.what();
      } catch (const IoError& error) {
        prediction.error = error.what();
      }
    }
  });
  return images;
}

void guess(const torch::Tensor& logits, int64_t top, Prediction* prediction) {
  if (!logits.isfinite().all().item<bool>()) {
    prediction->error =
        fmt::format("'{}': the model gives values that are not finite", printable(prediction->file));
    return;
  }
  const auto [values, labels] = logits.to(torch::kDouble).softmax(0).topk(std::min(top, logits.size(0)));
  for (int64_t i = 0; i < values.size(0); ++i) {
    prediction->guesses.push_back({labels[i].item<int64_t>(), values[i].item<double>()});
  }
}

std::vector<Prediction> predict(train::ReadyModel& model, const PictureInput& input,
                                const std::vector<std::string>& files, int64_t top) {
  std::vector<Prediction> batch;
  for (const std::string& file : files) {
    batch.emplace_back();
    batch.back().file = file;
  }
  const torch::Tensor images = load(input, model.card.input, &batch);
  std::vector<int64_t> good;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].error.empty()) good.push_back(static_cast<int64_t>(i));
  }
  if (good.empty()) return batch;
  const torch::Tensor logits = model.logits(images.index_select(0, torch::tensor(good)));
  for (size_t i = 0; i < good.size(); ++i) {
    guess(logits[static_cast<int64_t>(i)], top, &batch[static_cast<size_t>(good[i])]);
  }
  return batch;
}

void print(const Prediction& prediction, const std::vector<std::string>& classes) {
  if (!prediction.error.empty()) return;
  fmt::print("{}\n", printable(prediction.file));
  for (const Guess& guess : prediction.guesses) {
    fmt::print("  {:6.2f} %  {}\n", 100.0 * guess.probability,
               printable(classes[static_cast<size_t>(guess.label)]));
  }
}

Json to_json(const Prediction& prediction, const std::vector<std::string>& classes) {
  if (!prediction.error.empty()) return {{"file", prediction.file}, {"error", prediction.error}};
  Json guesses = Json::array();
  for (const Guess& guess : prediction.guesses) {
    guesses.push_back({{"class", classes[static_cast<size_t>(guess.label)]},
                       {"index", guess.label},
                       {"probability", guess.probability}});
  }
  return {{"file", prediction.file}, {"predictions", guesses}};
}

void print_json(const PredictOptions& options, const train::ModelCard& card, Json images) {
  const Json json = {{"file", options.model},
                     {"model", card.model},
                     {"weights", card.weights},
                     {"step", card.step},
                     {"images", std::move(images)}};
  // Names and paths may be any bytes.
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

void run_predict(const PredictOptions& options) {
  const torch::NoGradGuard no_grad;
  train::ReadyModel model = train::open_model(options.model, options.checkpoint, options.raw);
  const int threads = options.threads > 0 ? options.threads : model.threads;
  if (threads > 0) at::set_num_threads(threads);
  const PictureInput input(model.card.input);
  Complaints complaints;
  Json images = Json::array();
  for (size_t first = 0; first < options.images.size(); first += kBatch) {
    const size_t last = std::min(options.images.size(), first + kBatch);
    const std::vector<std::string> files(options.images.begin() + static_cast<ptrdiff_t>(first),
                                         options.images.begin() + static_cast<ptrdiff_t>(last));
    for (const Prediction& prediction : predict(model, input, files, options.top)) {
      if (options.json) {
        images.push_back(to_json(prediction, model.card.classes));
      } else {
        print(prediction, model.card.classes);
      }
      if (!prediction.error.empty()) complaints.add(prediction);
    }
  }
  if (options.json) print_json(options, model.card, std::move(images));
  complaints.end();
}

}  // namespace renorm::cli
