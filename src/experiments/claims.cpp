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

// The 97.5 % quantile of Student's t for any number of degrees of at least 1: exact for 1 to 5, linear
// between them in 1 / degrees, then the expansion in 1 / degrees (Abramowitz and Stegun 26.7.5).
double student_quantile(double degrees) {
  constexpr double kExact[] = {12.706, 4.303, 3.182, 2.776, 2.571};
  if (degrees < 5.0) {
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

double student_half_width(const Measure& measure) {
  const auto count = static_cast<double>(measure.values.size());
  return student_quantile(count - 1.0) * measure.spread / std::sqrt(count);
}

// Of an accuracy in percent, from the size of the test set.
double sampling_variance(double percent, int64_t images) {
  return percent * (100.0 - percent) / static_cast<double>(images);
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
      case ClaimPlan::Kind::kFalls:
        return falls(plan);
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
      case Subject::Measure::kLonger:
        return {arm, arm->extra_rows && !arm->others.empty() ? &arm->others.back().measure : nullptr,
                subject.arm + " on longer sequences"};
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

  // Where an interval lies.
  static std::string verdict_of(const record::Difference& found, double above, double below) {
    const double low = found.mean - found.half_width, high = found.mean + found.half_width;
    if (low > above && high < below) return record::kHolds;
    return high < above || low > below ? record::kDoesNotHold : record::kNotResolved;
  }

  void difference(const ClaimPlan& plan) {
    const Found a = find(plan.a), b = find(plan.b), of = find(plan.of);
    const bool shares = plan.share > 0.0;
    if (a.measure == nullptr || b.measure == nullptr || (shares && of.measure == nullptr)) return;
    if (!complete(*a.arm) || !complete(*b.arm) || (shares && !complete(*of.arm))) return unfinished(plan);
    const record::Difference apart = sum_of({{&a, 1.0}, {&b, -1.0}});
    record::Difference judged = apart;
    std::string evidence =
        fmt::format("{} {}, {} {}: difference {:+.1f} +- {:.1f}", a.words, described(*a.measure), b.words,
                    described(*b.measure), apart.mean, apart.half_width);
    if (shares) {
      judged = sum_of({{&a, 1.0}, {&b, plan.share - 1.0}, {&of, -plan.share}});
      evidence +=
          fmt::format(" of a loss of {:.1f}, {:+.1f} +- {:.1f} from {:.0f} % of it",
                      of.measure->mean - b.measure->mean, judged.mean, judged.half_width, 100.0 * plan.share);
    }
    std::string verdict = verdict_of(judged, plan.above, plan.below);
    const std::string reason = moot(plan);
    if (!reason.empty()) {
      verdict = record::kNotResolved;
      evidence += "; " + reason;
    }
    add(plan, verdict, evidence);
    claims_.back().difference = judged;
  }

  // A measure with its factor in a sum.
  struct Term {
    const Found* found;
    double factor;
  };

  // Arms of the same seed share data, initial weights and all randomness that they can share, so they are
  // compared seed by seed. Without two seeds in common, the means are compared, with the interval that the
  // sizes of the test sets give.
  record::Difference sum_of(const std::vector<Term>& terms) const {
    record::Difference result;
    const auto has_seeds = [](const Term& term) { return term.found->measure->values.size() > 1; };
    if (terms.size() == 2 && has_seeds(terms[0]) && has_seeds(terms[1])) {
      result.welch = welch_half_width(*terms[0].found->measure, *terms[1].found->measure);
    }
    const Measure by_seed = record::measure_of(sums_by_seed(terms));
    if (by_seed.values.size() > 1) {
      result.mean = by_seed.mean;
      result.half_width = student_half_width(by_seed);
      return result;
    }
    double variance = 0.0;
    for (const Term& term : terms) {
      const double mean = term.found->measure->mean;
      result.mean += term.factor * mean;
      variance += term.factor * term.factor * sampling_variance(mean, images_of(*term.found->arm));
    }
    result.half_width = 1.96 * std::sqrt(variance);
    return result;
  }

  // Of the seeds that all have. The arms are finished.
  static std::vector<double> sums_by_seed(const std::vector<Term>& terms) {
    std::map<uint64_t, std::pair<size_t, double>> sums;  // by seed: the number of terms, their sum
    for (const Term& term : terms) {
      const std::vector<double>& values = term.found->measure->values;
      for (size_t i = 0; i < std::min(values.size(), term.found->arm->runs.size()); ++i) {
        auto& [count, sum] = sums[term.found->arm->runs[i].seed];
        ++count;
        sum += term.factor * values[i];
      }
    }
    std::vector<double> complete;
    for (const auto& entry : sums) {
      if (entry.second.first == terms.size()) complete.push_back(entry.second.second);
    }
    return complete;
  }

  int64_t images_of(const Arm& arm) const { return arm.test_images.value_or(results_.test_images); }

  void faster(const ClaimPlan& plan);
  void falls(const ClaimPlan& plan);
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

void Judge::falls(const ClaimPlan& plan) {
  const Arm* arm = arm_named(plan.a.arm);
  if (arm == nullptr) return;
  if (!complete(*arm)) return unfinished(plan);
  std::vector<double> peaks, falls;
  for (size_t seed = 0; seed < arm->test_accuracy.values.size(); ++seed) {
    double peak = arm->test_accuracy.values[seed];
    for (const record::CurvePoint& point : arm->curve) {
      if (seed < point.values.size()) peak = std::max(peak, point.values[seed]);
    }
    peaks.push_back(peak);
    falls.push_back(peak - arm->test_accuracy.values[seed]);
  }
  const Measure peak = record::measure_of(peaks), fall = record::measure_of(falls);
  record::Difference found;
  found.mean = fall.mean;
  found.half_width = falls.size() > 1
                         ? student_half_width(fall)
                         : 1.96 * std::sqrt(sampling_variance(peak.mean, images_of(*arm)) +
                                            sampling_variance(arm->test_accuracy.mean, images_of(*arm)));
  add(plan, verdict_of(found, plan.above, plan.below),
      fmt::format("{} {} at its best evaluation, {} at the end: {:.1f} +- {:.1f} lower", plan.a.arm,
                  described(peak), described(arm->test_accuracy), found.mean, found.half_width));
  claims_.back().difference = found;
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
