#include "report/setting_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "report/format.h"

namespace renorm::report {
namespace {

using record::Arm;

// Pixels. The width is that of the page: places across are in percent.
constexpr double kHeight = 260.0;
constexpr double kCap = 4.0;       // half the width of the ends of a bar
constexpr double kApart = 6.0;     // between the lines of two series at one place
constexpr double kMaxSpan = 30.0;  // of all lines at one place
constexpr double kPixelsPerLetter = 7.0;
constexpr double kWide = 780.0;  // the width of a chart on a screen and on a phone, for its tick texts
constexpr double kNarrow = 270.0;
constexpr double kMargin = 0.06;        // on both sides, of the width
constexpr size_t kMaxTickLetters = 10;  // the last one stays within a phone
constexpr double kMaxTicksUp = 6.0;
constexpr double kMaxDrawable = 1e9;
constexpr double kMaxPlace = 1e18;

bool is_drawable(const record::Measure& measure) {
  return !measure.values.empty() && std::fabs(measure.mean) < kMaxDrawable;
}

double spread_of(const record::Measure& measure) {
  return measure.values.size() > 1 && measure.spread > 0.0 && measure.spread < kMaxDrawable ? measure.spread
                                                                                            : 0.0;
}

bool has_place(const Arm& arm) { return arm.x && std::fabs(arm.x->at) < kMaxPlace; }

struct Series {
  std::string name;  // escaped
  Look look;
  bool renorm = false;
  std::vector<const Arm*> points;  // from left to right
};

// A line across the whole chart.
struct Level {
  std::string name;          // escaped
  std::optional<Look> look;  // nothing for the reference
  double value = 0.0;
};

struct Content {
  std::vector<Series> series;
  std::vector<Level> levels;
};

Content content_of(const Page& page, const FigureArms& entry) {
  Content content;
  std::map<std::string, size_t> known;
  std::vector<size_t> levels;
  for (const size_t index : entry.arms) {
    const Arm& arm = page.results.arms[index];
    if (!is_drawable(arm.test_accuracy)) continue;
    if (!has_place(arm)) {
      levels.push_back(index);
      continue;
    }
    const std::string name = arm.series && !arm.series->empty() ? escaped(*arm.series) : page.measure;
    const auto [found, is_new] = known.emplace(name, content.series.size());
    if (is_new) content.series.push_back({name, page.looks[index], arm.renorm, {}});
    content.series[found->second].points.push_back(&arm);
  }
  for (Series& series : content.series) {
    std::stable_sort(series.points.begin(), series.points.end(),
                     [](const Arm* a, const Arm* b) { return a->x->at < b->x->at; });
  }
  const std::optional<size_t> reference = reference_of(page.results, entry.figure);
  const bool repeated = reference && is_drawable(page.results.arms[*reference].test_accuracy) &&
                        std::find(entry.arms.begin(), entry.arms.end(), *reference) == entry.arms.end();
  if (repeated) levels.push_back(*reference);
  std::vector<std::string> taken;
  for (const Series& series : content.series) taken.push_back(series.name);
  const std::vector<std::string> labels = distinct_labels(page.results.arms, levels, taken);
  for (size_t i = 0; i < levels.size(); ++i) {
    const bool is_reference = repeated && i + 1 == levels.size();
    content.levels.push_back({labels[i], is_reference ? std::nullopt : std::optional(page.looks[levels[i]]),
                              page.results.arms[levels[i]].test_accuracy.mean});
  }
  return content;
}

// The horizontal axis: the distinct places with their texts.
class Across {
 public:
  Across(const Content& content, bool logarithmic) : logarithmic_(logarithmic) {
    for (const Series& series : content.series) {
      for (const Arm* arm : series.points) places_.emplace(arm->x->at, arm->x->text);
    }
    if (!places_.empty() && places_.begin()->first <= 0.0) logarithmic_ = false;
  }

  bool logarithmic() const { return logarithmic_; }
  const std::map<double, std::string>& places() const { return places_; }

  // From 0 at the left to 1 at the right.
  double share(double at) const {
    const double low = scaled(places_.begin()->first), high = scaled(places_.rbegin()->first);
    if (!(high > low)) return 0.5;
    return kMargin + (1.0 - 2.0 * kMargin) * (scaled(at) - low) / (high - low);
  }

 private:
  double scaled(double at) const { return logarithmic_ ? std::log(at) : at; }

