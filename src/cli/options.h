// What the flags of each command say, as plain values.
#pragma once

#include <string>
#include <vector>

#include "bench/step_options.h"
#include "train/config.h"

namespace renorm::cli {

struct BenchLayerOptions {
  bool quick = false;
  bool fresh_memory = false;
  int threads = 1;
  std::string shapes;
  std::string json;
};

struct TrainOptions {
  train::Config config;            // defaults, then the config file, then flags
  std::vector<std::string> given;  // names of settings given by flag or file
  std::string out;
  bool resume = false;
  bool quiet = false;
};

struct EvalOptions {
  std::string run;                  // DIR
  std::string checkpoint = "last";  // last, best, step-N
  std::string split = "test";       // train, test
  std::string data;                 // another data spec with the same classes; "" = the run's
  double val_fraction = 0.0;        // of that data, if it is a folder
  bool batch_statistics = false;
  std::string sampler;  // with batch_statistics; "" = iid minibatches of the run's size
  uint64_t seed = 1;
  int threads = 0;  // 0: the run's
  bool per_class = false;
  std::string json;  // file, "-" = standard output
};

struct DataOptions {
  std::string spec;
  bool check = false;
  std::string preview;  // FILE.png
  int64_t preview_classes = 10;
  int64_t preview_images = 10;
  double val_fraction = 0.0;  // of people's own images, as in training
  int64_t image_size = 0;     // 0: the default of data::TransformOptions
  int threads = 0;
};

struct ModelsOptions {
  std::string model;  // "" = all
  bool layers = false;
  int64_t size = 0;  // 0: the model's own example
  int64_t channels = 0;
  int64_t classes = 0;
};

struct DoctorOptions {
  bool json = false;
};

struct ExportOptions {
  std::string run;                  // DIR
  std::string to;                   // FILE.safetensors or FILE.pt
  std::string checkpoint = "last";  // last, best, step-N
  bool fold = false;
  bool raw = false;
  bool force = false;
};

struct PredictOptions {
  std::string model;  // FILE, or the folder of a run
  std::vector<std::string> images;
  std::string checkpoint;  // of a run; "" = last
  bool raw = false;        // of a run
  int64_t top = 5;
  int threads = 0;  // 0: all CPUs; of a run, as many as it had
  bool json = false;
};

}  // namespace renorm::cli
