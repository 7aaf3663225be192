// The flags of `renorm train`: one for each setting of a run, and where the run lives.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/help.h"
#include "train/config_file.h"
#include "train/settings.h"

namespace renorm::cli {
namespace {

constexpr int64_t kLongestConfig = 1 << 20;
constexpr const char* kExamples = R"(Examples:
  renorm train --out runs/iid --steps 2000 --workers 4 --minibatch 32
  renorm train --out runs/pairs --sampler labels:16x2 --norm batchnorm \
      --config base.toml
  renorm train --out runs/photos --data folder:photos --model resnet18 --epochs 30

Settings come from the defaults, then from --config, then from flags. A switch that a config file turns on
is turned off by --NAME=false. Stopped by SIGTERM or Ctrl-C, a run saves itself; --resume goes on exactly.
)";

struct Flags {
  TrainOptions options;
  std::string config_file;
  std::vector<std::pair<const train::Setting*, const CLI::Option*>> settings;  // options live in the parser
};

const CLI::Option* add_setting(CLI::App* app, const train::Setting& setting) {
  const std::string name = "--" + setting.name;
  if (setting.type == train::Setting::Type::kSwitch) {
    return app->add_flag(name, setting.help)->group(setting.group);
  }
  CLI::Option* option = app->add_option(name, setting.help)->type_name(setting.placeholder);
  // 0 stands for a value that is computed or for nothing at all; the help text says which.
  const std::string preset = setting.get(train::Config{});
  if (preset != "0") option->default_str(preset);
  return option->group(setting.group);
}

bool is_given(const Flags& flags, const std::string& name) {
  return std::any_of(flags.settings.begin(), flags.settings.end(), [&](const auto& entry) {
    return entry.first->name == name && entry.second->count() > 0;
  });
}

// The length is given in steps or in epochs: a flag of one kind overrides a file that has the other.
void override_length(const Flags& flags, TrainOptions* options) {
  for (const auto& [flag, other] : {std::pair{"steps", "epochs"}, std::pair{"epochs", "steps"}}) {
    if (!is_given(flags, flag) || is_given(flags, other)) continue;
    train::find_setting(other).set(options->config, "0");
    auto& given = options->given;
    given.erase(std::remove(given.begin(), given.end(), other), given.end());
  }
}

TrainOptions resolve(const Flags& flags) {
  TrainOptions options = flags.options;
  if (options.out.empty()) {
    throw UsageError("'renorm train' needs --out DIR, the folder for the run's files");
  }
  if (!flags.config_file.empty()) {
    const std::string text = read_file(flags.config_file, kLongestConfig);
    options.given = train::read_toml(text, flags.config_file, &options.config);
  }
  override_length(flags, &options);
  for (const auto& [setting, option] : flags.settings) {
    if (option->count() == 0) continue;
    setting->set(options.config, option->results().back());
    options.given.push_back(setting->name);
  }
  // What a resumed run is asked for is checked with the rest of its settings, once they are read.
  if (!options.resume) train::check(options.config);
  return options;
}

}  // namespace

Command add_train(CLI::App& program) {
  CLI::App* app = program.add_subcommand("train", "Train an image classifier with batchnorm or Batch Renorm");
  const auto flags = std::make_shared<Flags>();
  constexpr const char* kGroup = "Folder and config";
  app->add_option("--out", flags->options.out, "folder for the run's files (required)")
      ->type_name("DIR")
      ->group(kGroup);
  app->add_flag("--resume", flags->options.resume, "continue the run in DIR; start it if there is none")
      ->group(kGroup);
  app->add_option("--config", flags->config_file, "TOML file with settings by the flags' names; flags win")
      ->type_name("FILE")
      ->group(kGroup);
  app->add_flag("--quiet", flags->options.quiet, "print warnings and the result only")->group(kGroup);
  for (const train::Setting& setting : train::settings()) {
    flags->settings.emplace_back(&setting, add_setting(app, setting));
  }
  app->footer(kExamples + ("\n" + exit_codes_text()));
  // As timm and torchvision's references call them.
  return {app,
          [flags] {
            const TrainOptions options = resolve(*flags);
            core().train(options);
          },
          {{"--batch-size", "--minibatch"},
           {"--clip-grad", "--clip-gradient"},
           {"--data-dir", "--data"},
           {"--data-path", "--data"},
           {"--dataset", "--data"},
           {"--learning-rate", "--lr"},
           {"--log-interval", "--log-every"},
           {"--lr-scheduler", "--lr-schedule"},
           {"--lr-warmup-epochs", "--warmup"},
           {"--model-ema-decay", "--ema-decay"},
           {"--opt", "--optimizer"},
           {"--opt-eps", "--optimizer-eps"},
           {"--output", "--out"},
           {"--output-dir", "--out"},
           {"--sched", "--lr-schedule"},
           {"--smoothing", "--label-smoothing"},
           {"--warmup-epochs", "--warmup"},
           {"--wd", "--weight-decay"}}};
}

}  // namespace renorm::cli
