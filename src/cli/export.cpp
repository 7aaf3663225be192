// renorm export: the model of a run in one file, checked against the run.
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "bench/timing.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "export/model_card.h"
#include "export/ready_model.h"

namespace renorm::cli {
namespace {

struct ExportOptions {
  std::string run;                  // DIR
  std::string to;                   // FILE.safetensors or FILE.pt
  std::string checkpoint = "last";  // last, best, step-N
  bool fold = false;
  bool raw = false;
  bool force = false;
};

constexpr const char* kExamples =
    R"(FILE says by its end what is written, both with classes and preprocessing inside:
  .safetensors  the weights by name, for 'renorm predict' and other programs
  .pt           TorchScript for LibTorch and PyTorch, which need no renorm to
                open it: model = torch.jit.load("FILE.pt")
Its input are float images [n, channels, height, width], (byte / 255 - mean) / std; its output are logits. What
was written is read back and compared with the run's own model on random images.

Examples:
  renorm export runs/first --to first.safetensors
  renorm export runs/first --to first.pt --fold --checkpoint best
)";

constexpr uint64_t kSeed = 1702;
constexpr int64_t kCheckedImages = 5;  // other than the number that is traced
constexpr double kMostDifference = 1e-5;
constexpr int64_t kTimedImages = 32;
constexpr int64_t kTimedPixels = int64_t{1} << 17;  // of large images fewer are timed
constexpr bench::Effort kEffort{/*seconds=*/2.0, /*least_rounds=*/3, /*most_rounds=*/200};

// The same images every time, as standardised ones are spread.
torch::Tensor random_images(const train::ModelCard::Input& input, int64_t count) {
  const at::Generator generator = at::detail::createCPUGenerator(kSeed);
  return at::randn({count, input.channels, input.height, input.width}, generator, torch::kFloat);
}

// The greatest difference of the logits in units of the greatest logit. Throws DataError if the run's are not
// finite.
double difference(const train::OpenedRun& run, const train::ReadyModel& exported, const std::string& folder) {
  const torch::Tensor images = random_images(exported.card.input, kCheckedImages);
  const torch::Tensor expected = run.model->forward(images);
  if (!expected.isfinite().all().item<bool>()) {
    throw DataError(
        fmt::format("{}: the model of step {} gives values that are not finite; choose another "
                    "--checkpoint",
                    printable(folder), run.state.step));
  }
  const double greatest = expected.abs().max().item<double>();
  const double off = (exported.logits(images) - expected).abs().max().item<double>();
  return off == 0.0 ? 0.0 : off / greatest;
}

void check_difference(double found) {
  if (found <= kMostDifference) return;
  throw InternalError(
      fmt::format("the exported model differs from the run's by {:.1e} of the greatest logit, "
                  "more than the {:.0e} allowed; nothing was written",
                  found, kMostDifference));
}

std::string check_text(double found) {
  if (found == 0.0) return "read back, it gives exactly what the run's model gives";
  return fmt::format("read back, it differs from the run's model by {:.1e} of the greatest logit", found);
}

std::string size_text(size_t bytes) {
  return bytes < 1000000 ? fmt::format("{:.0f} kB", static_cast<double>(bytes) / 1e3)
                         : fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// The run's own model against what was read back from the file.
std::string speed_text(const train::OpenedRun& run, const train::ReadyModel& exported) {
  const train::ModelCard::Input& input = exported.card.input;
  const int64_t pixels = input.height * input.width;
  const int64_t count = std::clamp<int64_t>(kTimedPixels / pixels, 1, kTimedImages);
  const torch::Tensor images = random_images(input, count);
  const auto figures = bench::measure(
      {{"plain", [&] { run.model->forward(images); }}, {"folded", [&] { exported.logits(images); }}}, kEffort,
      at::get_num_threads());
  const double plain = 1e3 * figures.at("plain").median;
  const double folded = 1e3 * figures.at("folded").median;
  return fmt::format("{:.2f} ms a batch of {} with norms, {:.2f} ms folded: {:.2f} of the time", plain, count,
                     folded, folded / plain);
}

void print_model(const train::OpenedRun& run, const train::ReadyModel& exported) {
  const train::ModelCard& card = exported.card;
  print_line("model", printable(card.model) + (card.folded ? ", norms folded into the convolutions" : ""));
  print_line("weights", fmt::format("{}, of step {}", card.weights, card.step));
  print_line("classes", grouped(static_cast<int64_t>(card.classes.size())));
  print_line("parameters", grouped(exported.parameters));
  print_line("input", fmt::format("float [n, {}, {}, {}], (byte / 255 - mean) / std", card.input.channels,
                                  card.input.height, card.input.width));
  if (run.state.config.dtype != train::Dtype::kFloat) {
    print_line("computes", fmt::format("in float; the run computed in {}", name_of(run.state.config.dtype)));
  }
}

void check(const ExportOptions& options) {
  if (options.run.empty()) throw UsageError("'renorm export' needs DIR, the folder of a run");
  if (options.to.empty()) throw UsageError("'renorm export' needs --to FILE.safetensors or --to FILE.pt");
  train::model_format(options.to);
  std::error_code error;
  if (!options.force && std::filesystem::exists(options.to, error)) {
    throw UsageError(fmt::format("'{}' exists already; choose another --to, or replace it with --force",
                                 printable(options.to)));
  }
  check_writable(options.to);
}

void run(const ExportOptions& options) {
  check(options);
  const torch::NoGradGuard no_grad;
  Progress progress;
  progress.show("exporting");
  const train::ModelFormat format = train::model_format(options.to);
  train::OpenedRun run = train::open_run(options.run, options.checkpoint);
  at::set_num_threads(run.state.config.threads);
  run.model->computation = {torch::kFloat, models::model_kind(run.state.config.model).memory_format};
  std::optional<train::WeightAverage::Applied> applied;
  if (run.average != nullptr && !options.raw) applied.emplace(*run.average);
  const train::ModelCard card =
      train::card_of(run, applied ? "averaged" : "raw", options.fold, RENORM_VERSION);
  const std::string bytes = train::encode_model(*run.model, card, format);
  const train::ReadyModel exported = train::decode_model(bytes, options.to, format);
  const double found = difference(run, exported, options.run);
  check_difference(found);
  const std::string speed = options.fold ? speed_text(run, exported) : "";
  write_atomically(options.to, bytes);
  progress.clear();
  print_line("file", fmt::format("{}, {}", printable(options.to), size_text(bytes.size())));
  print_model(run, exported);
  print_line("check", check_text(found));
  if (!speed.empty()) print_line("speed", speed);
  print_line("use", fmt::format("renorm predict {} IMAGE...", printable(shell_quoted(options.to))));
}

}  // namespace

Command add_export(CLI::App& program) {
  CLI::App* app = program.add_subcommand("export", "Write the model of a run to one file for use elsewhere");
  const auto options = std::make_shared<ExportOptions>();
  app->add_option("DIR", options->run, "folder of a run, the --out of 'renorm train'");
  app->add_option("--to", options->to, "the file, which ends in .safetensors or .pt")->type_name("FILE");
  app->add_flag("--fold", options->fold,
                "fold the norms into the convolutions: the same outputs, in less time");
  app->add_option("--checkpoint", options->checkpoint, "last, best or step-N")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_flag("--raw", options->raw, "the weights themselves instead of their average");
  app->add_flag("--force", options->force, "replace a file that is there");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