  bool logarithmic_;
  std::map<double, std::string> places_;
};

// The vertical axis, from one round number to another.
class Up {
 public:
  explicit Up(const Content& content) {
    double low = kMaxDrawable, high = -kMaxDrawable, min_mean = kMaxDrawable, max_mean = -kMaxDrawable;
    const auto include = [&](double value, double spread) {
      low = std::min(low, value - spread), high = std::max(high, value + spread);
      min_mean = std::min(min_mean, value), max_mean = std::max(max_mean, value);
    };
    for (const Level& level : content.levels) include(level.value, 0.0);
    for (const Series& series : content.series) {
      for (const Arm* arm : series.points) include(arm->test_accuracy.mean, spread_of(arm->test_accuracy));
    }
    unit_ = unit_for(std::max(high - low, 1.0) / kMaxTicksUp);
    low_ = std::floor(low / unit_) * unit_;
    high_ = std::max(std::ceil(high / unit_), std::floor(low / unit_) + 1.0) * unit_;
    // Accuracies lie between 0 and 100; bars may not.
    if (min_mean >= 0.0) low_ = std::max(low_, 0.0);
    if (max_mean <= 100.0) high_ = std::min(high_, std::max(100.0, low_ + unit_));
  }

  // In pixels from the top; at an edge for a value beyond it.
  double y(double value) const { return kHeight * (high_ - std::clamp(value, low_, high_)) / (high_ - low_); }

  std::vector<double> ticks() const {
    std::vector<double> found;
    const auto first = std::ceil(low_ / unit_ - 1e-9), last = std::floor(high_ / unit_ + 1e-9);
    for (double multiple = first; multiple <= last; multiple += 1.0) found.push_back(multiple * unit_);
    return found;
  }

 private:
  static double unit_for(double rough) {
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= 0.999 * rough) return factor * power;
    }
    return 10.0 * power;
  }

  double unit_ = 1.0;
  double low_ = 0.0;
  double high_ = 1.0;
};

std::string ticks_up(const Up& up) {
  std::string text;
  for (const double value : up.ticks()) {
    text += fmt::format(R"svg(<line x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}" stroke="var(--grid)"/>)svg"
                        R"svg(<text x="-8" y="{1:.1f}" text-anchor="end">{2:g}</text>)svg"
                        "\n",
                        up.y(value), up.y(value) + 4.0, value);
  }
  return text;
}

size_t letters_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

// Whether each text, centred at its share of `width`, is clear of the one shown before it.
std::vector<bool> fitting(const Across& across, double width) {
  std::vector<bool> fits;
  double free_from = -width;
  for (const auto& [at, text] : across.places()) {
    const double half =
        0.5 * kPixelsPerLetter * static_cast<double>(letters_of(shortened(text, kMaxTickLetters)));
    const double middle = width * across.share(at);
    fits.push_back(middle - half >= free_from);
    if (fits.back()) free_from = middle + half + kPixelsPerLetter;
  }
  return fits;
}

std::string ticks_across(const Across& across) {
  const std::vector<bool> wide = fitting(across, kWide), narrow = fitting(across, kNarrow);
  std::string text;
  size_t i = 0;
  for (const auto& [at, name] : across.places()) {
    const double percent_across = 100.0 * across.share(at);
    text += fmt::format(R"svg(<line x1="{0:.2f}%" x2="{0:.2f}%" y1="{1}" y2="{2}" stroke="var(--axis)"/>)svg",
                        percent_across, kHeight, kHeight + 5.0);
    if (wide[i]) {
      text += fmt::format(R"svg(<text class="across{}" x="{:.2f}%" y="{}" text-anchor="middle">{}</text>)svg",
                          narrow[i] ? "" : " wide", percent_across, kHeight + 19.0,
                          escaped(shortened(name, kMaxTickLetters)));
    }
    text += "\n";
    ++i;
  }
  return text;
}

std::string level_line(const Level& level, const Up& up) {
  return fmt::format(
      R"svg(<line class="level-line" x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}" stroke="var(--{1})" stroke-width="{2}" stroke-dasharray="{3}"><title>{4}: {5}</title></line>)svg"
      "\n",
      up.y(level.value), level.look ? fmt::format("c{}", level.look->colour) : "reference",
      level.look ? "2" : "1.2", level.look ? dashes(*level.look) : "none", level.name, percent(level.value));
}

