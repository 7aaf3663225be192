// The table of all settings of a run: their names, help, limits and text form. Flags, config files and
// checkpoints are made from it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/config.h"

namespace renorm::train {

struct Setting {
  enum class Type { kText, kInteger, kNumber, kSwitch };
  std::string name;  // "weight-decay": the flag without dashes and the key in a config file
  // Heading in --help: "Data", "Own images (folder:DIR)", "Step", "Model", "Length", "Optimization", "Run".
  std::string group;
  Type type;
  std::string placeholder;  // "SPEC", "NAME", "N", "X"; "" for a switch
  std::string help;         // one line, with the choices and, where the default is computed, how
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

// Settings that may change when a run is resumed: `keep`, `checkpoint-every`, `loader-threads` and
// `on-bad-image`, which has no effect until the first bad image. All others change the weights (steps
// stretches the schedules of learning rate and clip, threads the order of sums) or the meaning of
// metrics.jsonl and of the best checkpoint.
bool is_free_to_change(const std::string& name);
// The names of the other settings that differ between two resolved configs.
std::vector<std::string> differing(const Config& then, const Config& now);

}  // namespace renorm::train
