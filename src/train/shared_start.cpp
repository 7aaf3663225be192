#include "train/shared_start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "base/checksum.h"
#include "base/errors.h"
#include "base/text.h"
#include "train/config_file.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

// Of each split, compared over all processes.
constexpr int64_t kSampledImages = 32;

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

// Of up to kSampledImages images, from the first to the last. An image that cannot be read is reported when
// it is used.
std::string hash_of_samples(const data::Split& split) {
  std::string bytes;
  const int64_t count = std::min(kSampledImages, split.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = count == 1 ? 0 : i * (split.size() - 1) / (count - 1);
    try {
      const torch::Tensor image = split.load({{index, 0}}).images.contiguous();
      bytes.append(reinterpret_cast<const char*>(image.data_ptr<float>()), image.nbytes());
    } catch (const DataError&) {
      bytes += "unreadable";
    } catch (const MissingInputError&) {
      bytes += "missing";
    }
  }
  return sha256(bytes);
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

void check_same_data(const data::Dataset& dataset, dist::Group& group) {
  const data::Description& data = dataset.description;
  std::string text;
  group.together([&] {
    text =
        fmt::format("{} {} {} {} {}", data.fingerprint, fmt::join(data.mean, " "), fmt::join(data.std, " "),
                    hash_of_samples(*dataset.plain_train), hash_of_samples(*dataset.test));
  });
  check_same(text, group, [&](const std::string&, const std::string&) {
    return fmt::format("the data '{}' is not what it is on rank 0; all machines need the same files",
                       printable(data.spec));
  });
}

}  // namespace renorm::train
