#include <gtest/gtest.h>

#include <set>

#include "base/errors.h"
#include "experiments/kinds.h"
#include "train/config_file.h"
#include "train/settings.h"

namespace renorm::experiments {
namespace {

Arm arm_named(const Experiment& experiment, const std::string& name) {
  for (const Arm& arm : experiment.arms) {
    if (arm.name == name) return arm;
  }
  throw std::out_of_range(name);
}

std::string problem_of(const ExperimentOptions& options) {
  try {
    make_experiment(paper(), options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PaperExperiment, HasTheArmsOfThePaper) {
  const Experiment experiment = make_experiment(paper(), {});
  EXPECT_EQ(arm_names(paper()),
            (std::vector<std::string>{"iid-batchnorm", "iid-renorm", "micro4-batchnorm", "micro4-renorm",
                                      "pairs-iid", "pairs-batchnorm", "pairs-halves", "pairs-renorm",
                                      "blocks-batchnorm", "blocks-dealt", "blocks-renorm"}));
  EXPECT_EQ(arm_named(experiment, "micro4-renorm").config.microbatch, 4);
  EXPECT_EQ(arm_named(experiment, "pairs-renorm").config.sampler, "labels:16x2");
  EXPECT_EQ(arm_named(experiment, "blocks-dealt").config.sampler, "blocks:8x16x2");
  EXPECT_TRUE(arm_named(experiment, "blocks-dealt").config.deal);
  EXPECT_EQ(arm_named(experiment, "pairs-batchnorm").batch_statistics_sampler, "labels:25x2");
  const Arm halves = arm_named(experiment, "pairs-halves");
  EXPECT_EQ(train::resolved(halves.config, 20000).microbatch, 16);
  EXPECT_EQ(halves.paper.test_accuracy, 77.4);
}

// An arm differs from the i.i.d. batchnorm of its figure only in how it samples and normalizes.
TEST(PaperExperiment, ArmsDifferInSamplingAndNormalizingOnly) {
  const std::set<std::string> may = {"sampler", "split-pairs", "deal", "microbatch", "norm"};
  for (const bool full : {false, true}) {
    ExperimentOptions options;
    options.full = full;
    const Experiment experiment = make_experiment(paper(), options);
    for (const Arm& arm : experiment.arms) {
      const Arm iid = arm_named(experiment, arm.figure == "pairs" ? "pairs-iid" : "iid-batchnorm");
      EXPECT_EQ(iid.config.sampler, "iid");
      EXPECT_EQ(iid.config.norm, train::NormKind::kBatchnorm);
      for (const train::Setting& setting : train::settings()) {
        if (may.count(setting.name) > 0) continue;
        EXPECT_EQ(setting.get(arm.config), setting.get(iid.config)) << arm.name << setting.name;
      }
    }
  }
}

TEST(PaperExperiment, PairsHaveDataOfTheirOwn) {
  const Experiment experiment = make_experiment(paper(), {});
  for (const record::Figure& figure : experiment.figures) {
    EXPECT_EQ(figure.data.has_value(), figure.id == "pairs");
    EXPECT_EQ(figure.reference.value_or(""), figure.id == "pairs" ? "pairs-iid" : "");
  }
  ExperimentOptions options;
  options.data = "cifar100:d";
  options.model = "convnet:8";
  options.steps = 7;
  for (const Arm& arm : make_experiment(paper(), options).arms) {
    EXPECT_EQ(arm.config.data, "cifar100:d");
    EXPECT_EQ(arm.config.model, "convnet:8");
    EXPECT_EQ(arm.config.steps, 7);
  }
}

TEST(PaperExperiment, FewLabelsGetAStrongerBias) {
  for (const char* data : {"mnist:d", "fashion-mnist:d", "cifar10:d", "strokes:classes=10"}) {
    ExperimentOptions options;
    options.data = data;
    EXPECT_EQ(arm_named(make_experiment(paper(), options), "pairs-renorm").config.sampler, "labels:4x8")
        << data;
    EXPECT_EQ(arm_named(make_experiment(paper(), options), "blocks-renorm").config.sampler, "blocks:2x4x8")
        << data;
  }
  ExperimentOptions hundred;
  hundred.data = "cifar100:d";
  EXPECT_EQ(arm_named(make_experiment(paper(), hundred), "pairs-renorm").config.sampler, "labels:16x2");
}

TEST(PaperExperiment, TakesArmsByNameInItsOwnOrder) {
  ExperimentOptions options;
  options.arms = {"pairs-renorm", "iid-renorm"};
  const Experiment experiment = make_experiment(paper(), options);
  ASSERT_EQ(experiment.arms.size(), 2U);
  EXPECT_EQ(experiment.arms[0].name, "iid-renorm");
  const record::Results results = blank_results(experiment);
  ASSERT_EQ(results.figures.size(), 2U);
  EXPECT_EQ(results.figures[1].id, "pairs");
}

TEST(PaperExperiment, BadRequestsAreNamed) {
  ExperimentOptions options;
  options.arms = {"iid-renom"};
  EXPECT_EQ(problem_of(options), "--arms: unknown arm 'iid-renom'; did you mean 'iid-renorm'?");
  options.arms = {""};
  EXPECT_NE(problem_of(options).find("--arms: unknown arm ''"), std::string::npos);
  options = {};
  options.seeds = -1;
  EXPECT_EQ(problem_of(options), "--seeds must be a whole number from 1 to 1000, got -1");
  options = {};
  options.steps = -5;
  EXPECT_EQ(problem_of(options), "--steps must be a whole number of at least 1, got -5");
  options = {};
  options.data = "strokes:classes=10,test=5";
  EXPECT_EQ(problem_of(options),
            "--data strokes:classes=10,test=5 has 5 test images per class, but pairs-batchnorm takes 8 of "
            "one label "
            "(labels:4x8)");
  options = {};
  options.data = "strokes:classes=1";
  EXPECT_NE(problem_of(options).find("classes"), std::string::npos);
}

// A misspelled arm would silently drop a claim.
TEST(ExperimentKinds, NameOnlyArmsAndClaimsThatExist) {
  std::set<std::string> sizes;
  for (const ExperimentKind& kind : experiment_kinds()) {
    for (const ExperimentSize& size : kind.sizes) EXPECT_TRUE(sizes.insert(size.name).second) << size.name;
    for (const Recipe& recipe : kind.recipes) EXPECT_EQ(recipe.lengths.size(), kind.sizes.size());
    EXPECT_EQ(&experiment_named(kind.name), &kind);
    const std::vector<std::string> names = arm_names(kind);
    // Names are folders, and the list after --arms has commas.
    for (const std::string& name : names) EXPECT_EQ(name.find_first_of(", /%"), std::string::npos) << name;
    const std::set<std::string> arms(names.begin(), names.end());
    EXPECT_EQ(arms.size(), names.size());
    EXPECT_EQ(arms.count(kind.reference), 1U) << kind.reference;
    std::set<std::string> texts;
    for (const ClaimPlan& claim : kind.claims) {
      std::vector<std::string> named = claim.arms;
      if (claim.kind != ClaimPlan::Kind::kClipping) named = {claim.a.arm};
      if (!claim.b.arm.empty()) named.push_back(claim.b.arm);
      if (claim.share > 0.0) named.push_back(claim.of.arm);
      for (const std::string& name : named) EXPECT_EQ(arms.count(name), 1U) << claim.text << ": " << name;
      EXPECT_FALSE(named.empty()) << claim.text;
      EXPECT_TRUE(claim.recovers_from.empty() || texts.count(claim.recovers_from) > 0) << claim.text;
      EXPECT_TRUE(texts.insert(claim.text).second) << claim.text;
    }
  }
}

// An arm without a place on the axis is a level.
TEST(ExperimentKinds, HavePlacesForTheAxesOfTheirFigures) {
  for (const ExperimentKind& kind : experiment_kinds()) {
    for (const bool full : {false, true}) {
      ExperimentOptions options;
      options.full = full;
      const Experiment experiment = make_experiment(kind, options);
      std::set<std::string> figures;
      for (const record::Figure& figure : experiment.figures) {
        figures.insert(figure.id);
        bool has_place = !figure.x;
        for (const Arm& arm : experiment.arms) {
          if (arm.figure != figure.id) continue;
          EXPECT_TRUE(figure.x || !arm.x) << arm.name;
          EXPECT_EQ(figure.y.has_value(), arm.y.has_value()) << arm.name;
          has_place = has_place || arm.x;
        }
        EXPECT_TRUE(has_place) << figure.id;
      }
      for (const Arm& arm : experiment.arms) EXPECT_EQ(figures.count(arm.figure), 1U) << arm.name;
    }
  }
}

TEST(ExperimentKinds, AnUnknownNameIsRefused) {
  try {
    experiment_named("bais");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "unknown experiment 'bais'; did you mean 'bias'?");
  }
}

TEST(FlagsOf, MakeTheConfigFromTheDefaults) {
  std::vector<Arm> arms;
  for (const ExperimentKind& kind : experiment_kinds()) {
    for (const Arm& arm : make_experiment(kind, {}).arms) arms.push_back(arm);
  }
  for (const Arm& arm : arms) {
    train::Config config;
    const std::vector<std::string> flags = flags_of(arm.config);
    for (size_t i = 0; i < flags.size(); ++i) {
      const std::string name = flags[i].substr(2);
      const train::Setting& setting = train::find_setting(name);
      const bool is_switch = setting.type == train::Setting::Type::kSwitch;
      setting.set(config, is_switch ? "true" : flags[++i]);
    }
    EXPECT_EQ(train::to_toml(config), train::to_toml(arm.config)) << arm.name;
  }
}

TEST(CommandOf, SaysWhatIsNotUsual) {
  ExperimentOptions options;
  options.full = true;
  EXPECT_EQ(command_of(blank_results(make_experiment(paper(), options))), "renorm reproduce --full");
  options.full = false;
  options.seeds = 2;
  options.arms = {"iid-renorm"};
  options.data = "mnist:a b";
  EXPECT_EQ(command_of(blank_results(make_experiment(paper(), options))),
            "renorm reproduce --quick --seeds 2 --arms iid-renorm --data 'mnist:a b'");
}

TEST(CommandOf, NamesTheExperimentAndWhatAllRecipesShare) {
  EXPECT_EQ(command_of(blank_results(make_experiment(experiment_named("bias"), {}))),
            "renorm reproduce bias --quick");
  ExperimentOptions options;
  options.steps = 1300;  // usual for one recipe, not for the other
  EXPECT_EQ(command_of(blank_results(make_experiment(paper(), options))),
            "renorm reproduce --quick --steps 1300");
  options = {};
  options.arms = {"pairs-iid"};
  EXPECT_EQ(command_of(blank_results(make_experiment(paper(), options))),
            "renorm reproduce --quick --arms pairs-iid");
}

TEST(BlankResults, SayWhatWillBeMeasuredAndWhere) {
  ExperimentOptions options;
  options.full = true;
  const record::Results results = blank_results(make_experiment(paper(), options));
  EXPECT_EQ(results.seeds, (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  const record::Arm& pairs = results.arms.at(5);
  EXPECT_EQ(pairs.runs.at(2).folder, "runs/pairs-batchnorm/seed-3");
  EXPECT_TRUE(pairs.train_accuracy.has_value() && pairs.batch_statistics_accuracy.has_value());
  EXPECT_FALSE(results.arms.at(0).train_accuracy.has_value());
  EXPECT_EQ(results.arms.at(0).test_accuracy.values.size(), 0U);
}

}  // namespace
}  // namespace renorm::experiments
