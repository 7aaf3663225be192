#include "train/settings.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/errors.h"

namespace renorm::train {
namespace {

template <typename Function>
std::string refusal_of(Function function) {
  try {
    function();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of_set(const std::string& name, const std::string& text) {
  return refusal_of([&] {
    Config config;
    find_setting(name).set(config, text);
  });
}

// A config with settings given as on the command line.
Config config_of(const std::vector<std::pair<std::string, std::string>>& given) {
  Config config;
  for (const auto& [name, text] : given) find_setting(name).set(config, text);
  return config;
}

std::string refusal_of_check(const std::vector<std::pair<std::string, std::string>>& given) {
  const Config config = config_of(given);
  return refusal_of([&] { check(config); });
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
}

TEST(SettingsTable, HasNamesInKebabCaseEachOnce) {
  std::set<std::string> names;
  for (const Setting& setting : settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_EQ(setting.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos);
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    EXPECT_EQ(setting.help.find('\n'), std::string::npos) << setting.name;
    EXPECT_EQ(setting.placeholder.empty(), setting.type == Setting::Type::kSwitch) << setting.name;
  }
  for (const char* name :
       {"split-pairs", "norm-scale", "norm-eps", "norm-momentum", "lr-schedule", "lr-final", "weight-decay",
        "label-smoothing", "clip-gradient", "ema-decay", "optimizer", "optimizer-eps", "log-every",
        "eval-every", "checkpoint-every", "keep"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
}

TEST(SettingsTable, KeepsEachGroupTogether) {
  std::vector<std::string> groups;
  for (const Setting& setting : settings()) {
    if (groups.empty() || groups.back() != setting.group) groups.push_back(setting.group);
  }
  EXPECT_EQ(groups, (std::vector<std::string>{"Data", "Own images (folder:DIR)", "Objective", "Step", "Model",
                                              "Length", "Optimization", "Run"}));
}

// A value unlike the default for every setting; a field that two settings share or that is forgotten shows.
TEST(SettingsTable, ReachesEveryFieldOnItsOwn) {
  for (const Setting& setting : settings()) {
    const Config before;
    Config after;
    std::string text = "0.5";
    if (setting.type == Setting::Type::kInteger) text = "7";
    if (setting.type == Setting::Type::kSwitch) text = "true";
    if (setting.name == "data" || setting.name == "model") text = "other:thing";
    if (setting.name == "sampler") text = "labels:16x2";
    if (setting.name == "norm") text = "native";
    if (setting.name == "clip") text = "3,5";
    if (setting.name == "objective") text = "metric";
    if (setting.name == "optimizer") text = "sgd";
    if (setting.name == "lr-schedule") text = "cosine";
    if (setting.name == "flip") text = "0.25";
    if (setting.name == "on-bad-image") text = "skip";
    if (setting.name == "dtype") text = "bf16";
    if (setting.name == "memory-format") text = "nchw";
    setting.set(after, text);
    EXPECT_EQ(setting.get(after), text) << setting.name;
    for (const Setting& other : settings()) {
      EXPECT_EQ(other.get(after) != other.get(before), other.name == setting.name)
          << setting.name << " changed " << other.name;
    }
  }
}

TEST(SettingsTable, SaysWhatWasExpectedAndWhatCame) {
  EXPECT_EQ(refusal_of_set("microbatch", "0x"),
            "--microbatch must be a whole number from 0 to 1048576, got '0x'");
  EXPECT_EQ(refusal_of_set("workers", "0"), "--workers must be a whole number from 1 to 1048576, got '0'");
  EXPECT_EQ(refusal_of_set("ema-decay", "1"), "--ema-decay must be a number from 0 to below 1, got '1'");
  EXPECT_EQ(refusal_of_set("norm-eps", "0"), "--norm-eps must be a number from above 0 to 1, got '0'");
  EXPECT_EQ(refusal_of_set("lr", "nan"), "--lr must be a number from 0 to 1000, got 'nan'");
  EXPECT_EQ(refusal_of_set("lr", "1\n"), "--lr must be a number from 0 to 1000, got '1\\x0a'");
  EXPECT_EQ(refusal_of_set("deal", "yes"), "--deal must be true or false, got 'yes'");
  EXPECT_EQ(refusal_of_set("norm", "batchnrom"), "unknown norm 'batchnrom'; did you mean 'batchnorm'?");
  EXPECT_EQ(refusal_of_set("norm", "zzz"),
            "unknown norm 'zzz'; there are batchnorm, renorm, native, groupnorm");
  EXPECT_EQ(refusal_of_set("data", ""), "--data must not be empty");
  EXPECT_EQ(refusal_of_set("data", "\xff"), "--data must be UTF-8 text, got '\\xff'");
  EXPECT_EQ(refusal_of_set("seed", "-1").rfind("--seed must be a whole number", 0), 0U);
  EXPECT_EQ(refusal_of_set("sampler", "lables:16x2").rfind("--sampler: ", 0), 0U);
  EXPECT_EQ(refusal_of_set("clip", "3").rfind("--clip: ", 0), 0U);
}

TEST(SettingsTable, LeavesTheConfigAloneWhenItRefuses) {
  for (const Setting& setting : settings()) {
    Config config;
    EXPECT_THROW(setting.set(config, std::string("\0", 1)), UsageError) << setting.name;
    for (const Setting& other : settings()) EXPECT_EQ(other.get(config), other.get(Config()));
  }
}

TEST(SettingsTable, TakesTextOfAllUtf8LengthsAndNoOther) {
  for (const char* good : {"a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(refusal_of_set("data", good), "");
    EXPECT_EQ(refusal_of_set("data", std::string(good) + "z"), "");
  }
  for (const char* bad :
       {"\x80", "\xc1\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xc2", "\xe1\x80", "\xf1\x80\x80", "\xc2z"}) {
    EXPECT_NE(refusal_of_set("data", bad), "");
  }
  EXPECT_EQ(refusal_of_set("data", std::string(4096, 'a')), "");
  EXPECT_EQ(refusal_of_set("data", std::string(4097, 'a')),
            "--data must not be longer than 4096 bytes, got 4097");
}

TEST(SettingsTable, NamesTheNearestSetting) {
  EXPECT_EQ(refusal_of([] { find_setting("weight_decay"); }),
            "unknown setting 'weight_decay'; did you mean 'weight-decay'?");
  EXPECT_EQ(refusal_of([] { find_setting("quite different"); }),
            "unknown setting 'quite different'; `renorm train --help` lists them");
}

TEST(SettingsCheck, AcceptsTheDefaults) { EXPECT_NO_THROW(check(Config())); }

TEST(SettingsCheck, AcceptsThePapersArms) {
  EXPECT_EQ(refusal_of_check({{"workers", "50"}, {"minibatch", "32"}, {"microbatch", "4"}}), "");
  EXPECT_EQ(refusal_of_check({{"sampler", "labels:16x2"}, {"minibatch", "32"}, {"norm", "batchnorm"}}), "");
  EXPECT_EQ(refusal_of_check({{"sampler", "labels:16x2"}, {"split-pairs", "true"}}), "");
  EXPECT_EQ(refusal_of_check({{"sampler", "labels:16x2"}, {"split-pairs", "true"}, {"microbatch", "16"}}),
            "");
  EXPECT_EQ(refusal_of_check({{"sampler", "blocks:8x16x2"}, {"deal", "true"}, {"workers", "4"}}), "");
  EXPECT_EQ(refusal_of_check({{"norm", "native"}, {"microbatch", "4"}}), "");
  EXPECT_EQ(refusal_of_check({{"norm", "native"}, {"microbatch", "4"}, {"chunk", "4"}}), "");
}

TEST(SettingsCheck, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(refusal_of_check({{"minibatch", "32"}, {"microbatch", "5"}}),
            "--microbatch must divide the minibatch of 32, got 5");
  EXPECT_EQ(refusal_of_check({{"microbatch", "64"}}), "--microbatch must divide the minibatch of 32, got 64");
  EXPECT_EQ(refusal_of_check({{"sampler", "labels:16x2"}, {"minibatch", "16"}}),
            "--minibatch must be 32 with --sampler labels:16x2, got 16; leave it out");
  expect_contains(refusal_of_check({{"split-pairs", "true"}}), "--split-pairs needs a sampler with two");
  expect_contains(refusal_of_check({{"sampler", "labels:32x1"}, {"split-pairs", "true"}}), "--split-pairs");
  EXPECT_EQ(refusal_of_check({{"sampler", "labels:8x4"}, {"split-pairs", "true"}, {"microbatch", "16"}}),
            "--split-pairs needs a group for each of the 4 images of a label, got 2; --microbatch must be at "
            "most 8");
  expect_contains(refusal_of_check({{"chunk", "16"}}), "--chunk must be at least 32");
  EXPECT_EQ(refusal_of_check({{"chunk", "16"}, {"microbatch", "16"}}), "");
  expect_contains(refusal_of_check({{"norm", "native"}, {"microbatch", "4"}, {"chunk", "8"}}),
                  "--chunk must be 4 with --norm native");
  expect_contains(refusal_of_check({{"workers", "1048576"}, {"minibatch", "1024"}}), "use fewer --workers");
}

TEST(SettingsCheck, RefusesALengthGivenTwiceAndSchedulesLongerThanTheRun) {
  EXPECT_EQ(refusal_of_check({{"steps", "10"}, {"epochs", "1"}}),
            "--steps and --epochs both give the length of the run; use one of them");
  EXPECT_EQ(refusal_of_check({{"steps", "10"}, {"warmup", "10"}}),
            "--warmup must be shorter than the run of 10 steps, got 10");
  EXPECT_EQ(refusal_of_check({{"warmup", "1999"}}), "");
  EXPECT_NE(refusal_of_check({{"warmup", "2000"}}), "");
  EXPECT_EQ(refusal_of_check({{"epochs", "1"}, {"warmup", "2000"}}), "");  // depends on the data
  expect_contains(refusal_of_check({{"clip", "hold:10%,r:3@100,d:5@300"}, {"steps", "2000"}}),
                  "after the hold");
  EXPECT_EQ(refusal_of_check({{"clip", "hold:10%,r:3@100,d:5@300"}, {"steps", "1000"}}), "");
}

TEST(SettingsCheck, RefusesWhatWouldBeIgnored) {
  EXPECT_EQ(refusal_of_check({{"norm", "batchnorm"}, {"clip", "3,5"}}),
            "--clip has no effect with --norm batchnorm; leave it out");
  EXPECT_EQ(refusal_of_check({{"norm", "native"}, {"clip", "paper"}}), "");
  expect_contains(refusal_of_check({{"optimizer", "adamw"}, {"momentum", "0.9"}}),
                  "--momentum has no effect");
  expect_contains(refusal_of_check({{"beta1", "0.8"}}), "--beta1 has no effect with --optimizer rmsprop-tf");
  expect_contains(refusal_of_check({{"optimizer", "sgd"}, {"alpha", "0.8"}}), "--alpha has no effect");
  expect_contains(refusal_of_check({{"lr-schedule", "constant"}, {"lr-final", "0.5"}}), "--lr-final");
  expect_contains(refusal_of_check({{"lr-final", "0"}}), "--lr-final must be above 0");
  EXPECT_EQ(refusal_of_check({{"lr-final", "0"}, {"lr-schedule", "cosine"}}), "");
}

TEST(SettingsCheck, FindsValuesThatWereNotSetThroughTheTable) {
  Config config;
  config.minibatch = -1;
  EXPECT_EQ(refusal_of([&] { check(config); }),
            "--minibatch must be a whole number from 0 to 1048576, got '-1'");
}

TEST(SettingsResolved, FillsInWhatIsComputed) {
  const Config whole = resolved(Config(), 20'000);
  EXPECT_EQ(whole.minibatch, 32);
  EXPECT_EQ(whole.microbatch, 32);
  EXPECT_EQ(whole.steps, 2'000);
  EXPECT_EQ(whole.eval_every, 200);
  EXPECT_EQ(whole.checkpoint_every, 200);
  EXPECT_GE(whole.threads, 1);
  EXPECT_EQ(whole.chunk, 0);
  EXPECT_EQ(whole.ema_decay, 0.99);
}

TEST(SettingsResolved, RefusesAMinibatchThatNoConfigFileCouldHold) {
  EXPECT_THROW(resolved(config_of({{"sampler", "labels:1100x1000"}}), 2'000'000), UsageError);
}

TEST(SettingsResolved, TakesTheMinibatchOfTheSampler) {
  const Config pairs = resolved(config_of({{"sampler", "labels:25x2"}}), 1'000);
  EXPECT_EQ(pairs.minibatch, 50);
  EXPECT_EQ(pairs.microbatch, 50);
  const Config halves = resolved(config_of({{"sampler", "labels:16x2"}, {"split-pairs", "true"}}), 1'000);
  EXPECT_EQ(halves.minibatch, 32);
  EXPECT_EQ(halves.microbatch, 16);
}

TEST(SettingsResolved, CountsStepsOfEpochs) {
  const auto steps = [](const std::string& epochs, const std::string& workers, int64_t images) {
    return resolved(config_of({{"epochs", epochs}, {"workers", workers}}), images).steps;
  };
  EXPECT_EQ(steps("1", "1", 3'200), 100);
  EXPECT_EQ(steps("1", "1", 3'201), 101);
  EXPECT_EQ(steps("0.1", "1", 3'200), 10);
  EXPECT_EQ(steps("1.1", "1", 3'200), 110);  // 1.1 * 3200 / 32 is a little more in floating point
  EXPECT_EQ(steps("2", "50", 16'000), 20);
  EXPECT_EQ(steps("0.001", "50", 10), 1);
  EXPECT_EQ(resolved(config_of({{"epochs", "3"}}), 3'200).epochs, 0.0);
  EXPECT_THROW(resolved(config_of({{"epochs", "1e6"}}), int64_t{1} << 50), UsageError);
  EXPECT_THROW(resolved(config_of({{"epochs", "1"}, {"warmup", "100"}}), 3'200), UsageError);
}

TEST(SettingsResolved, StaysTheSameWhenResolvedAgain) {
  const Config once = resolved(config_of({{"epochs", "2.5"}, {"microbatch", "4"}}), 12'345);
  const Config twice = resolved(once, 99);
  for (const Setting& setting : settings()) EXPECT_EQ(setting.get(once), setting.get(twice)) << setting.name;
}

TEST(SettingsResolved, EvaluatesAtMostTenTimesInAShortRun) {
  EXPECT_EQ(resolved(config_of({{"steps", "1"}}), 100).eval_every, 1);
  EXPECT_EQ(resolved(config_of({{"steps", "15"}}), 100).eval_every, 2);
  EXPECT_EQ(resolved(config_of({{"eval-every", "7"}}), 100).checkpoint_every, 7);
}

TEST(SettingsDiffering, NamesWhatARunCannotChange) {
  const Config then = resolved(Config(), 1'000);
  EXPECT_TRUE(differing(then, then).empty());
  Config now = then;
  now.keep = 9;
  now.checkpoint_every = 1;
  EXPECT_TRUE(differing(then, now).empty());
  now.steps = 2'001;
  now.lr = 0.0030000000000000001 * (1 + 1e-15);
  now.threads = then.threads + 1;
  EXPECT_EQ(differing(then, now), (std::vector<std::string>{"steps", "lr", "threads"}));
}

}  // namespace
}  // namespace renorm::train
