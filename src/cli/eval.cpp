// renorm eval: accuracy and loss of a run, with raw and averaged weights.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/decoy_probe.h"
#include "cli/eval_split.h"
#include "cli/help.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/tensor_memory.h"
#include "models/metric_net.h"
#include "record/eval_result.h"
#include "train/build_model.h"
#include "train/evaluate.h"
#include "train/opened_run.h"
#include "train/recall.h"
#include "train/run.h"
#include "train/threads.h"

namespace renorm::cli {
namespace {

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
  bool probe_decoys = false;
  int64_t extra_rows = 0;  // appended to every image
  std::string json;        // file, "-" = standard output
  bool force = false;
};

constexpr int64_t kMaxExtraRows = 4096;

constexpr const char* kExamples = R"(Examples:
  renorm eval runs/pairs --checkpoint best --per-class
  renorm eval runs/pairs --batch-statistics --sampler labels:25x2
  renorm eval runs/pairs --probe-decoys
)";

void check(const EvalOptions& options) {
  if (options.run.empty()) throw UsageError("'renorm eval' needs DIR, the folder of a run");
  if (options.split != "test" && options.split != "train") {
    throw UsageError("--split must be test or train, got '" + options.split + "'");
  }
  if (!options.sampler.empty() && !options.batch_statistics) {
    throw UsageError("--sampler has no effect without --batch-statistics");
  }
  check_threads(options.threads);
  check_count("--extra-rows", options.extra_rows, 0, kMaxExtraRows);
  if (options.probe_decoys && (options.batch_statistics || options.per_class || !options.json.empty() ||
                               !options.data.empty() || options.split != "test")) {
    throw UsageError(
        "--probe-decoys composes images of its own and prints a table; it goes with --checkpoint, --seed and "
        "--threads only");
  }
  if (options.val_fraction != 0.0 && split_spec(options.data).first != "folder") {
    throw UsageError("--val-fraction is for --data folder:DIR");
  }
  if (!(options.val_fraction >= 0.0 && options.val_fraction < 1.0)) {
    throw UsageError("--val-fraction must be a number from 0 to below 1");
  }
}

struct Examined {
  std::string spec;
  std::vector<std::string> classes;
  std::shared_ptr<const data::Split> split;
  int64_t minibatch = 0;  // images, with batch statistics
};

const std::shared_ptr<const data::Split>& split_of(const data::Dataset& dataset, const EvalOptions& options) {
  return options.split == "train" ? dataset.plain_train : dataset.test;
}

void check_fits(const data::Description& other, const data::Description& own) {
  const auto shape = [](const data::Description& about) {
    return fmt::format("{} classes of {}x{}x{} images", about.classes.size(), about.channels, about.height,
                       about.width);
  };
  if (shape(other) == shape(own)) return;
  throw UsageError(fmt::format("--data {} has {}, but the model of the run takes {}", printable(other.spec),
                               shape(other), shape(own)));
}

// Class names of folders are arbitrary, and outputs are numbered.
void check_same_names(const data::Description& other, const data::Description& own) {
  if (split_spec(other.spec).first != "folder" || split_spec(own.spec).first != "folder") return;
  for (size_t i = 0; i < own.classes.size(); ++i) {
    // In state.json a replacement character stands for bytes that are not UTF-8.
    const bool replaced = own.classes[i].find("\xef\xbf\xbd") != std::string::npos;
    if (other.classes[i] == own.classes[i] || replaced) continue;
    throw UsageError(
        fmt::format("class {} of {} is '{}', but '{}' in the run; the folders must have the same "
                    "class names",
                    i, printable(other.spec), printable(other.classes[i]), printable(own.classes[i])));
  }
}

data::SamplerSpec sampler_of(const EvalOptions& options) {
  return data::parse_sampler(options.sampler.empty() ? "iid" : options.sampler);
}

Examined examined(const train::OpenedRun& run, const EvalOptions& options, const data::OpenOptions& open) {
  const data::SamplerSpec sampler = sampler_of(options);  // may be invalid, and the data may be large
  const data::Description& own = run.state.data;
  train::Config config = run.state.config;
  if (!options.data.empty()) {
    config.data = options.data;
    config.val_fraction = options.val_fraction;
    config.image_size = own.height;
  }
  if (options.threads > 0) {
    config.threads = options.threads;
    config.loader_threads = 0;
  }
  const data::Dataset other = train::open_data(config, open);
  const data::Description& about = other.description;
  check_fits(about, own);
  check_same_names(about, own);
  std::shared_ptr<const data::Split> split = split_of(other, options);
  if (about.mean != own.mean || about.std != own.std) {
    split = restandardized(split, about, own);
  }
  if (options.extra_rows > 0) split = lengthened(split, options.extra_rows);
  return {about.spec, about.classes, split,
          train::statistics_minibatch(*split, sampler, run.state.config.minibatch)};
}

