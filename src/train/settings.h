// The table of all settings of a run: the one place that knows their names, help, limits and text form.
// Flags, config files and checkpoints are made from it. No torch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/config.h"

namespace renorm::train {

struct Setting {
  enum class Type { kText, kInteger, kNumber, kSwitch };
  std::string name;   // "weight-decay": the flag without dashes and the key of a config file
  std::string group;  // heading in --help: "Data", "Step", "Model", "Length", "Optimisation", "Run"
  Type type;
  std::string placeholder;  // "SPEC", "NAME", "N", "X"; "" for a switch
  std::string help;         // one line, with the choices and the default in words where it is computed
  // Reads text ("true" or "false" for a switch) into a config. Throws UsageError with what was expected and
  // what was given; the config is then unchanged. The message starts with "--NAME", or with "unknown" for a
  // name that is not in the list. Text is UTF-8 without NUL; sampler and clip specs are parsed here already.
  std::function<void(Config&, const std::string& text)> set;
  // The text that `set` reads back to the same value.
  std::function<std::string(const Config&)> get;
};

const std::vector<Setting>& settings();
// Throws UsageError with the nearest name.
const Setting& find_setting(const std::string& name);

// Checks every value against its limits and all against each other, without opening data. Throws UsageError.
// The specs of data and model are left to those who open them.
void check(const Config& config);

// Fills in what is computed from other settings: minibatch, microbatch, threads, steps (epochs becomes 0),
// eval_every and checkpoint_every. `chunk` stays 0, for the trainer to choose. The result is what is written
// to DIR/config.toml and what resuming compares; resolving it once more changes nothing. Throws UsageError.
Config resolved(const Config& config, int64_t training_images);

// A config file: TOML in lines NAME = VALUE with settings' names, without sections, lists or texts over
// several lines. Anything else, unknown names, wrong types, values out of range and names given twice throw
// UsageError "FILE:LINE:COLUMN: ...", and `config` is then as it was. What the file names overrides `config`
// and is returned in the order of the file.
std::vector<std::string> read_toml(const std::string& text, const std::string& file, Config* config);
// All settings, under their groups as comments, readable by read_toml to the same config.
std::string to_toml(const Config& config);

// Settings that a run may change when it is continued: `keep`, `checkpoint-every`, `loader-threads` and,
// because until a bad image is met it changes nothing, `on-bad-image`. All others change the weights (steps
// stretches the schedules of learning rate and clip, threads the order of sums) or what metrics.jsonl and the
// best checkpoint mean.
bool is_free_to_change(const std::string& name);
// The names of the other settings that differ, for two resolved configs.
std::vector<std::string> differing(const Config& then, const Config& now);

}  // namespace renorm::train
