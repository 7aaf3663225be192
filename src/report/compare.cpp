#include "report/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "report/format.h"

namespace renorm::report {
namespace {

using record::Arm;
using record::Measure;
using record::Results;

std::string of_folder(const std::string& text, const std::string& folder) {
  return text.empty() ? folder : fmt::format("{} ({})", text, folder);
}

// Numbers of names in the order of their first appearance.
class Order {
 public:
  size_t place(const std::string& name) { return places_.emplace(name, places_.size()).first->second; }

 private:
  std::map<std::string, size_t> places_;
};

template <typename Item>
std::vector<Item> in_order(std::vector<std::pair<size_t, Item>> placed) {
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Item> items;
  items.reserve(placed.size());
  for (auto& entry : placed) items.push_back(std::move(entry.second));
  return items;
}

// The value of all folders, or of each.
template <typename Value>
std::string shared_or_listed(const std::vector<NamedResults>& folders, const Value& value) {
  std::vector<std::string> listed;
  std::set<std::string> distinct;
  for (const NamedResults& folder : folders) {
    const std::string text = value(folder.results);
    distinct.insert(text);
    if (!text.empty()) listed.push_back(of_folder(text, folder.name));
  }
  return distinct.size() == 1 ? *distinct.begin() : fmt::format("{}", fmt::join(listed, "; "));
}

// The field of all folders; empty if they differ.
template <typename Field>
Field shared(const std::vector<NamedResults>& folders, Field Results::*field) {
  const Field& first = folders.front().results.*field;
  const bool same = std::all_of(folders.begin(), folders.end(),
                                [&](const NamedResults& folder) { return folder.results.*field == first; });
  return same ? first : Field{};
}

Arm arm_of_folder(Arm arm, const std::string& folder) {
  arm.label = of_folder(arm.label.empty() ? arm.name : arm.label, folder);
  arm.name = of_folder(arm.name, folder);
  if (arm.x) arm.series = of_folder(arm.series.value_or(""), folder);
  arm.steps_to_reference = {};
  for (record::ArmRun& run : arm.runs) run.folder = fmt::format("{}/{}", folder, run.folder);
  return arm;
}

std::vector<Arm> merged_arms(const std::vector<NamedResults>& folders) {
  Order order;
  std::set<size_t> with_paper;
  std::vector<std::pair<size_t, Arm>> placed;
  for (const NamedResults& folder : folders) {
    for (const Arm& arm : folder.results.arms) {
      const size_t place = order.place(arm.name);
      placed.emplace_back(place, arm_of_folder(arm, folder.name));
      if (!with_paper.insert(place).second) placed.back().second.paper = {};
    }
  }
  return in_order(std::move(placed));
}

std::vector<record::Figure> merged_figures(const std::vector<NamedResults>& folders) {
  std::vector<record::Figure> figures;
  std::set<std::string> known;
  for (const NamedResults& folder : folders) {
    for (record::Figure figure : folder.results.figures) {
      if (!known.insert(figure.id).second) continue;
      if (!figure.reference && !figure.data && !figure.model) figure.reference = folder.results.reference;
      if (figure.reference) figure.reference = of_folder(*figure.reference, folder.name);
      figures.push_back(std::move(figure));
    }
  }
  return figures;
}

std::vector<record::Claim> merged_claims(const std::vector<NamedResults>& folders) {
  Order order;
  std::vector<std::pair<size_t, record::Claim>> placed;
  for (const NamedResults& folder : folders) {
    for (record::Claim claim : folder.results.claims) {
      const size_t place = order.place(claim.text);
      claim.text = of_folder(claim.text, folder.name);
      placed.emplace_back(place, std::move(claim));
    }
  }
  return in_order(std::move(placed));
}

std::vector<uint64_t> merged_seeds(const std::vector<NamedResults>& folders) {
  std::set<uint64_t> seeds;
  for (const NamedResults& folder : folders) {
    seeds.insert(folder.results.seeds.begin(), folder.results.seeds.end());
  }
  return {seeds.begin(), seeds.end()};
}

std::map<std::string, std::string> merged_versions(const std::vector<NamedResults>& folders) {
  std::map<std::string, std::string> versions;
  for (const NamedResults& folder : folders) {
    for (const auto& entry : folder.results.versions) {
      versions[entry.first] = shared_or_listed(folders, [&](const Results& results) {
        const auto found = results.versions.find(entry.first);
        return found == results.versions.end() ? std::string() : found->second;
      });
    }
  }
  return versions;
}

// The values of finished runs by their seeds; none if they cannot be assigned.
std::map<uint64_t, double> values_by_seed(const Arm& arm) {
  std::vector<uint64_t> seeds;
  for (const record::ArmRun& run : arm.runs) {
    if (run.finished) seeds.push_back(run.seed);
  }
  const std::vector<double>& values = arm.test_accuracy.values;
  std::map<uint64_t, double> found;
  if (seeds.size() != values.size()) return found;
  for (size_t i = 0; i < seeds.size(); ++i) found[seeds[i]] = values[i];
  return found;
}

// Seed by seed where both have at least two, or of the means.
Measure difference_of(const Arm& arm, const Arm& base) {
  if (arm.test_accuracy.values.empty() || base.test_accuracy.values.empty()) return {};
  const std::map<uint64_t, double> ours = values_by_seed(arm), theirs = values_by_seed(base);
  std::vector<double> differences;
  for (const auto& [seed, value] : ours) {
    const auto other = theirs.find(seed);
    if (other != theirs.end()) differences.push_back(value - other->second);
  }
  if (differences.size() > 1) return record::measure_of(differences);
  return record::measure_of({arm.test_accuracy.mean - base.test_accuracy.mean});
}

// The arm of a name in each folder, if it is there.
struct Row {
  std::string name;
  std::vector<const Arm*> arms;
};

std::vector<Row> rows_of(const std::vector<NamedResults>& folders) {
  Order order;
  std::vector<Row> rows;
  for (size_t i = 0; i < folders.size(); ++i) {
    for (const Arm& arm : folders[i].results.arms) {
      const size_t place = order.place(arm.name);
      if (place == rows.size()) rows.push_back({arm.name, std::vector<const Arm*>(folders.size(), nullptr)});
      rows[place].arms[i] = &arm;
    }
  }
  return rows;
}

std::string cell(const std::string& label, const std::string& text) {
  return fmt::format(R"(<td data-label="{}"{}><span class="ours">{}</span></td>)", label,
                     text == kNothing ? R"( class="none")" : "", text);
}

std::string difference_name(const std::vector<NamedResults>& folders, size_t index) {
  return fmt::format("{} − {}", escaped(folders[index].name), escaped(folders.front().name));
}

std::string row_text(const Page& page, const std::vector<NamedResults>& folders, const Row& row) {
  const auto first = std::find_if(row.arms.begin(), row.arms.end(), [](const Arm* arm) { return arm; });
  std::string text = fmt::format(R"(<tr><th scope="row"><span class="label">{}</span><code>{}</code></th>)",
                                 label_of(**first), escaped(row.name));
  for (size_t i = 0; i < folders.size(); ++i) {
    text += cell(fmt::format("{}, {}", page.measure, escaped(folders[i].name)),
                 row.arms[i] == nullptr ? kNothing : percent(row.arms[i]->test_accuracy));
  }
  for (size_t i = 1; i < folders.size(); ++i) {
    const bool both = row.arms[i] != nullptr && row.arms.front() != nullptr;
    text += cell(difference_name(folders, i),
                 both ? signed_points(difference_of(*row.arms[i], *row.arms.front())) : kNothing);
  }
  return text + "</tr>\n";
}

std::string difference_table(const Page& page, const std::vector<NamedResults>& folders) {
  std::string text = R"(<div class="scroll"><table class="arms plain"><thead><tr><th scope="col">arm</th>)";
  const auto add = [&](const std::string& name) { text += fmt::format(R"(<th scope="col">{}</th>)", name); };
  for (const NamedResults& folder : folders) {
    add(fmt::format("{}, {},&nbsp;%", escaped(folder.name), page.measure));
  }
  for (size_t i = 1; i < folders.size(); ++i) add(difference_name(folders, i) + ",&nbsp;points");
  text += "</tr></thead>\n<tbody>\n";
  for (const Row& row : rows_of(folders)) text += row_text(page, folders, row);
  return text + "</tbody></table></div>\n";
}

std::string folder_item(const NamedResults& folder) {
  const Results& results = folder.results;
  std::string text = fmt::format("<dt>{}</dt><dd>{}", escaped(folder.name), escaped(results.title));
  if (!results.data.empty()) text += fmt::format(" · data <code>{}</code>", escaped(results.data));
  if (!results.model.empty()) text += fmt::format(" · model <code>{}</code>", escaped(results.model));
  return text + fmt::format(" · {} · {}{}</dd>\n", counted(static_cast<size_t>(results.steps), "step"),
                            counted(results.seeds.size(), "seed"), results.finished ? "" : " · not finished");
}

}  // namespace

Results merged(const std::vector<NamedResults>& folders) {
  Results results;
  std::vector<std::string> names;
  names.reserve(folders.size());
  for (const NamedResults& folder : folders) names.push_back(folder.name);
  results.name = "comparison";
  results.title = fmt::format("Comparison of {}", fmt::join(names, ", "));
  results.measure = folders.front().results.measure;
  results.reference = of_folder(folders.front().results.reference, folders.front().name);
  results.data = shared(folders, &Results::data);
  results.model = shared(folders, &Results::model);
  results.steps = shared(folders, &Results::steps);
  results.test_images = shared(folders, &Results::test_images);
  results.seeds = merged_seeds(folders);
  for (const NamedResults& folder : folders) {
    results.command += (results.command.empty() ? "" : "\n") + folder.results.command;
  }
  results.versions = merged_versions(folders);
  results.finished = std::all_of(folders.begin(), folders.end(),
                                 [](const NamedResults& folder) { return folder.results.finished; });
  results.test = shared_or_listed(folders, [](const Results& of) { return of.test; });
  results.figures = merged_figures(folders);
  results.arms = merged_arms(folders);
  results.claims = merged_claims(folders);
  return results;
}

std::string comparison_section(const Page& page, const std::vector<NamedResults>& folders) {
  std::string text = "<section id=\"comparison\">\n<h2>Differences</h2>\n<dl>\n";
  for (const NamedResults& folder : folders) text += folder_item(folder);
  text += "</dl>\n" + difference_table(page, folders);
  return text +
         "<p class=\"small\">Differences are those of the seeds that both folders have, mean ± standard "
         "deviation; with fewer than two such seeds, those of the means.</p>\n</section>\n";
}

}  // namespace renorm::report
