#include "experiments/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
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

// The 97.5 % quantile of Student's t: exact values where they are far from normal, then the expansion in
// 1 / degrees (Abramowitz and Stegun 26.7.5).
double student_quantile(int64_t degrees) {
  constexpr double kExact[] = {12.706, 4.303, 3.182, 2.776};
  if (degrees <= 4) return kExact[degrees - 1];
  constexpr double z = 1.959964;
  const auto n = static_cast<double>(degrees);
  const double first = (std::pow(z, 3) + z) / 4.0;
  const double second = (5.0 * std::pow(z, 5) + 16.0 * std::pow(z, 3) + 3.0 * z) / 96.0;
  return z + first / n + second / (n * n);
}

// Squared deviations from the mean over the seeds, summed over measures.
struct Pool {
  double squares = 0.0;
  int64_t degrees = 0;

  void add(const Measure& measure) {
    if (measure.values.size() < 2) return;
    const auto degrees_here = static_cast<int64_t>(measure.values.size()) - 1;
    squares += measure.spread * measure.spread * static_cast<double>(degrees_here);
    degrees += degrees_here;
  }
};

// How far the difference of two accuracies can be from what was measured.
class Uncertainty {
 public:
  explicit Uncertainty(const Results& results) : images_(static_cast<double>(results.test_images)) {
    for (const Arm& arm : results.arms) {
      pool_.add(arm.test_accuracy);
      if (arm.train_accuracy) pool_.add(*arm.train_accuracy);
      if (arm.batch_statistics_accuracy) pool_.add(*arm.batch_statistics_accuracy);
    }
  }

  bool from_seeds() const { return pool_.degrees > 0; }
  int64_t degrees() const { return pool_.degrees; }
  double spread() const { return std::sqrt(pool_.squares / static_cast<double>(pool_.degrees)); }

  double half_width(const Measure& a, const Measure& b) const {
    if (!from_seeds()) return 1.96 * std::sqrt(binomial_variance(a.mean) + binomial_variance(b.mean));
    const double shares =
        1.0 / static_cast<double>(a.values.size()) + 1.0 / static_cast<double>(b.values.size());
    return student_quantile(degrees()) * spread() * std::sqrt(shares);
  }

 private:
  double binomial_variance(double percent) const {
    return images_ > 0.0 ? percent * (100.0 - percent) / images_ : std::numeric_limits<double>::infinity();
  }

  double images_;
  Pool pool_;
};

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
  explicit Judge(const Results& results) : results_(results), uncertainty_(results) {}

  const Uncertainty& uncertainty() const { return uncertainty_; }
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

  void difference(const std::string& text, const Subject& a, const Subject& b, Region region, bool in_paper) {
    if (a.measure == nullptr || b.measure == nullptr) return;
    if (!complete(*a.arm) || !complete(*b.arm)) return unfinished(text, in_paper);
    const double apart = a.measure->mean - b.measure->mean;
    const double half = uncertainty_.half_width(*a.measure, *b.measure);
    std::string verdict = record::kNotResolved;
    if (apart - half > region.least && apart + half < region.most) verdict = record::kHolds;
    if (apart + half < region.least || apart - half > region.most) verdict = record::kDoesNotHold;
    claims_.push_back({text, verdict,
                       fmt::format("{} {}, {} {}: difference {:+.1f} +- {:.1f}", a.words,
                                   described(*a.measure), b.words, described(*b.measure), apart, half),
                       in_paper});
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
  Uncertainty uncertainty_;
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
  const size_t seeds = slow->test_accuracy.values.size();
  size_t wins = 0;
  double share = 0.0;
  for (size_t seed = 0; seed < seeds; ++seed) {
    const int64_t reached = first_step(*quick, seed, slow->test_accuracy.values[seed]);
    const int64_t needed = first_step(*slow, seed, slow->test_accuracy.values[seed]);
    if (reached >= 0 && reached < needed) ++wins;
    share += static_cast<double>(reached < 0 ? slow->steps : reached) / static_cast<double>(needed);
  }
  const std::string verdict =
      wins == seeds ? record::kHolds : (wins == 0 ? record::kDoesNotHold : record::kNotResolved);
  claims_.push_back(
      {text, verdict,
       fmt::format("{} reaches the final accuracy of {} in {:.0f} % of its steps, earlier in {} of "
                   "{} seeds",
                   name, than, 100.0 * share / static_cast<double>(seeds), wins, seeds),
       true});
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
  const auto below_iid = judge->test("iid-batchnorm");
  judge->difference(fmt::format("On {} batchnorm loses (at least {:.0f} points)", words, kClearLoss),
                    below_iid, judge->test(batchnorm), {kClearLoss, kInfinity}, in_paper);
  judge->difference(fmt::format("On {} its training accuracy, too, is below the i.i.d. test accuracy", words),
                    below_iid, judge->training_set(batchnorm), {0.0, kInfinity}, in_paper);
  judge->difference(fmt::format("On {} batch statistics at evaluation recover part", words),
                    judge->batch_statistics(batchnorm), judge->test(batchnorm), {0.0, kInfinity}, in_paper);
  judge->difference(fmt::format("On {} {} recovers part", words, split_words), judge->test(split_arm),
                    judge->test(batchnorm), {0.0, kInfinity}, in_paper);
  judge->difference(fmt::format("On {} Batch Renorm beats batchnorm", words), judge->test(renorm),
                    judge->test(batchnorm), {0.0, kInfinity}, in_paper);
  judge->difference(
      fmt::format("On {} Batch Renorm recovers to the i.i.d. level (at most {:.0f} points below)", words,
                  kEqual),
      judge->test(renorm), below_iid, {-kEqual, kInfinity}, in_paper);
}

std::string test_text(const Uncertainty& uncertainty) {
  const std::string interval =
      uncertainty.from_seeds()
          ? fmt::format(
                "Differences carry a 95 % interval: Student's t with {} degrees of freedom and a spread of "
                "{:.2f} points, pooled over all accuracies of all arms.",
                uncertainty.degrees(), uncertainty.spread())
          : "With one seed, differences carry the 95 % interval that the size of the test set gives; how "
            "much "
            "seeds differ is not in it.";
  return interval +
         " A claim holds if the whole interval lies where the claim puts it, does not hold if all of it lies "
         "elsewhere, and is not resolved otherwise. \"Faster\" means an earlier evaluation in every seed. "
         "Few "
         "clipped: at most 5 % of r; none: at most 0.1 % of d.";
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
  results->test = test_text(judge.uncertainty());
  results->claims = judge.take();
  if (results->claims.empty()) results->test.clear();
}

}  // namespace renorm::experiments
