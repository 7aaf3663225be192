// renorm predict: the most probable classes of images.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/progress.h"
#include "data/description.h"
#include "data/image_decode.h"
#include "data/image_transform.h"
#include "export/ready_model.h"
#include "train/threads.h"

namespace renorm::cli {
namespace {

struct PredictOptions {
  std::string model;  // FILE, or the folder of a run
  std::vector<std::string> images;
  exporting::OpenModelOptions open;
  int64_t top = 5;
  int threads = 0;  // 0: all CPUs, or the number of the run
  bool json = false;
};

constexpr const char* kExamples =
    R"(Images are turned upright, resized, cropped to the centre and standardized like the model's test images, and
converted to grey for models of grey images. Unreadable images are reported and the others are predicted. The
exit code is then 65, or 66 if all unreadable images are missing files.

A .safetensors file holds numbers only. A .pt file is a program with your rights: it is not run without
--trust-code.

Examples:
  renorm predict first.safetensors cat.jpg dog.png
  renorm predict runs/first --checkpoint best --top 1 --json photos/*.jpg
)";

using Json = nlohmann::ordered_json;
using Input = exporting::ModelCard::Input;

constexpr int64_t kMaxBatch = 32;
constexpr int64_t kMaxBatchValues = int64_t{1} << 24;  // limits the number of large images
constexpr int64_t kColours = 3;

// The centre of the image in the shape of an input that is not square.
data::Image centre(const std::string& bytes, const std::string& file, const Input& input) {
  const data::DecodedImage decoded = data::decode_image(bytes, file, {});
  const data::Image& image = decoded.image;
  const auto width = static_cast<double>(image.width);
  const auto height = static_cast<double>(image.height);
  const double ratio = static_cast<double>(input.width) / static_cast<double>(input.height);
  const double box_width = input.centre * std::min(width, height * ratio);
  const double box_height = box_width / ratio;
  const data::Box box{(width - box_width) / 2, (height - box_height) / 2, box_width, box_height};
  return data::resize(image, box, {input.width, input.height});
}

data::Image visible_part(const std::string& bytes, const std::string& file, const Input& input) {
  if (input.width != input.height) return centre(bytes, file, input);
  data::TransformOptions options;
  options.size = input.height;
  options.centre = input.centre;
  return data::evaluation_image(bytes, file, options);
}

// Luminance by the weights of ITU-R BT.601.
uint8_t grey(const uint8_t* pixel) {
  return static_cast<uint8_t>((299 * pixel[0] + 587 * pixel[1] + 114 * pixel[2] + 500) / 1000);
}

// Reads image files as input of a model.
class ImageInput {
 public:
  // Throws UsageError unless the model takes one channel (grey) or three.
  explicit ImageInput(const Input& input) : input_(input) {
    if (input.channels != 1 && input.channels != kColours) {
      throw UsageError(
          fmt::format("images have 1 or 3 channels, but this model takes {} channels", input.channels));
    }
    data::Description description;
    description.mean = input.mean;
    description.std = input.std;
    tables_ = data::standardizing_tables(description);
  }

  // Fills `out` [channels, height, width] from a JPEG or PNG file: upright, its centre, standardized. Throws
  // MissingInputError, DataError, IoError.
  void read(const std::string& file, float* out) const {
    const data::Image image = visible_part(data::read_image_file(file), file, input_);
    const int64_t area = image.width * image.height;
    if (input_.channels == kColours) {
      data::standardize(image.pixels.data(), area, 1, kColours, tables_, out);
      return;
    }
    std::vector<uint8_t> greys(static_cast<size_t>(area));
    for (size_t p = 0; p < greys.size(); ++p) greys[p] = grey(image.pixels.data() + p * kColours);
    data::standardize(greys.data(), area, area, 1, tables_, out);
  }

  int64_t size() const { return input_.channels * input_.height * input_.width; }  // values per image

 private:
  Input input_;
  std::vector<data::ByteTable> tables_;
};

struct Guess {
  int64_t label;
  double probability;
};

struct Prediction {
  std::string file;
  std::vector<Guess> guesses;  // most probable first
  std::string error;           // why there are none
  bool missing = false;        // the file does not exist
};

// Reports bad images in one line each. The last one becomes the error of the command.
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

// Fills in the errors. Images with an error stay zero.
torch::Tensor load(const ImageInput& input, const Input& shape, std::vector<Prediction>* batch) {
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
    prediction->error = fmt::format("'{}': the model's output is not finite", printable(prediction->file));
    return;
  }
  const auto [values, labels] = logits.to(torch::kDouble).softmax(0).topk(std::min(top, logits.size(0)));
  for (int64_t i = 0; i < values.size(0); ++i) {
    prediction->guesses.push_back({labels[i].item<int64_t>(), values[i].item<double>()});
  }
}

std::vector<Prediction> predict(exporting::ReadyModel& model, const ImageInput& input,
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

void print_json(const PredictOptions& options, const exporting::ModelCard& card, Json images) {
  const Json json = {{"file", options.model},
                     {"model", card.model},
                     {"weights", card.weights},
                     {"step", card.step},
                     {"images", std::move(images)}};
  // Names and paths may contain any bytes.
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

void check(const PredictOptions& options) {
  if (options.model.empty()) {
    throw UsageError("'renorm predict' needs FILE, an exported model or the folder of a run");
  }
  if (options.images.empty()) {
    throw UsageError("'renorm predict' needs IMAGE..., one JPEG or PNG file or more");
  }
  if (options.top < 1) throw UsageError(fmt::format("--top must be at least 1, got {}", options.top));
  check_threads(options.threads);
}

// `run` is that of the model, null if it comes from a file.
void prepare(train::OpenedRun* run, int threads) {
  if (threads == 0 && run != nullptr) threads = train::at_most_cpus(run->state.config.threads);
  train::use_threads(threads > 0 ? threads : at::get_num_threads());
  if (run == nullptr) return;
  train::choose_dtype(run);
  for (const std::string& note : run->notes) Progress().print("note: " + note);
}

void run(const PredictOptions& options) {
  check(options);
  const torch::NoGradGuard no_grad;
  exporting::ReadyModel model = exporting::open_model(options.model, options.open);
  prepare(model.run.get(), options.threads);
  const ImageInput input(model.card.input);
  Complaints complaints;
  Json images = Json::array();
  const auto batch = static_cast<size_t>(std::clamp<int64_t>(kMaxBatchValues / input.size(), 1, kMaxBatch));
  for (size_t first = 0; first < options.images.size(); first += batch) {
    const size_t last = std::min(options.images.size(), first + batch);
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

}  // namespace

Command add_predict(CLI::App& program) {
  CLI::App* app = program.add_subcommand("predict", "Classify images with a trained model");
  const auto options = std::make_shared<PredictOptions>();
  app->add_option("FILE", options->model,
                  "model of 'renorm export' (.safetensors or .pt), or the folder of a run");
  app->add_option("IMAGE...", options->images, "JPEG or PNG files");
  app->add_option("--top", options->top, "classes per image, most probable first")
      ->type_name("N")
      ->capture_default_str();
  app->add_flag("--json", options->json, "print one JSON document");
  app->add_option("--threads", options->threads, "threads; 0: all CPUs, or the run's number")->type_name("N");
  app->add_option("--checkpoint", options->open.checkpoint,
                  "of a run: last, best or step-N; without it, last")
      ->type_name("NAME");
  app->add_flag("--raw", options->open.raw, "of a run: raw instead of averaged weights");
  app->add_flag("--trust-code", options->open.trust_code,
                "run the program in a .pt file: only for files of people you trust");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