void check_minibatch(const train::RunState& run, const data::SamplerSpec& sampler, int64_t size) {
  if (run.config.norm == train::NormKind::kGroupnorm) {
    throw UsageError("--batch-statistics has no effect on group normalization; leave it out");
  }
  if (train::can_normalize(run.config, run.data, size)) return;
  throw UsageError(fmt::format(
      "--batch-statistics needs minibatches of at least 2 images with the model {}, got {} "
      "(--sampler {}): a layer has one value per channel and image, and one value alone cannot be "
      "normalized",
      printable(run.config.model), size, data::to_string(sampler)));
}

struct Scores {
  train::Evaluation averaged;
  train::Evaluation raw;
};

Scores score(train::OpenedRun& run, const Examined& data, const EvalOptions& options) {
  const auto classes = static_cast<int64_t>(data.classes.size());
  const auto evaluate = [&] {
    if (!options.batch_statistics) return train::evaluate(*run.model, *data.split, classes);
    return train::evaluate_with_batch_statistics(*run.model, *data.split, classes, sampler_of(options),
                                                 data.minibatch, options.seed);
  };
  Scores scores;
  scores.raw = evaluate();
  if (run.average == nullptr) {
    scores.averaged = scores.raw;
    return scores;
  }
  const train::WeightAverage::Applied applied(*run.average);
  scores.averaged = evaluate();
  return scores;
}

std::string sampler_text(const Examined& data, const EvalOptions& options) {
  const data::SamplerSpec sampler = sampler_of(options);
  const bool any_size = sampler.minibatch() == 0;
  return data::to_string(sampler) + (any_size ? fmt::format(" x {}", data.minibatch) : "");
}

void print_scores(const train::OpenedRun& run, const Examined& data, const Scores& scores,
                  const EvalOptions& options) {
  fmt::print(
      "{}, step {}: {} images of the {} split of {}{}\n", printable(options.run), run.state.step,
      scores.averaged.images, options.split, printable(data.spec),
      scores.averaged.skipped == 0 ? "" : fmt::format("; {} more are unreadable", scores.averaged.skipped));
  if (options.extra_rows > 0) fmt::print("each image with {} more rows\n", options.extra_rows);
  if (options.batch_statistics) {
    fmt::print("each minibatch ({}) normalized with its own statistics\n", sampler_text(data, options));
  }
  std::vector<std::vector<std::string>> rows = {{"", "accuracy", "loss"}};
  const auto add = [&rows](const char* name, const train::Evaluation& evaluation) {
    rows.push_back(
        {name, fmt::format("{:.2f} %", evaluation.accuracy()), fmt::format("{:.4f}", evaluation.loss)});
  };
  if (run.average != nullptr) add("averaged weights", scores.averaged);
  add(run.average != nullptr ? "raw weights" : "weights", scores.raw);
  fmt::print("\n{}", aligned_table(rows));
}

double class_accuracy(const train::Evaluation& evaluation, size_t label) {
  const auto images = static_cast<double>(evaluation.class_images[label]);
  return images == 0.0 ? 0.0 : 100.0 * static_cast<double>(evaluation.class_correct[label]) / images;
}

void print_classes(const Examined& data, const train::Evaluation& evaluation) {
  std::vector<std::vector<std::string>> rows = {{"class", "images", "correct", "accuracy"}};
  for (size_t label = 0; label < data.classes.size(); ++label) {
    rows.push_back({printable(data.classes[label]), std::to_string(evaluation.class_images[label]),
                    std::to_string(evaluation.class_correct[label]),
                    fmt::format("{:.2f} %", class_accuracy(evaluation, label))});
  }
  fmt::print("\n{}", aligned_table(rows));
}

record::EvalResult result_of(const train::OpenedRun& run, const Examined& data, const Scores& scores,
                             const EvalOptions& options) {
  record::EvalResult result;
  result.run = options.run;
  result.checkpoint = run.checkpoint;
  result.step = run.state.step;
  result.data = data.spec;
  result.split = options.split;
  result.images = scores.averaged.images;
  result.skipped_images = scores.averaged.skipped;
  result.averaged = {scores.averaged.accuracy(), scores.averaged.loss};
  result.raw = {scores.raw.accuracy(), scores.raw.loss};
  result.batch_statistics = options.batch_statistics;
  if (options.batch_statistics) result.sampler = sampler_text(data, options);
  if (options.extra_rows > 0) result.extra_rows = options.extra_rows;
  for (size_t label = 0; label < data.classes.size(); ++label) {
    result.per_class.push_back({data.classes[label], scores.averaged.class_images[label],
                                scores.averaged.class_correct[label],
                                class_accuracy(scores.averaged, label)});
  }
  return result;
}

void print_recall(train::OpenedRun& run, const Examined& data, const EvalOptions& options) {
  if (options.batch_statistics || options.per_class || !options.json.empty() || options.split != "test") {
    throw UsageError(
        "a run with --objective metric is evaluated by recall on its unseen classes; leave out --split, "
        "--batch-statistics, --per-class and --json");
  }
  auto& net = dynamic_cast<models::MetricNet&>(*run.model);
  const train::Recall raw = train::recall_of(net, *data.split);
  fmt::print("{}, step {}: {} images of unseen classes of {}\n\n", printable(options.run), run.state.step,
             raw.images, printable(data.spec));
  std::vector<std::vector<std::string>> rows = {{"", "recall@1", "recall@5"}};
  const auto add = [&rows](const char* name, const train::Recall& recall) {
    rows.push_back({name, fmt::format("{:.2f} %", recall.at_1), fmt::format("{:.2f} %", recall.at_5)});
  };
  if (run.average != nullptr) {
    const train::WeightAverage::Applied applied(*run.average);
    add("averaged weights", train::recall_of(net, *data.split));
  }
  add(run.average != nullptr ? "raw weights" : "weights", raw);
  fmt::print("{}", aligned_table(rows));
}

