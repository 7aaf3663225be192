#include "train/config_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "base/errors.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

std::string refusal_of(const std::string& text) {
  Config config;
  try {
    read_toml(text, "run.toml", &config);
  } catch (const UsageError& error) {
    for (const Setting& setting : settings()) EXPECT_EQ(setting.get(config), setting.get(Config()));
    return error.what();
  }
  return "";
}

Config read(const std::string& text) {
  Config config;
  read_toml(text, "run.toml", &config);
  return config;
}

void expect_same(const Config& a, const Config& b) {
  for (const Setting& setting : settings()) EXPECT_EQ(setting.get(a), setting.get(b)) << setting.name;
}

TEST(ConfigFile, OverridesWhatItNamesAndReturnsTheNames) {
  Config config;
  config.workers = 7;
  config.seed = 3;
  const std::vector<std::string> names =
      read_toml("seed = 5 # a comment\nnorm-scale = true\nlr = 1\ndata = 'mnist:/a b'\n", "f", &config);
  EXPECT_EQ(names, (std::vector<std::string>{"seed", "norm-scale", "lr", "data"}));
  EXPECT_EQ(config.workers, 7);
  EXPECT_EQ(config.seed, 5U);
  EXPECT_TRUE(config.norm_scale);
  EXPECT_EQ(config.lr, 1.0);
  EXPECT_EQ(config.data, "mnist:/a b");
  EXPECT_TRUE(read_toml("", "f", &config).empty());
}

TEST(ConfigFile, ReadsQuotedKeysAndOtherNotations) {
  const Config config = read("\"weight-decay\" = +1.0E-4\nsteps = 0x10\nminibatch = 1_0\n");
  EXPECT_EQ(config.weight_decay, 1e-4);
  EXPECT_EQ(config.steps, 16);
  EXPECT_EQ(config.minibatch, 10);
}

TEST(ConfigFile, ReadsNumbersInTomlsNotationOnly) {
  EXPECT_EQ(read("steps = 0o17").steps, 15);
  EXPECT_EQ(read("steps = 0b1_01").steps, 5);
  EXPECT_EQ(read("steps = 0xa_F").steps, 175);
  EXPECT_EQ(read("steps = +0").steps, 0);
  EXPECT_EQ(read("lr = 1_0.2_5e+0_1").lr, 102.5);
  EXPECT_EQ(read("lr = 5E-01").lr, 0.5);
  for (const char* text :
       {"01",   "1_", "_1",  "1__0", "0x",    "0x_1", "0xg", "+0x1", "0b2", "1.",    ".5",
        "1.e1", "1e", "1e+", "1_e1", "1e1.0", "00.5", "1a",  "True", "Inf", "1e999", "9223372036854775808",
        "abc"}) {
    EXPECT_EQ(refusal_of(std::string("lr = ") + text),
              "run.toml:1:6: expected a number, true, false or a text in quotes")
        << text;
  }
}

