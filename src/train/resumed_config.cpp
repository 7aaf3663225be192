#include "train/resumed_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "base/text.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

void take_over(const std::string& name, const Config& from, Config* to) {
  const Setting& setting = find_setting(name);
  setting.set(*to, setting.get(from));
}

}  // namespace

bool describes_run(const std::vector<std::string>& given) {
  return !std::all_of(given.begin(), given.end(), is_free_to_change);
}

Config with_free_settings(Config stored, const Config& config, const std::vector<std::string>& given) {
  for (const std::string& name : given) {
    if (is_free_to_change(name)) take_over(name, config, &stored);
  }
  return stored;
}

Config corrected_config(Config stored, const Config& config, const std::vector<std::string>& given) {
  for (const std::string& name : given) {
    take_over(name, config, &stored);
    if (name == "epochs" && stored.epochs > 0.0) stored.steps = 0;
    if (name == "steps" && stored.steps > 0) stored.epochs = 0.0;
  }
  return stored;
}

Config continued_config(const Config& stored, const Config& config, const std::vector<std::string>& given,
                        int64_t training_images, const std::string& folder) {
  check(stored);
  // Nothing is changed by this unless the process ended before its first step.
  const Config then = resolved(stored, training_images);
  Config now = then;
  for (const std::string& name : given) {
    take_over(name, config, &now);
    if (name == "epochs" && now.epochs > 0.0) now.steps = 0;
  }
  check(now);
  now = resolved(now, training_images);
  const std::vector<std::string> other = differing(then, now);
  if (other.empty()) return now;
  const Setting& first = find_setting(other.front());
  throw UsageError(
      fmt::format("the run in '{}' was started {}, not {}; leave it out to continue the run, or "
                  "choose another --out",
                  printable(folder),
                  first.get(then).empty() ? fmt::format("without --{}", first.name)
                                          : fmt::format("with --{} {}", first.name, first.get(then)),
                  first.get(now)));
}

}  // namespace renorm::train
