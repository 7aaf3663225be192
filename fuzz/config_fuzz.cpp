// Input: a config file. An accepted input must survive writing and reading unchanged.
#include "fuzz.h"
#include "train/config_file.h"
#include "train/run_id.h"
#include "train/settings.h"

using namespace renorm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  train::Config config;
  if (!fuzz::accepts([&] { train::read_toml(fuzz::text_of(data, size), fuzz::kFile, &config); })) return 0;
  const std::string written = train::to_toml(config);
  train::Config again;
  train::read_toml(written, fuzz::kFile, &again);
  fuzz::expect(train::to_toml(again) == written, "the config changed");
  fuzz::expect(train::differing(config, again).empty(), "the config differs from itself");
  const std::string id = train::run_id_of(fuzz::text_of(data, size));
  fuzz::expect(id.empty() || train::run_id_of(train::run_id_comment(id) + written) == id, "the id changed");
  fuzz::accepts([&] { train::check(config); });
  return 0;
}