// A circle, filled for Batch Renorm, and the bar of its spread.
std::string mark(const Series& series, const Arm& arm, const Across& across, const Up& up) {
  const double mean = arm.test_accuracy.mean, spread = spread_of(arm.test_accuracy);
  std::string text = fmt::format(
      R"svg(<svg class="point" x="{:.2f}%" overflow="visible"><title>{}, {}: {}</title>)svg",
      100.0 * across.share(arm.x->at), series.name, escaped(arm.x->text), percent(arm.test_accuracy));
  if (spread > 0.0) {
    text += fmt::format(
        R"svg(<path class="spread" d="M{0} {1:.1f}H{2}M0 {1:.1f}V{3:.1f}M{0} {3:.1f}H{2}" stroke="var(--c{4})" stroke-width="1.5" fill="none"/>)svg",
        -kCap, up.y(mean + spread), kCap, up.y(mean - spread), series.look.colour);
  }
  return text +
         fmt::format(
             R"svg(<circle cy="{:.1f}" r="4" stroke="var(--c{})" stroke-width="2" fill="var(--{})"/></svg>)svg"
             "\n",
             up.y(mean), series.look.colour,
             series.renorm ? fmt::format("c{}", series.look.colour) : "paper");
}

// `shift` moves the line aside, so that bars at one place do not cover each other.
std::string series_line(const Series& series, const Across& across, const Up& up, double shift) {
  std::string text = fmt::format(R"svg(<svg class="series" x="{:.1f}" width="100%" overflow="visible">)svg"
                                 "\n",
                                 shift);
  for (size_t i = 1; i < series.points.size(); ++i) {
    const Arm &from = *series.points[i - 1], &to = *series.points[i];
    text += fmt::format(
        R"svg(<line x1="{:.2f}%" y1="{:.1f}" x2="{:.2f}%" y2="{:.1f}" stroke="var(--c{})" stroke-width="2" stroke-dasharray="{}"/>)svg"
        "\n",
        100.0 * across.share(from.x->at), up.y(from.test_accuracy.mean), 100.0 * across.share(to.x->at),
        up.y(to.test_accuracy.mean), series.look.colour, dashes(series.look));
  }
  for (const Arm* arm : series.points) text += mark(series, *arm, across, up);
  return text + "</svg>\n";
}

std::string drawing(const Content& content, const Across& across, const Up& up) {
  std::string text = ticks_up(up) + ticks_across(across) +
                     fmt::format(R"svg(<line x1="0" x2="100%" y1="{0}" y2="{0}" stroke="var(--axis)"/>)svg"
                                 R"svg(<line x1="0" x2="0" y1="0" y2="{0}" stroke="var(--axis)"/>)svg"
                                 "\n",
                                 kHeight);
  for (const Level& level : content.levels) text += level_line(level, up);
  const auto count = static_cast<double>(content.series.size());
  const double apart = count > 1.0 ? std::min(kApart, kMaxSpan / (count - 1.0)) : 0.0;
  for (size_t i = 0; i < content.series.size(); ++i) {
    const double shift = apart * (static_cast<double>(i) - 0.5 * (count - 1.0));
    text += series_line(content.series[i], across, up, shift);
  }
  return text;
}

std::string key_of(const Content& content) {
  std::string text = "<div class=\"key\">\n";
  const auto add = [&](const std::string& sample, const std::string& name, const char* style) {
    text += fmt::format(R"(<div class="entry{}">{}<span class="name">{}</span></div>)"
                        "\n",
                        style, sample, name);
  };
  for (const Series& series : content.series) add(swatch(series.look), series.name, "");
  for (const Level& level : content.levels) {
    add(level.look ? swatch(*level.look) : reference_swatch(), level.name, level.look ? "" : " repeated");
  }
  return text + "</div>\n";
}

}  // namespace

std::string setting_chart(const Page& page, const FigureArms& entry) {
  const Content content = content_of(page, entry);
  if (content.series.empty()) return "";
  const Across across(content, entry.figure.x->logarithmic);
  const std::string quantity = fmt::format("{} (%) against {}{}", page.measure, escaped(entry.figure.x->name),
                                           across.logarithmic() ? " (logarithmic)" : "");
  return fmt::format(
             R"(<div class="over-setting"><div class="bar"><span class="quantity">{0}</span></div>)"
             R"(<div class="frame"><svg class="plane" role="img" aria-label="{0}; the table has the values" )"
             R"(width="100%" height="{1}" overflow="visible">)"
             "\n",
             quantity, kHeight) +
         drawing(content, across, Up(content)) + "</svg></div>\n" + key_of(content) + "</div>\n";
}

}  // namespace renorm::report
