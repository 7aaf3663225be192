#include "experiments/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace renorm::experiments {
namespace {

using record::Arm;
using record::Claim;
using record::Measure;
using record::Results;

// Margins in percentage points, part of the claims' wording.
constexpr double kEqual = 2.0;      // "agree", "the i.i.d. level"
constexpr double kClearLoss = 5.0;  // "loses"
constexpr double kFewClipped = 0.05;
constexpr double kNoneClipped = 0.001;

// The 97.5 % quantile of Student's t for any number of degrees of at least 1: exact for 1 to 4, linear
// between them in 1 / degrees, then the expansion in 1 / degrees (Abramowitz and Stegun 26.7.5).
double student_quantile(double degrees) {
  constexpr double kExact[] = {12.706, 4.303, 3.182, 2.776};
  if (degrees < 4.0) {
    const auto below = static_cast<size_t>(std::max(1.0, std::floor(degrees)));
    const double low = 1.0 / static_cast<double>(below), high = 1.0 / static_cast<double>(below + 1);
    const double share = (low - 1.0 / std::max(1.0, degrees)) / (low - high);
    return kExact[below - 1] + share * (kExact[below] - kExact[below - 1]);
  }
  constexpr double kNormal = 1.959964;
  const double first = (std::pow(kNormal, 3) + kNormal) / 4.0;
  const double second = (5.0 * std::pow(kNormal, 5) + 16.0 * std::pow(kNormal, 3) + 3.0 * kNormal) / 96.0;
  const double third = (3.0 * std::pow(kNormal, 7) + 19.0 * std::pow(kNormal, 5) +
                        17.0 * std::pow(kNormal, 3) - 15.0 * kNormal) /
                       384.0;
  return kNormal + first / degrees + second / (degrees * degrees) + third / (degrees * degrees * degrees);
}

// How far the difference of two means can be from what was measured: Welch's interval of 95 %, which lets the
// two scatter differently. Without two seeds of each, what the size of the test set gives.
double half_width(const Measure& a, const Measure& b, int64_t test_images) {
  if (a.values.size() < 2 || b.values.size() < 2) {
    const auto images = static_cast<double>(test_images);
    const auto variance = [images](double percent) { return percent * (100.0 - percent) / images; };
    return 1.96 * std::sqrt(variance(a.mean) + variance(b.mean));
  }
  const auto share = [](const Measure& measure) {
    return measure.spread * measure.spread / static_cast<double>(measure.values.size());
  };
  const auto degrees = [](const Measure& measure) {
    return static_cast<double>(measure.values.size()) - 1.0;
  };
  const double both = share(a) + share(b);
  if (both == 0.0) return 0.0;
  const double freedom = both * both / (share(a) * share(a) / degrees(a) + share(b) * share(b) / degrees(b));
  return student_quantile(freedom) * std::sqrt(both);
}

std::string described(const Measure& measure) {
  return measure.values.size() > 1 ? fmt::format("{:.1f} +- {:.1f}", measure.mean, measure.spread)
                                   : fmt::format("{:.1f}", measure.mean);
}

// Where a claim puts the difference a - b.
struct Region {
  double least;
  double most;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Judge {
 public:
  explicit Judge(const Results& results) : results_(results) {}

  std::vector<Claim> take() { return std::move(claims_); }

  const Arm* find(const std::string& name) const {
    const auto found = std::find_if(results_.arms.begin(), results_.arms.end(),
                                    [&](const Arm& arm) { return arm.name == name; });
    return found == results_.arms.end() ? nullptr : &*found;
  }

  // A measure of an arm with the words for it: "pairs-batchnorm on its training set".
  struct Subject {
    std::string words;
    const Arm* arm;
    const Measure* measure;
  };
  Subject test(const std::string& name) const {
    const Arm* arm = find(name);
    return {name, arm, arm == nullptr ? nullptr : &arm->test_accuracy};
  }
  Subject training_set(const std::string& name) const {
    const Arm* arm = find(name);
    const bool has = arm != nullptr && arm->train_accuracy;
    return {name + " on its training set", arm, has ? &*arm->train_accuracy : nullptr};
  }
  Subject batch_statistics(const std::string& name) const {
    const Arm* arm = find(name);
    const bool has = arm != nullptr && arm->batch_statistics_accuracy;
    return {name + " with batch statistics", arm, has ? &*arm->batch_statistics_accuracy : nullptr};
  }

  // Judges a - b and returns the verdict; "" if an arm is not there or not finished. With a `moot` reason the
  // verdict is that nothing is resolved.
  std::string difference(const std::string& text, const Subject& a, const Subject& b, Region region,
                         bool in_paper, const std::string& moot = "") {
    if (a.measure == nullptr || b.measure == nullptr) return "";
    if (!complete(*a.arm) || !complete(*b.arm)) {
      unfinished(text, in_paper);
      return "";
    }
    const double apart = a.measure->mean - b.measure->mean;
    const double half = half_width(*a.measure, *b.measure, results_.test_images);
    std::string verdict = record::kNotResolved;
    if (apart - half > region.least && apart + half < region.most) verdict = record::kHolds;
    if (apart + half < region.least || apart - half > region.most) verdict = record::kDoesNotHold;
    if (!moot.empty()) verdict = record::kNotResolved;
    claims_.push_back(
        {text, verdict,
         fmt::format("{} {}, {} {}: difference {:+.1f} +- {:.1f}{}{}", a.words, described(*a.measure),
                     b.words, described(*b.measure), apart, half, moot.empty() ? "" : "; ", moot),
         in_paper});
    return verdict;
  }

  void faster(const std::string& text, const std::string& name, const std::string& than);
  void clipping(const std::string& text, const std::vector<std::string>& names);

 private:
  static bool complete(const Arm& arm) {
    return std::all_of(arm.runs.begin(), arm.runs.end(), [](const auto& run) { return run.finished; });
  }
  void unfinished(const std::string& text, bool in_paper) {
    claims_.push_back({text, record::kNotResolved, "its arms are not finished", in_paper});
  }

  const Results& results_;
  std::vector<Claim> claims_;
};

// The first step at which a seed's curve is at `goal` or above; -1 if it never is.
int64_t first_step(const Arm& arm, size_t seed, double goal) {
  for (const record::CurvePoint& point : arm.curve) {
    if (seed < point.values.size() && point.values[seed] >= goal) return point.step;
  }
  return -1;
}

void Judge::faster(const std::string& text, const std::string& name, const std::string& than) {
  const Arm* quick = find(name);
  const Arm* slow = find(than);
  if (quick == nullptr || slow == nullptr) return;
  if (!complete(*quick) || !complete(*slow)) return unfinished(text, /*in_paper=*/true);
  const size_t seeds = std::min(quick->test_accuracy.values.size(), slow->test_accuracy.values.size());
  size_t wins = 0, reached_in = 0;
  double share = 0.0;
  for (size_t seed = 0; seed < seeds; ++seed) {
    const double goal = slow->test_accuracy.values[seed];
    const int64_t reached = first_step(*quick, seed, goal), needed = first_step(*slow, seed, goal);
    if (reached < 0) continue;
    ++reached_in;
    if (reached < needed) ++wins;
    share += static_cast<double>(reached) / static_cast<double>(needed);
  }
  const std::string verdict =
      wins == seeds ? record::kHolds : (wins == 0 ? record::kDoesNotHold : record::kNotResolved);
  std::string evidence =
      fmt::format("{} is earlier at the final accuracy of {} in {} of {} seeds", name, than, wins, seeds);
  if (reached_in > 0) {
    evidence +=
        fmt::format(", on average in {:.0f} % of its steps", 100.0 * share / static_cast<double>(reached_in));
  }
  if (reached_in < seeds) evidence += fmt::format("; it does not get there in {}", seeds - reached_in);
  claims_.push_back({text, verdict, evidence, true});
}

// Over the records of the time when both limits have reached their final values.
struct Clipped {
  double r = 0.0;
  double d = 0.0;
  double records = 0.0;
};

Clipped clipped_at_the_end(const Arm& arm) {
  Clipped clipped;
  if (arm.training.empty()) return clipped;
  const record::TrainingPoint& last = arm.training.back();
  for (const record::TrainingPoint& point : arm.training) {
    if (point.r_max < last.r_max || point.d_max < last.d_max) continue;
    clipped.r += point.r_clipped;
    clipped.d += point.d_clipped;
    clipped.records += 1.0;
  }
  clipped.r /= clipped.records;
  clipped.d /= clipped.records;
  return clipped;
}

void Judge::clipping(const std::string& text, const std::vector<std::string>& names) {
  double most_r = 0.0, most_d = 0.0;
  size_t found = 0;
  for (const std::string& name : names) {
    const Arm* arm = find(name);
    if (arm == nullptr) continue;
    if (!complete(*arm)) return unfinished(text, /*in_paper=*/true);
    const Clipped clipped = clipped_at_the_end(*arm);
    most_r = std::max(most_r, clipped.r);
    most_d = std::max(most_d, clipped.d);
    ++found;
  }
  if (found == 0) return;
  const bool holds = most_r <= kFewClipped && most_d <= kNoneClipped;
  claims_.push_back(
      {text, holds ? record::kHolds : record::kDoesNotHold,
       fmt::format("at the final limits at most {:.2f} % of r and {:.3f} % of d, in the arms of the "
                   "paper",
                   100.0 * most_r, 100.0 * most_d),
       true});
}

void judge_biased(Judge* judge, const std::string& prefix, const std::string& words,
                  const std::string& split_arm, const std::string& split_words, bool in_paper) {
  const std::string batchnorm = prefix + "-batchnorm", renorm = prefix + "-renorm";
  const auto iid = judge->test("iid-batchnorm"), biased = judge->test(batchnorm);
  const std::string loss =
      judge->difference(fmt::format("On {} batchnorm loses (at least {:.0f} points)", words, kClearLoss), iid,
                        biased, {kClearLoss, kInfinity}, in_paper);
  judge->difference(fmt::format("On {} its training accuracy, too, is below the i.i.d. test accuracy", words),
                    iid, judge->training_set(batchnorm), {0.0, kInfinity}, in_paper);
  // What is said to recover is about a loss.
  std::string moot;
  if (loss == record::kDoesNotHold) moot = "without a loss there is nothing to recover";
  if (loss == record::kNotResolved) moot = "whether there is a loss to recover is not resolved";
  const auto recovers = [&](const std::string& text, const Judge::Subject& a, const Judge::Subject& b,
                            double least) {
    judge->difference(fmt::format("On {} {}", words, text), a, b, {least, kInfinity}, in_paper, moot);
  };
  recovers("batch statistics at evaluation recover at least part", judge->batch_statistics(batchnorm), biased,
           0.0);
  recovers(split_words + " recovers at least part", judge->test(split_arm), biased, 0.0);
  recovers("Batch Renorm recovers at least part", judge->test(renorm), biased, 0.0);
  recovers(fmt::format("Batch Renorm recovers to its i.i.d. level (at most {:.0f} points below)", kEqual),
           judge->test(renorm), judge->test("iid-renorm"), -kEqual);
}

std::string test_text(const Results& results) {
  const bool has_seeds = std::any_of(results.arms.begin(), results.arms.end(),
                                     [](const Arm& arm) { return arm.test_accuracy.values.size() > 1; });
  const std::string interval =
      has_seeds
          ? "Differences carry Welch's 95 % interval over the seeds."
          : "With one seed, differences carry the 95 % interval that the size of the test set gives; how "
            "much seeds differ is not in it.";
  return interval +
         " A claim holds if the whole interval lies where the claim puts it, does not hold if all of it lies "
         "elsewhere, and is not resolved otherwise. \"Faster\" means an earlier evaluation in every seed. "
         "Few clipped: at most 5 % of r; none: at most 0.1 % of d.";
}

}  // namespace

void judge(Results* results) {
  Judge judge(*results);
  judge.difference(
      fmt::format("Batchnorm and Batch Renorm agree on i.i.d. minibatches (within {:.0f} points)", kEqual),
      judge.test("iid-renorm"), judge.test("iid-batchnorm"), {-kEqual, kEqual}, true);
  judge.difference("In groups of 4, Batch Renorm beats batchnorm", judge.test("micro4-renorm"),
                   judge.test("micro4-batchnorm"), {0.0, kInfinity}, true);
  judge.faster("In groups of 4, Batch Renorm is faster", "micro4-renorm", "micro4-batchnorm");
  judge.difference("In groups of 4, Batch Renorm stays below groups of 32", judge.test("iid-renorm"),
                   judge.test("micro4-renorm"), {0.0, kInfinity}, true);
  judge_biased(&judge, "pairs", "pairs", "pairs-halves", "splitting the pairs", true);
  judge.clipping("Few r and no d are clipped", {"iid-renorm", "micro4-renorm", "pairs-renorm"});
  judge_biased(&judge, "blocks", "blocks", "blocks-dealt", "dealing the images", false);
  results->test = test_text(*results);
  results->claims = judge.take();
  if (results->claims.empty()) results->test.clear();
}

}  // namespace renorm::experiments
