#include "report/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "report/format.h"

namespace renorm::report {
namespace {

enum class Verdict { kHolds, kFails, kOpen };

Verdict verdict_of(const record::Claim& claim) {
  if (claim.verdict == record::kHolds) return Verdict::kHolds;
  if (claim.verdict == record::kDoesNotHold) return Verdict::kFails;
  return Verdict::kOpen;
}

// Class and symbol.
std::pair<const char*, const char*> style_of(Verdict verdict) {
  if (verdict == Verdict::kHolds) return {"holds", "✓"};
  if (verdict == Verdict::kFails) return {"fails", "✗"};
  return {"open", "?"};
}

std::string claim_item(const record::Claim& claim, bool paper) {
  const auto [style, symbol] = style_of(verdict_of(claim));
  std::string text = fmt::format(
      R"(<li class="{}"><span class="verdict"><span aria-hidden="true">{}</span> {}</span><div><p>{})", style,
      symbol, escaped(claim.verdict), escaped(claim.text));
  if (paper && !claim.in_paper) text += R"( <span class="tag">not in the paper</span>)";
  text += "</p>";
  if (!claim.evidence.empty()) text += fmt::format(R"(<p class="small">{}</p>)", escaped(claim.evidence));
  return text + "</div></li>\n";
}

}  // namespace

std::string tally(const std::vector<record::Claim>& claims) {
  if (claims.empty()) return "";
  const auto count = [&](Verdict verdict) {
    return std::count_if(claims.begin(), claims.end(),
                         [&](const record::Claim& claim) { return verdict_of(claim) == verdict; });
  };
  const auto holding = count(Verdict::kHolds);
  const auto failing = count(Verdict::kFails);
  const auto open = count(Verdict::kOpen);
  std::string text = fmt::format("{} of {} {}", holding, counted(claims.size(), "claim"),
                                 claims.size() == 1 ? "holds" : "hold");
  if (failing > 0) text += fmt::format(", {} {} not hold", failing, failing == 1 ? "does" : "do");
  if (open > 0) text += fmt::format(", {} {} not resolved", open, open == 1 ? "is" : "are");
  return text + ".";
}

std::string claims_section(const Page& page) {
  const record::Results& results = page.results;
  if (results.claims.empty()) return "";
  std::string text = "<section id=\"claims\">\n<h2>Claims</h2>\n<ul class=\"claims\">\n";
  for (const record::Claim& claim : results.claims) text += claim_item(claim, page.paper);
  text += "</ul>\n";
  if (!results.test.empty()) {
    text += fmt::format("<p class=\"small\">How a verdict is reached: {}</p>\n", escaped(results.test));
  }
  return text + "</section>\n";
}

}  // namespace renorm::report
