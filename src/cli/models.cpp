// renorm models: lists models with layers and parameters.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/commands.h"
#include "models/blocks.h"
#include "models/lstm.h"
#include "models/model.h"
#include "train/threads.h"

namespace renorm::cli {
namespace {

struct ModelsOptions {
  std::string model;  // "" = all
  bool layers = false;
  int64_t size = 0;  // 0: the model's own example
  int64_t channels = 0;
  int64_t classes = 0;
};

constexpr const char* kExamples = R"(Examples:
  renorm models
  renorm models convnet:16/2,32/2,64 --size 28 --classes 10 --layers)";

// A norm that computes nothing and records its uses and the shape of its input. One image is then enough in
// training mode, which includes an auxiliary head.
class WatchedNorm : public BatchRenorm2dImpl {
 public:
  using BatchRenorm2dImpl::BatchRenorm2dImpl;

  torch::Tensor forward(const torch::Tensor& input) override {
    shape = input.sizes().vec();
    ++uses;
    return input;
  }

  std::vector<int64_t> shape;
  int64_t uses = 0;
};

struct Layer {
  std::string name;
  std::string what;
  std::string output;
  int64_t parameters = 0;
  int64_t multiply_adds = 0;  // for one image
  bool normalized = false;
};

struct Inspected {
  std::string title;
  std::string input;
  std::vector<Layer> layers;
  int64_t normalized = 0;
  int64_t parameters = 0;
  int64_t multiply_adds = 0;
};

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

Layer describe(const std::string& name, models::ConvNormImpl& layer) {
  const auto& options = layer.conv->options;
  const WatchedNorm& norm = layer.norm.get<WatchedNorm>();
  const std::vector<int64_t>& shape = norm.shape;
  const int64_t stride = options.stride()->at(0);
  const bool relu = norm.options.activation() == Activation::kRelu;
  Layer result{name, {}, {}, count_parameters(layer), 0, true};
  result.what =
      fmt::format("{}x{} convolution{}, norm{}", options.kernel_size()->at(0), options.kernel_size()->at(1),
                  stride == 1 ? "" : fmt::format("/{}", stride), relu ? ", ReLU" : "");
  result.output = fmt::format("{}x{}x{}", shape.at(1), shape.at(2), shape.at(3));
  result.multiply_adds = layer.conv->weight.numel() * shape.at(2) * shape.at(3);
  return result;
}

Layer describe(const std::string& name, models::StepUnitImpl& layer) {
  int64_t uses = 0;
  for (const torch::nn::AnyModule& norm : layer.norms) uses += norm.get<WatchedNorm>().uses;
  return {name,
          fmt::format("product of {} rows, {}", uses, layer.norms.size() == 1 ? "norm" : "norm per row"),
          std::to_string(layer.weight.size(0)),
          count_parameters(layer),
          layer.weight.numel() * uses,
          true};
}

Layer describe(const std::string& name, torch::nn::LinearImpl& layer) {
  return {name,
          "linear",
          std::to_string(layer.options.out_features()),
          count_parameters(layer),
          layer.weight.numel(),
          false};
}

std::vector<Layer> layers_of(const torch::nn::Module& model) {
  std::vector<Layer> layers;
  for (const auto& module : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    if (auto* conv = module.value()->as<models::ConvNormImpl>())
      layers.push_back(describe(module.key(), *conv));
    if (auto* unit = module.value()->as<models::StepUnitImpl>())
      layers.push_back(describe(module.key(), *unit));
    if (auto* linear = module.value()->as<torch::nn::LinearImpl>()) {
      layers.push_back(describe(module.key(), *linear));
    }
  }
  return layers;
}

models::InputShape input_of(const models::ModelKind& kind, const ModelsOptions& options) {
  models::InputShape input = kind.input;
  if (options.size != 0) input.height = input.width = options.size;
  if (options.channels != 0) input.channels = options.channels;
  if (options.classes != 0) input.classes = options.classes;
  return input;
}

// Builds the model and sends one image through it.
Inspected inspect(const std::string& spec, const models::InputShape& input) {
  const auto watched = [](int64_t channels, Activation activation) {
    const auto options = BatchRenormOptions(channels).scale(false).activation(activation);
    return torch::nn::AnyModule(std::make_shared<WatchedNorm>(options));
  };
  const torch::NoGradGuard no_grad;
  const auto model = models::make_model(spec, input, watched);
  model->forward(torch::zeros({1, input.channels, input.height, input.width}));
  Inspected result{spec,
                   fmt::format("{}x{}x{}", input.channels, input.height, input.width),
                   layers_of(*model),
                   0,
                   count_parameters(*model),
                   0};
  for (const Layer& layer : result.layers) {
    result.normalized += layer.normalized ? 1 : 0;
    result.multiply_adds += layer.multiply_adds;
  }
  return result;
}

void print_layers(const Inspected& model) {
  std::vector<std::vector<std::string>> rows = {{"layer", "what", "output", "parameters", "multiply-adds"}};
  for (const Layer& layer : model.layers) {
    rows.push_back(
        {layer.name, layer.what, layer.output, grouped(layer.parameters), grouped(layer.multiply_adds)});
  }
  rows.push_back({"all", "", "", grouped(model.parameters), grouped(model.multiply_adds)});
  fmt::print("{}", aligned_table(rows, 2));
}

struct Listed {
  models::ModelKind kind;
  int64_t classes;
  Inspected model;
};

// All models that accept the requested input; `unfit` gets the reasons of the others. Throws UsageError if no
// model accepts it.
std::vector<Listed> list_all(const ModelsOptions& options, std::vector<std::string>* unfit) {
  std::vector<Listed> all;
  for (const models::ModelKind& kind : models::model_kinds()) {
    const models::InputShape input = input_of(kind, options);
    try {
      all.push_back({kind, input.classes, inspect(kind.example, input)});
    } catch (const UsageError& error) {
      unfit->emplace_back(error.what());
    }
  }
  if (all.empty()) throw UsageError(unfit->front());
  return all;
}

void print_overview(const std::vector<Listed>& all) {
  std::vector<std::vector<std::string>> sizes = {
      {"model", "layers", "normalized", "parameters", "multiply-adds", "input", "classes"}};
  std::vector<std::vector<std::string>> help = {{"model", "what it is"}};
  for (const Listed& listed : all) {
    const Inspected& model = listed.model;
    sizes.push_back({listed.kind.usage, grouped(static_cast<int64_t>(model.layers.size())),
                     grouped(model.normalized), grouped(model.parameters), grouped(model.multiply_adds),
                     model.input, grouped(listed.classes)});
    help.push_back({listed.kind.usage, listed.kind.help});
  }
  fmt::print("{}\n{}", aligned_table(sizes), aligned_table(help, 2));
}

void print_all(const ModelsOptions& options) {
  std::vector<std::string> unfit;
  const std::vector<Listed> all = list_all(options, &unfit);
  print_overview(all);
  fmt::print(
      "\nLayers are convolutions, products of an LSTM and linear layers; multiply-adds are those of a\n"
      "forward pass of one image. The weights of the norms are fixed at 1; `renorm train --norm-scale`\n"
      "adds one parameter per channel. More about one model:\n"
      "renorm models MODEL [--layers] [--size PIXELS] [--channels N] [--classes N]\n");
  if (!unfit.empty()) fmt::print("\nNot listed:\n{}\n", fmt::join(unfit, "\n"));
  if (!options.layers) return;
  for (const Listed& listed : all) {
    fmt::print("\n{}, input {}\n", listed.model.title, listed.model.input);
    print_layers(listed.model);
  }
}

void print_one(const ModelsOptions& options) {
  const models::ModelKind& kind = models::model_kind(options.model);
  const models::InputShape input = input_of(kind, options);
  const Inspected model = inspect(options.model, input);
  fmt::print("{}\n{}\n\n{}\n", kind.usage, kind.help, kind.details);
  fmt::print("input          {}, {} classes\n", model.input, grouped(input.classes));
  fmt::print("layers         {}, {} of them normalized\n", grouped(static_cast<int64_t>(model.layers.size())),
             grouped(model.normalized));
  fmt::print("parameters     {}\n", grouped(model.parameters));
  fmt::print("multiply-adds  {} for one image forward\n", grouped(model.multiply_adds));
  if (!options.layers) return;
  fmt::print("\n");
  print_layers(model);
}

void run(const ModelsOptions& options) {
  // One image is too little work for several threads.
  train::use_threads(1);
  if (options.model.empty()) {
    print_all(options);
  } else {
    print_one(options);
  }
  std::fflush(stdout);
}

}  // namespace

Command add_models(CLI::App& program) {
  CLI::App* app = program.add_subcommand("models", "List the models with layers and parameters");
  const auto options = std::make_shared<ModelsOptions>();
  app->add_option("MODEL", options->model, "one model, as in 'renorm train --model'")->default_str("all");
  app->add_flag("--layers", options->layers, "also list every layer with its output shape");
  app->add_option("--size", options->size, "height and width of the input; 0: the model's example")
      ->type_name("N");
  app->add_option("--channels", options->channels, "channels of the input; 0: the model's example")
      ->type_name("N");
  app->add_option("--classes", options->classes, "classes; 0: the model's example")->type_name("N");
  app->footer(kExamples);
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
