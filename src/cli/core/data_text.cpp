#include "cli/core/data_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "data/inspect.h"

namespace renorm::cli {
namespace {

constexpr size_t kAllNamesShown = 10;  // of more classes only the first few are named
constexpr size_t kFewNames = 5;

}  // namespace

void print_line(const char* label, const std::string& text) { fmt::print("{:<10} {}\n", label, text); }

std::string names_text(const std::vector<std::string>& names) {
  const bool all = names.size() <= kAllNamesShown;
  std::vector<std::string> shown;
  for (size_t i = 0; i < (all ? names.size() : kFewNames); ++i) shown.push_back(printable(names[i]));
  if (!all) shown.emplace_back("...");
  return fmt::format("{}: {}", grouped(static_cast<int64_t>(names.size())), fmt::join(shown, ", "));
}

std::string numbers_text(const std::vector<double>& numbers) {
  std::vector<std::string> texts;
  texts.reserve(numbers.size());
  for (const double number : numbers) texts.push_back(fmt::format("{:.4f}", number));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string counts_text(const std::vector<int64_t>& labels, int64_t classes) {
  const std::vector<int64_t> counts = data::images_per_class(labels, classes);
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return fmt::format(
      "{} images, {} a class", grouped(static_cast<int64_t>(labels.size())),
      *least == *most ? grouped(*least) : fmt::format("{} to {}", grouped(*least), grouped(*most)));
}

}  // namespace renorm::cli