TEST(ConfigFile, ReadsAllEscapes) {
  EXPECT_EQ(read(R"(data = "\b\t\n\f\r\"\\\u00e9\U0001f600")").data,
            "\b\t\n\f\r\"\\\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(read(R"(data = 'a\b')").data, R"(a\b)");
  for (const char* text :
       {R"("\x41")", R"("\u12")", R"("\ud800")", R"("\U00110000")", R"("\u+123")", R"("\u 123")", R"("\")"}) {
    EXPECT_NE(refusal_of(std::string("data = ") + text), "") << text;
  }
}

TEST(ConfigFile, ReadsWindowsLineEnds) {
  const Config config = read("# c\r\nlr = 1\r\n\r\ndata = 'a' # b\r\nseed = 2 \r\n");
  EXPECT_EQ(config.lr, 1.0);
  EXPECT_EQ(config.data, "a");
  EXPECT_EQ(config.seed, 2U);
}

TEST(ConfigFile, NamesLineColumnAndTheNearestKey) {
  EXPECT_EQ(refusal_of("seed = 1\n  weight_decay = 1\n"),
            "run.toml:2:3: unknown setting 'weight_decay'; did you mean 'weight-decay'?");
}

TEST(ConfigFile, NamesThePlaceOfAValueOutOfRange) {
  EXPECT_EQ(refusal_of("seed = 1\nema-decay = 1.5\n"),
            "run.toml:2:13: ema-decay must be a number from 0 to below 1, got '1.5'");
  EXPECT_EQ(refusal_of("norm = 'renrom'"), "run.toml:1:8: unknown norm 'renrom'; did you mean 'renorm'?");
  EXPECT_EQ(refusal_of("sampler = 'iid:3'").rfind("run.toml:1:11: sampler: ", 0), 0U);
  EXPECT_EQ(refusal_of("lr = nan"), "run.toml:1:6: lr must be a number from 0 to 1000, got 'nan'");
  EXPECT_EQ(refusal_of("lr = -inf"), "run.toml:1:6: lr must be a number from 0 to 1000, got '-inf'");
  EXPECT_EQ(refusal_of("data = \"a\\u0000b\""), "run.toml:1:8: data must be UTF-8 text, got 'a\\x00b'");
}

TEST(ConfigFile, RefusesWrongTypes) {
  EXPECT_EQ(refusal_of("lr = '1'"), "run.toml:1:6: lr must be a number without quotes, got a string");
  EXPECT_EQ(refusal_of("steps = 10.0"), "run.toml:1:9: steps must be a whole number without quotes, got 10");
  EXPECT_EQ(refusal_of("deal = 1"), "run.toml:1:8: deal must be true or false, got 1");
  EXPECT_EQ(refusal_of("data = true"), "run.toml:1:8: data must be a string in quotes, got true");
  EXPECT_EQ(refusal_of("steps = 2020-01-01"),
            "run.toml:1:13: expected a number, true, false or a text in quotes");
  EXPECT_EQ(refusal_of("steps = 10:00:00"),
            "run.toml:1:11: expected a number, true, false or a text in quotes");
}

TEST(ConfigFile, RefusesListsTablesAndSections) {
  EXPECT_EQ(refusal_of("data = ['a']"), "run.toml:1:8: a setting has one value, not a list or table");
  EXPECT_EQ(refusal_of("lr = {a = 1}"), "run.toml:1:6: a setting has one value, not a list or table");
  EXPECT_EQ(refusal_of("\n [data]\nlr = 1"), "run.toml:2:2: sections are not supported; write NAME = VALUE");
  EXPECT_EQ(refusal_of("[[lr]]"), "run.toml:1:1: sections are not supported; write NAME = VALUE");
  EXPECT_EQ(refusal_of("a.b = 1"), "run.toml:1:2: settings have no dots in their names");
  EXPECT_EQ(read("data = '[{a.b}]' # [{").data, "[{a.b}]");
}

TEST(ConfigFile, ReportsTheFirstOfSeveralErrorsInTheFile) {
  EXPECT_EQ(refusal_of("workers = 0\nalpha = 7\n").rfind("run.toml:1:11: workers ", 0), 0U);
}

TEST(ConfigFile, SaysWhereItIsNotToml) {
  const std::string twice = refusal_of("lr = 1\nseed = 2\nlr = 2\n");
  EXPECT_EQ(twice.rfind("run.toml:3:", 0), 0U) << twice;
  EXPECT_NE(twice.find("give each setting once"), std::string::npos) << twice;
  EXPECT_EQ(refusal_of("seed = 2\ndata = \"abc\\\"\n"), "run.toml:2:8: missing closing quote");
  EXPECT_EQ(refusal_of("lr = # 1\n"), "run.toml:1:6: expected a value");
  EXPECT_EQ(refusal_of("lr 1\n"), "run.toml:1:4: expected NAME = VALUE");
  EXPECT_EQ(refusal_of("lr = 1'a'"), "run.toml:1:7: expected a number, true, false or a text in quotes");
  EXPECT_EQ(refusal_of("lr = 1 seed = 2"), "run.toml:1:8: expected the end of the line after the value");
  EXPECT_EQ(refusal_of("data = \"\xff\"").rfind("run.toml:1:", 0), 0U);
  for (const char* text : {"lr = \n", "= 1", "data = \"a\nb\"", "\x01", "lr = 1 2", "lr = 1\r2"}) {
    const std::string refusal = refusal_of(text);
    EXPECT_NE(refusal, "") << text;
    EXPECT_EQ(refusal.find_first_of("\n\r\x01"), std::string::npos) << refusal;
  }
}

TEST(ConfigFile, TakesOtherScriptsInQuotesAndCommentsOnly) {
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "data = 'mnist:/\xce\xb2' # \xce\xb2\n")
                .data,
            "mnist:/\xce\xb2");
  EXPECT_EQ(read("data = \"\xce\xb2#\\\"\xce\xb2\"").data, "\xce\xb2#\"\xce\xb2");
  EXPECT_EQ(read("data = \"\\u03b2'\" # '").data, "\xce\xb2'");
  EXPECT_EQ(refusal_of("lr = 1\n\xce\xb2 = 1\n"), "run.toml:2:1: expected NAME = VALUE");
  EXPECT_EQ(refusal_of("data = '\xce\xb2' \xc2\xa0"),
            "run.toml:1:12: expected the end of the line after the value");
  EXPECT_NE(refusal_of("data = \"\\\xce\xb2\""), "");
  EXPECT_EQ(refusal_of("data = \"\"\"a\\\n \xce\xb2\"\"\""),
            "run.toml:1:8: a text must be on one line, in one pair of quotes");
  EXPECT_EQ(refusal_of("data = '''a'''"), "run.toml:1:8: a text must be on one line, in one pair of quotes");
}

