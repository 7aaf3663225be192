#include "train/shared_start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "train/config_file.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

// Compares the texts of all processes with rank 0's. `difference` makes a sentence of the first that differs.
template <typename Difference>
void check_same(const std::string& own, dist::Group& group, const Difference& difference) {
  const std::vector<std::string> texts = group.gather(own);
  std::exception_ptr error;
  for (int rank = 1; rank < group.size() && !error && group.leads(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    error = std::make_exception_ptr(
        UsageError(fmt::format("{}: {}", group.name_of(rank), difference(texts[rank], texts[0]))));
  }
  group.agree(error);
}

// Threads may differ: machines do.
std::string settings_text(Config config) {
  config.threads = 0;
  config.loader_threads = 0;
  return to_toml(config);
}

Config config_of(const std::string& text) {
  Config config;
  read_toml(text, "the settings of another process", &config);
  return config;
}

std::string differing_setting(const std::string& theirs, const std::string& ours) {
  const Config other = config_of(theirs);
  const Config own = config_of(ours);
  for (const std::string& name : differing(own, other)) {
    const Setting& setting = find_setting(name);
    return fmt::format("--{} is '{}', but '{}' on rank 0; start all processes with the same settings", name,
                       printable(setting.get(other)), printable(setting.get(own)));
  }
  return "the settings are not those of rank 0; start all processes with the same settings";
}

}  // namespace

Start shared_start(const Start& start, dist::Group& group) {
  Start shared;
  shared.continues = group.broadcast(start.continues ? "continues" : "begins") == "continues";
  const bool has_state = group.broadcast(start.state.step > 0 ? "has" : "lacks") == "has";
  shared.config = config_of(group.broadcast(group.leads() ? to_toml(start.config) : ""));
  if (has_state) {
    shared.state =
        parse_run_state(group.broadcast(group.leads() ? to_json(start.state) : ""), "the state of rank 0");
  }
  return shared;
}

void check_same_request(const RunRequest& request, dist::Group& group) {
  std::string versions;
  for (const auto& [name, version] : request.versions) versions += fmt::format(" {} {}", name, version);
  check_same(versions, group, [](const std::string& theirs, const std::string& ours) {
    return fmt::format(
        "the versions are{}, but{} on rank 0; all processes need the same, also of SIMD, or their "
        "weights would differ",
        printable(theirs), printable(ours));
  });
  check_same(settings_text(request.config), group, differing_setting);
  check_same(request.resume ? "yes" : "no", group,
             [](const std::string&, const std::string&) { return "--resume is not as on rank 0"; });
}

void check_same_data(const data::Description& data, dist::Group& group) {
  const std::string text =
      fmt::format("{} {} {}", data.fingerprint, fmt::join(data.mean, " "), fmt::join(data.std, " "));
  check_same(text, group, [&](const std::string&, const std::string&) {
    return fmt::format("the data '{}' is not what it is on rank 0; all machines need the same files",
                       printable(data.spec));
  });
}

}  // namespace renorm::train
