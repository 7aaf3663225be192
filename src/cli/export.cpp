// renorm export: writes the model of a run to one file and checks it against the run.
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "bench/timing.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "export/model_card.h"
#include "export/ready_model.h"
#include "train/threads.h"

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
    R"(The ending of FILE chooses the format. Both contain the classes and the preprocessing:
  .safetensors  the weights by name, for 'renorm predict' and other programs; the format to share, because it
                holds no code
  .pt           TorchScript, which LibTorch and PyTorch open without renorm: model = torch.jit.load("FILE.pt");
                a program, which others run only if they trust you
The input is float images [n, channels, height, width], (byte / 255 - mean) / std; the output is logits. The file
is read back and compared with the run's own model on random images.

Examples:
  renorm export runs/first --to first.safetensors
  renorm export runs/first --to first.pt --fold --checkpoint best
)";

constexpr uint64_t kSeed = 1702;
constexpr int64_t kCheckedImages = 5;  // differs from the traced batch size
constexpr double kMaxDifference = 1e-5;
constexpr int64_t kTimedImages = 32;
constexpr int64_t kTimedPixels = int64_t{1} << 17;  // limits the number of large images
constexpr bench::Effort kEffort{/*seconds=*/2.0, /*min_rounds=*/3, /*max_rounds=*/200};

// Reproducible, with the distribution of standardized images.
torch::Tensor random_images(const exporting::ModelCard::Input& input, int64_t count) {
  const at::Generator generator = at::detail::createCPUGenerator(kSeed);
  return at::randn({count, input.channels, input.height, input.width}, generator, torch::kFloat);
}

// The largest difference of the logits, relative to the largest logit. Throws DataError if the run's logits
// are not finite.
double difference(const train::OpenedRun& run, const exporting::ReadyModel& exported,
                  const std::string& folder) {
  const torch::Tensor images = random_images(exported.card.input, kCheckedImages);
  const torch::Tensor expected = run.model->forward(images);
  if (!expected.isfinite().all().item<bool>()) {
    throw DataError(
        fmt::format("{}: the output of the model of step {} is not finite; choose another "
                    "--checkpoint",
                    printable(folder), run.state.step));
  }
  const double largest = expected.abs().max().item<double>();
  const double off = (exported.logits(images) - expected).abs().max().item<double>();
  return off == 0.0 ? 0.0 : off / largest;
}

void check_difference(double found) {
  if (found <= kMaxDifference) return;
  throw std::runtime_error(
      fmt::format("the exported model differs from the run's by {:.1e} of the largest logit, "
                  "more than the {:.0e} allowed; nothing was written",
                  found, kMaxDifference));
}

std::string check_text(double found) {
  if (found == 0.0) return "read back, its output equals that of the run's model";
  return fmt::format(
      "read back, its output differs from that of the run's model by {:.1e} of the largest logit", found);
}

std::string size_text(size_t bytes) {
  return bytes < 1000000 ? fmt::format("{:.0f} kB", static_cast<double>(bytes) / 1e3)
                         : fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// The run's own model and the one that was read back.
std::string speed_text(const train::OpenedRun& run, const exporting::ReadyModel& exported) {
  const exporting::ModelCard::Input& input = exported.card.input;
  const int64_t pixels = input.height * input.width;
  const int64_t count = std::clamp<int64_t>(kTimedPixels / pixels, 1, kTimedImages);
  const torch::Tensor images = random_images(input, count);
  const auto figures = bench::measure(
      {{"plain", [&] { run.model->forward(images); }}, {"folded", [&] { exported.logits(images); }}}, kEffort,
      at::get_num_threads());
  const double plain = 1e3 * figures.at("plain").median;
  const double folded = 1e3 * figures.at("folded").median;
  return fmt::format("{:.2f} ms per batch of {} with norms, {:.2f} ms folded: {:.2f} of the time", plain,
                     count, folded, folded / plain);
}

void print_model(const train::OpenedRun& run, const exporting::ReadyModel& exported) {
  const exporting::ModelCard& card = exported.card;
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

void print_use(const std::string& file, exporting::ModelFormat format) {
  const bool is_code = format == exporting::ModelFormat::kTorchScript;
  print_line("use", fmt::format("renorm predict {} IMAGE...{}", printable(shell_quoted(file)),
                                is_code ? " --trust-code" : ""));
  if (is_code)
    print_line("share", "this file is a program; export to .safetensors for people you do not know");
}

void check(const ExportOptions& options) {
  if (options.run.empty()) throw UsageError("'renorm export' needs DIR, the folder of a run");
  if (options.to.empty()) throw UsageError("'renorm export' needs --to FILE.safetensors or --to FILE.pt");
  exporting::model_format(options.to);
  check_not_of_run(options.to, "--to");
  std::error_code error;
  if (!options.force && std::filesystem::exists(options.to, error)) {
    throw UsageError(
        fmt::format("'{}' exists; choose another --to, or replace it with --force", printable(options.to)));
  }
  check_writable(options.to);
}

void run(const ExportOptions& options) {
  check(options);
  const torch::NoGradGuard no_grad;
  Progress progress;
  progress.show("exporting");
  const exporting::ModelFormat format = exporting::model_format(options.to);
  train::OpenedRun run = train::open_run(options.run, options.checkpoint);
  for (const std::string& note : run.notes) progress.print("note: " + note);
  train::use_threads(train::at_most_cpus(run.state.config.threads));
  run.model->computation = {torch::kFloat, models::model_kind(run.state.config.model).memory_format};
  std::optional<train::WeightAverage::Applied> applied;
  if (run.average != nullptr && !options.raw) applied.emplace(*run.average);
  const exporting::ModelCard card =
      exporting::card_of(run, applied ? "averaged" : "raw", options.fold, RENORM_VERSION);
  const std::string bytes = exporting::encode_model(*run.model, card, format);
  const exporting::ReadyModel exported = exporting::decode_model(bytes, options.to, format);
  const double found = difference(run, exported, options.run);
  check_difference(found);
  const std::string speed = options.fold ? speed_text(run, exported) : "";
  write_atomically(options.to, bytes);
  progress.clear();
  print_line("file", fmt::format("{}, {}", printable(options.to), size_text(bytes.size())));
  print_model(run, exported);
  print_line("check", check_text(found));
  if (!speed.empty()) print_line("speed", speed);
  print_use(options.to, format);
}

}  // namespace

Command add_export(CLI::App& program) {
  CLI::App* app = program.add_subcommand("export", "Write the model of a run to one file for use elsewhere");
  const auto options = std::make_shared<ExportOptions>();
  app->add_option("DIR", options->run, "folder of a run, the --out of 'renorm train'");
  app->add_option("--to", options->to, "output file, ending in .safetensors or .pt")->type_name("FILE");
  app->add_flag("--fold", options->fold,
                "fold the norms into the convolutions: the same outputs in less time");
  app->add_option("--checkpoint", options->checkpoint, "last, best or step-N")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_flag("--raw", options->raw, "raw instead of averaged weights");
  app->add_flag("--force", options->force, "replace an existing file");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