TEST(ConfigFile, SurvivesBombs) {
  std::string keys = "a";
  for (int i = 0; i < 300'000; ++i) keys += ".a";
  EXPECT_EQ(refusal_of(keys + " = 1"), "run.toml:1:2: settings have no dots in their names");
  EXPECT_NE(refusal_of("lr = " + std::string(300'000, '[')), "");
  EXPECT_NE(refusal_of(std::string((1 << 20) + 1, '#')), "");
  EXPECT_EQ(refusal_of("# " + std::string(300'000, '.')), "");
}

TEST(ConfigFile, WritesAllSettingsUnderTheirGroups) {
  const std::string text = to_toml(Config());
  EXPECT_EQ(text.rfind("# Data\ndata = \"strokes\"\nsampler = \"iid\"\nsplit-pairs = false\n", 0), 0U)
      << text;
  EXPECT_NE(text.find("\n\n# Optimization\noptimizer = \"rmsprop-tf\"\nlr = 0.003\n"), std::string::npos)
      << text;
  EXPECT_EQ(read_toml(text, "f", std::make_unique<Config>().get()).size(), settings().size());
}

class RandomConfig {
 public:
  Config next() {
    Config config;
    config.data = text();
    config.model = text();
    config.sampler = pick({"iid", "labels:16x2", "labels:3x1:distinct", "blocks:8x16x2"});
    config.clip = pick({"paper", "paper@130000", "3,5", "inf,inf", "hold:4%,r:3@31%,d:5@19%"});
    config.norm = pick_any<NormKind>();
    config.optimizer = pick_any<OptimizerKind>();
    config.lr_schedule = pick_any<LrSchedule>();
    config.split_pairs = whole(0, 1) == 1;
    config.deal = whole(0, 1) == 1;
    config.norm_scale = whole(0, 1) == 1;
    for (int64_t Config::*field : {&Config::minibatch, &Config::microbatch, &Config::chunk, &Config::steps,
                                   &Config::warmup, &Config::eval_every, &Config::checkpoint_every}) {
      config.*field = whole(0, 1 << 20);
    }
    for (int64_t Config::*field : {&Config::workers, &Config::log_every, &Config::keep}) {
      config.*field = whole(1, 1'000'000);
    }
    for (double Config::*field :
         {&Config::norm_eps, &Config::norm_momentum, &Config::epochs, &Config::lr, &Config::lr_final,
          &Config::momentum, &Config::alpha, &Config::beta1, &Config::beta2, &Config::optimizer_eps,
          &Config::weight_decay, &Config::label_smoothing, &Config::clip_gradient, &Config::ema_decay}) {
      config.*field = fraction();
    }
    config.seed = random_() >> 1;
    config.threads = static_cast<int>(whole(0, 1024));
    return config;
  }

 private:
  int64_t whole(int64_t min, int64_t max) {
    return std::uniform_int_distribution<int64_t>(min, max)(random_);
  }
  // Over many orders of magnitude, above 0 and below 1.
  double fraction() {
    const double value = std::uniform_real_distribution<double>(0.001, 0.999)(random_);
    return std::ldexp(value, -static_cast<int>(whole(0, 900)));
  }
  template <typename Enum>
  Enum pick_any() {
    return parse_choice<Enum>(pick(choice_names<Enum>()));
  }
  std::string pick(const std::vector<std::string>& choices) {
    return choices[static_cast<size_t>(whole(0, static_cast<int64_t>(choices.size()) - 1))];
  }
  std::string text() {
    std::string result;
    const int64_t length = whole(1, 20);
    for (int64_t i = 0; i < length; ++i) {
      result += pick({"a",
                      "\"",
                      "\\",
                      "'",
                      "#",
                      "\n",
                      "\r",
                      "\t",
                      "\x01",
                      "\x1f",
                      "\x7f",
                      "=",
                      "\"\"\"",
                      "]",
                      "\xc3\xa4",
                      "\xe2\x82\xac",
                      "\xef\xbf\xbe",
                      "\xef\xbb\xbf",
                      "\xf0\x9f\x98\x80",
                      " ",
                      "u0041"});
    }
    return result;
  }

  std::mt19937_64 random_{20260101};
};

TEST(ConfigFile, ReadsBackWhatItWrote) {
  RandomConfig random;
  for (int i = 0; i < 300; ++i) {
    const Config config = random.next();
    const std::string text = to_toml(config);
    SCOPED_TRACE(text);
    Config again;
    ASSERT_NO_THROW(again = read(text));
    expect_same(config, again);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace renorm::train
