// The files of configs/: the paper's runs.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/files.h"
#include "data/sampler.h"
#include "train/clip_spec.h"
#include "train/config_file.h"

namespace renorm::train {
namespace {

constexpr int64_t kImageNet = 1'281'167;

std::map<std::string, Config> all_configs() {
  std::map<std::string, Config> configs;
  for (const auto& entry : std::filesystem::directory_iterator(RENORM_CONFIGS)) {
    Config config;
    const std::string path = entry.path().string();
    read_toml(read_file(path), path, &config);
    configs[entry.path().stem().string()] = resolved(config, kImageNet);
  }
  return configs;
}

TEST(PapersConfigs, AreReadAndHaveAllArms) {
  std::vector<std::string> names;
  for (const auto& [name, config] : all_configs()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"inception-v3-batchnorm", "inception-v3-micro4-batchnorm",
                                             "inception-v3-micro4-renorm", "inception-v3-pairs-batchnorm",
                                             "inception-v3-pairs-halves", "inception-v3-pairs-renorm",
                                             "inception-v3-renorm"}));
}

TEST(PapersConfigs, HaveThePapersStepOptimizerAndAverages) {
  for (const auto& [name, config] : all_configs()) {
    EXPECT_EQ(config.workers * config.minibatch, 50 * 32) << name;
    EXPECT_EQ(config.optimizer, OptimizerKind::kRmspropTf) << name;
    EXPECT_EQ(config.norm_momentum, 0.01) << name;
    EXPECT_FALSE(config.norm_scale) << name;
    EXPECT_GT(config.ema_decay, 0.0) << name;
    EXPECT_EQ(config.model, "inception-v3:aux") << name;
  }
}

TEST(PapersConfigs, DifferFromEachOtherInWhatTheArmsAreAbout) {
  const std::map<std::string, Config> configs = all_configs();
  for (const auto& [name, config] : configs) {
    const bool renorm = name.find("-renorm") != std::string::npos;
    EXPECT_EQ(config.norm, renorm ? NormKind::kRenorm : NormKind::kBatchnorm) << name;
    EXPECT_EQ(config.sampler, name.find("pairs") != std::string::npos ? "labels:16x2" : "iid") << name;
    EXPECT_EQ(config.split_pairs, name.find("halves") != std::string::npos) << name;
    const bool halves = config.split_pairs;
    EXPECT_EQ(config.microbatch, name.find("micro4") != std::string::npos ? 4 : (halves ? 16 : 32)) << name;
    if (!renorm) continue;
    const ClipSteps steps = clip_steps(parse_clip(config.clip), config.steps);
    EXPECT_EQ(steps.hold, 5'000) << name;
    EXPECT_EQ(steps.d_at, 25'000) << name;
    EXPECT_EQ(steps.r_at, 40'000) << name;
  }
}

}  // namespace
}  // namespace renorm::train
