#include "experiments/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace renorm::experiments {
namespace {

using record::Arm;
using record::Claim;
using record::Measure;
using record::Results;

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

// What the size of the test set alone gives.
double sampling_half_width(double a, double b, int64_t test_images) {
  const auto images = static_cast<double>(test_images);
  const auto variance = [images](double percent) { return percent * (100.0 - percent) / images; };
  return 1.96 * std::sqrt(variance(a) + variance(b));
}

// Allows different spreads, and knows nothing of seeds that belong together.
double welch_half_width(const Measure& a, const Measure& b) {
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

double paired_half_width(const Measure& differences) {
  const auto count = static_cast<double>(differences.values.size());
  return student_quantile(count - 1.0) * differences.spread / std::sqrt(count);
}

// The differences of the seeds that both arms have. Both arms are finished.
Measure differences_by_seed(const Arm& a, const Measure& of_a, const Arm& b, const Measure& of_b) {
  std::map<uint64_t, double> by_seed;
  for (size_t i = 0; i < of_b.values.size(); ++i) by_seed[b.runs[i].seed] = of_b.values[i];
  std::vector<double> values;
  for (size_t i = 0; i < of_a.values.size(); ++i) {
    const auto other = by_seed.find(a.runs[i].seed);
    if (other != by_seed.end()) values.push_back(of_a.values[i] - other->second);
  }
  return record::measure_of(values);
}

std::string described(const Measure& measure) {
  return measure.values.size() > 1 ? fmt::format("{:.1f} +- {:.1f}", measure.mean, measure.spread)
                                   : fmt::format("{:.1f}", measure.mean);
}

// The first step at which a seed's curve is at `goal` or above; -1 if it never is.
int64_t first_step(const Arm& arm, size_t seed, double goal) {
  for (const record::CurvePoint& point : arm.curve) {
    if (seed < point.values.size() && point.values[seed] >= goal) return point.step;
  }
  return -1;
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

bool complete(const Arm& arm) {
  return std::all_of(arm.runs.begin(), arm.runs.end(), [](const auto& run) { return run.finished; });
}

// A measure of an arm, with words for it: "ARM on its training set".
struct Found {
  const Arm* arm = nullptr;
  const Measure* measure = nullptr;  // nullptr: not part of the results
  std::string words;
};

class Judge {
 public:
  explicit Judge(const Results& results) : results_(results) {}

  std::vector<Claim> take() { return std::move(claims_); }

  void judge(const ClaimPlan& plan) {
    switch (plan.kind) {
      case ClaimPlan::Kind::kDifference:
        return difference(plan);
      case ClaimPlan::Kind::kFaster:
        return faster(plan);
      case ClaimPlan::Kind::kClipping:
        return clipping(plan);
    }
  }

 private:
  const Arm* arm_named(const std::string& name) const {
    const auto found = std::find_if(results_.arms.begin(), results_.arms.end(),
                                    [&](const Arm& arm) { return arm.name == name; });
    return found == results_.arms.end() ? nullptr : &*found;
  }

  Found find(const Subject& subject) const {
    const Arm* arm = arm_named(subject.arm);
    if (arm == nullptr) return {};
    const auto part = [](const std::optional<Measure>& measure) { return measure ? &*measure : nullptr; };
    switch (subject.measure) {
      case Subject::Measure::kTrainingSet:
        return {arm, part(arm->train_accuracy), subject.arm + " on its training set"};
      case Subject::Measure::kBatchStatistics:
        return {arm, part(arm->batch_statistics_accuracy), subject.arm + " with batch statistics"};
      case Subject::Measure::kTest:
        break;
    }
    return {arm, &arm->test_accuracy, subject.arm};
  }

  // Why there is nothing to recover; "" if there is a loss, or if its claim was not judged.
  std::string moot(const ClaimPlan& plan) const {
    for (const Claim& claim : claims_) {
      if (plan.recovers_from.empty() || claim.text != plan.recovers_from) continue;
      if (claim.verdict == record::kDoesNotHold) return "without a loss there is nothing to recover";
      if (claim.verdict == record::kNotResolved && claim.evidence != kUnfinished) {
        return "whether there is a loss to recover is not resolved";
      }
    }
    return "";
  }

  void difference(const ClaimPlan& plan) {
    const Found a = find(plan.a), b = find(plan.b);
    if (a.measure == nullptr || b.measure == nullptr) return;
    if (!complete(*a.arm) || !complete(*b.arm)) return unfinished(plan);
    const record::Difference found = difference_of(a, b);
    const double apart = found.mean, half = found.half_width;
    std::string verdict = record::kNotResolved;
    if (apart - half > plan.above && apart + half < plan.below) verdict = record::kHolds;
    if (apart + half < plan.above || apart - half > plan.below) verdict = record::kDoesNotHold;
    const std::string reason = moot(plan);
    if (!reason.empty()) verdict = record::kNotResolved;
    add(plan, verdict,
        fmt::format("{} {}, {} {}: difference {:+.1f} +- {:.1f}{}{}", a.words, described(*a.measure), b.words,
                    described(*b.measure), apart, half, reason.empty() ? "" : "; ", reason));
    claims_.back().difference = found;
  }

  // Arms of the same seed share data, initial weights and all randomness that they can share, so they are
  // compared seed by seed. Without two seeds in common, each arm's mean counts.
  record::Difference difference_of(const Found& a, const Found& b) const {
    record::Difference found;
    const bool has_seeds = a.measure->values.size() > 1 && b.measure->values.size() > 1;
    if (has_seeds) found.welch = welch_half_width(*a.measure, *b.measure);
    const Measure by_seed = differences_by_seed(*a.arm, *a.measure, *b.arm, *b.measure);
    if (by_seed.values.size() > 1) {
      found.mean = by_seed.mean;
      found.half_width = paired_half_width(by_seed);
      return found;
    }
    found.mean = a.measure->mean - b.measure->mean;
    found.half_width = has_seeds
                           ? *found.welch
                           : sampling_half_width(a.measure->mean, b.measure->mean, results_.test_images);
    return found;
  }

  void faster(const ClaimPlan& plan);
  void clipping(const ClaimPlan& plan);

  void add(const ClaimPlan& plan, const std::string& verdict, const std::string& evidence) {
    claims_.push_back({plan.text, verdict, evidence, plan.in_paper, std::nullopt});
  }
  void unfinished(const ClaimPlan& plan) { add(plan, record::kNotResolved, kUnfinished); }

  static constexpr const char* kUnfinished = "its arms are not finished";

  const Results& results_;
  std::vector<Claim> claims_;
};

void Judge::faster(const ClaimPlan& plan) {
  const Arm* quick = arm_named(plan.a.arm);
  const Arm* slow = arm_named(plan.b.arm);
  if (quick == nullptr || slow == nullptr) return;
  if (!complete(*quick) || !complete(*slow)) return unfinished(plan);
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
  std::string evidence = fmt::format("{} is earlier at the final accuracy of {} in {} of {} seeds",
                                     plan.a.arm, plan.b.arm, wins, seeds);
  if (reached_in > 0) {
    evidence +=
        fmt::format(", on average in {:.0f} % of its steps", 100.0 * share / static_cast<double>(reached_in));
  }
  if (reached_in < seeds) evidence += fmt::format("; it does not get there in {}", seeds - reached_in);
  add(plan, verdict, evidence);
}

void Judge::clipping(const ClaimPlan& plan) {
  double max_r = 0.0, max_d = 0.0;
  size_t found = 0;
  for (const std::string& name : plan.arms) {
    const Arm* arm = arm_named(name);
    if (arm == nullptr) continue;
    if (!complete(*arm)) return unfinished(plan);
    const Clipped clipped = clipped_at_the_end(*arm);
    max_r = std::max(max_r, clipped.r);
    max_d = std::max(max_d, clipped.d);
    ++found;
  }
  if (found == 0) return;
  const bool holds = max_r <= plan.max_r && max_d <= plan.max_d;
  add(plan, holds ? record::kHolds : record::kDoesNotHold,
      fmt::format("at the final limits at most {:.2f} % of r and {:.3f} % of d{}", 100.0 * max_r,
                  100.0 * max_d, plan.in_paper ? ", in the arms of the paper" : ""));
}

// How verdicts are reached.
std::string test_text(const std::vector<ClaimPlan>& plans, const Results& results) {
  const bool has_seeds = std::any_of(results.arms.begin(), results.arms.end(),
                                     [](const Arm& arm) { return arm.test_accuracy.values.size() > 1; });
  std::string text =
      has_seeds
          ? "Differences are taken seed by seed and carry Student's 95 % interval over the seeds."
          : "With one seed, differences carry the 95 % interval that the size of the test set gives; how "
            "much seeds differ is not in it.";
  text +=
      " A claim holds if the whole interval lies where the claim puts it, does not hold if all of it lies "
      "elsewhere, and is not resolved otherwise.";
  const auto first = [&](ClaimPlan::Kind kind) {
    return std::find_if(plans.begin(), plans.end(), [&](const ClaimPlan& plan) { return plan.kind == kind; });
  };
  if (first(ClaimPlan::Kind::kFaster) != plans.end()) {
    text += " \"Faster\" means an earlier evaluation in every seed.";
  }
  const auto clipping = first(ClaimPlan::Kind::kClipping);
  if (clipping != plans.end()) {
    text += fmt::format(" Few clipped: at most {:g} % of r; none: at most {:g} % of d.",
                        100.0 * clipping->max_r, 100.0 * clipping->max_d);
  }
  return text;
}

}  // namespace

void judge(const std::vector<ClaimPlan>& plans, Results* results) {
  Judge judge(*results);
  for (const ClaimPlan& plan : plans) judge.judge(plan);
  results->test = test_text(plans, *results);
  results->claims = judge.take();
  if (results->claims.empty()) results->test.clear();
}

}  // namespace renorm::experiments