bool is_eval_result(const std::string& text) {
  record::parse_eval_result(text, "");  // throws DataError
  return true;
}

void run(const EvalOptions& options) {
  check(options);
  const bool to_output = options.json == "-";
  if (!options.json.empty() && !to_output) {
    check_output(options.json, "--json", options.force, is_eval_result);
  }
  reuse_tensor_memory();
  Progress progress;
  data::OpenOptions open;
  open.threads = options.threads > 0 ? options.threads : at::get_num_threads();
  open.progress = [&](int64_t done, int64_t total) {
    progress.show(fmt::format("making data: {} of {} images", done, total));
  };
  train::OpenedRun run = train::open_run(options.run, options.checkpoint);
  train::use_threads(options.threads > 0 ? options.threads : run.state.config.threads);
  train::choose_dtype(&run);
  for (const std::string& note : run.notes) progress.print("note: " + note);
  if (options.probe_decoys) return print_decoy_probe(run, options.run, options.seed, open);
  if (options.extra_rows > 0 && split_spec(run.state.config.model).first != "lstm") {
    throw UsageError(fmt::format("--extra-rows needs a model that reads rows, lstm; the run has {}",
                                 printable(run.state.config.model)));
  }
  if (options.batch_statistics) {  // before the data, which may take long to open
    const data::SamplerSpec sampler = sampler_of(options);
    check_minibatch(run.state, sampler,
                    sampler.minibatch() > 0 ? sampler.minibatch() : run.state.config.minibatch);
  }
  const Examined data = examined(run, options, open);
  const std::string note = data::one_class_note(data.spec, data.classes);
  if (!note.empty()) progress.print("note: " + note);
  if (options.batch_statistics) check_minibatch(run.state, sampler_of(options), data.minibatch);
  progress.show("evaluating");
  if (run.state.config.objective == train::Objective::kMetric) return print_recall(run, data, options);
  const Scores scores = score(run, data, options);
  progress.clear();
  if (!to_output) {
    print_scores(run, data, scores, options);
    if (options.per_class) print_classes(data, scores.averaged);
  }
  if (options.json.empty()) return;
  const std::string json = to_json(result_of(run, data, scores, options));
  if (to_output) {
    fmt::print("{}", json);
  } else {
    write_atomically(options.json, json);
  }
}

void add_batch_statistics(CLI::App* app, EvalOptions* options) {
  constexpr const char* kGroup = "Normalizing with batch statistics";
  app->add_flag("--batch-statistics", options->batch_statistics,
                "normalize each minibatch with its own statistics, as in training; averages stay unchanged")
      ->group(kGroup);
  app->add_option(
         "--sampler", options->sampler,
         "how its minibatches are drawn: iid, labels:LxK, labels:LxK:distinct, blocks:BxLxK [iid, with the "
         "run's minibatch size]")
      ->type_name("SPEC")
      ->group(kGroup);
  app->add_option("--seed", options->seed, "seed of its minibatches")
      ->check(not_negative)
      ->type_name("N")
      ->capture_default_str()
      ->group(kGroup);
}

}  // namespace

Command add_eval(CLI::App& program) {
  CLI::App* app = program.add_subcommand("eval", "Evaluate a run: averaged and raw weights");
  const auto options = std::make_shared<EvalOptions>();
  app->add_option("DIR", options->run, "folder of a run, the --out of 'renorm train'");
  app->add_option("--checkpoint", options->checkpoint, "last, best or step-N")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--split", options->split, "test or train")->type_name("SPLIT")->capture_default_str();
  app->add_option("--data", options->data, "other data with the same classes and size [the run's data]")
      ->type_name("SPEC");
  app->add_option("--val-fraction", options->val_fraction,
                  "of --data folder:DIR without DIR/val: fraction of the images that is the test split")
      ->type_name("X");
  app->add_flag("--per-class", options->per_class, "also print the accuracy of each class");
  app->add_option("--threads", options->threads, "threads; 0: the run's number")->type_name("N");
  app->add_option("--json", options->json, "also write the figures to this file; -: print only them")
      ->type_name("FILE");
  app->add_flag("--force", options->force, "let --json replace a file that is no output of 'renorm eval'");
  app->add_option("--extra-rows", options->extra_rows,
                  "rows of background below every image, for sequences longer than in training; lstm only")
      ->type_name("N");
  app->add_flag(
      "--probe-decoys", options->probe_decoys,
      "instead: of images with two characters (strokes:...,decoy=P), how often the model prefers their "
      "own class to the decoy's, by what else is in the minibatch");
  add_batch_statistics(app, options.get());
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
