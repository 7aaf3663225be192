#include "cli/help.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/terminal.h"

namespace renorm::cli {
namespace {

constexpr int kMaxColumns = 100;
constexpr int kMinColumns = 40;
constexpr int kDefaultColumns = 80;
constexpr size_t kMaxNameColumns = 26;

size_t text_width() {
  const int columns = terminal_columns(STDOUT_FILENO, kDefaultColumns);
  return static_cast<size_t>(std::clamp(columns, kMinColumns, kMaxColumns));
}

// Paragraphs are wrapped; lines that start with a blank, such as examples, stay as they are.
std::string wrapped_paragraphs(const std::string& text, size_t width) {
  std::istringstream lines(text);
  std::string result, paragraph;
  const auto finish = [&] {
    if (!paragraph.empty()) result += wrapped(paragraph, 0, 0, width) + "\n";
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ') {
      paragraph += line + " ";
      if (line.back() == ':') finish();
      continue;
    }
    finish();
    result += line + "\n";
  }
  finish();
  return result;
}

// The left column and its explanation.
using Row = std::pair<std::string, std::string>;

std::string table(const std::vector<Row>& rows, size_t width) {
  size_t widest = 0;
  for (const Row& row : rows) {
    if (row.first.size() <= kMaxNameColumns) widest = std::max(widest, row.first.size());
  }
  const size_t indent = widest + 4;
  std::string text;
  for (const auto& [names, explanation] : rows) {
    text += "  " + names;
    text +=
        names.size() > widest ? "\n" + std::string(indent, ' ') : std::string(indent - 2 - names.size(), ' ');
    text += wrapped(explanation, indent, indent, width) + "\n";
  }
  return text;
}

std::string names_of(const CLI::Option& option) {
  if (!option.nonpositional()) return option.get_name(true);
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) names += (names.empty() ? "--" : ", --") + name;
  const bool takes_value = option.get_items_expected_max() > 0;
  return takes_value ? names + " " + option.get_type_name() : names;
}

Row row_of(const CLI::Option& option) {
  const std::string preset = option.get_default_str();
  return {names_of(option), option.get_description() + (preset.empty() ? "" : fmt::format(" [{}]", preset))};
}

// All commands below `app` by their names from there: "bench layer".
void add_commands(const CLI::App& app, const std::string& prefix, std::vector<Row>* rows) {
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    const std::string name = prefix + command->get_name();
    if (command->get_subcommands(nullptr).empty()) {
      rows->emplace_back(name, command->get_description());
    } else {
      add_commands(*command, name + " ", rows);
    }
  }
}

std::string usage(const CLI::App& app, const std::string& name) {
  std::string line = "Usage: " + name;
  if (!app.get_subcommands(nullptr).empty()) return line + " COMMAND [FLAGS]\n";
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) continue;
    const bool optional = !option->get_default_str().empty();
    line += fmt::format(" {}{}{}", optional ? "[" : "", option->get_name(true), optional ? "]" : "");
  }
  return line + " [FLAGS]\n";
}

// Options of each group in the order in which the groups were first named, the common ones last.
std::string option_groups(const CLI::App& app, size_t width) {
  std::vector<std::pair<std::string, std::vector<Row>>> groups;
  std::vector<Row> common;
  for (const CLI::Option* option : app.get_options()) {
    if (option == app.get_help_ptr()) {
      common.push_back(row_of(*option));
      continue;
    }
    const std::string group = option->nonpositional() ? option->get_group() : "Arguments";
    if (group.empty()) continue;
    auto place = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == group; });
    if (place == groups.end()) place = groups.insert(groups.end(), {group, {}});
    place->second.push_back(row_of(*option));
  }
  if (groups.size() == 1 && groups.front().first == "Flags") {
    groups.front().second.push_back(common.front());
    common.clear();
  }
  std::string text;
  for (const auto& [group, rows] : groups) text += fmt::format("\n{}:\n{}", group, table(rows, width));
  return common.empty() ? text : text + "\n" + table(common, width);
}

}  // namespace

std::string help_text(const CLI::App& app, const std::string& name) {
  const size_t width = text_width();
  std::string text = wrapped(app.get_description(), 0, 0, width) + "\n\n" + usage(app, name);
  std::vector<Row> commands;
  add_commands(app, "", &commands);
  if (!commands.empty()) text += "\nCommands:\n" + table(commands, width);
  text += option_groups(app, width);
  const std::string footer = app.get_footer();
  return footer.empty() ? text : text + "\n" + wrapped_paragraphs(footer, width);
}

std::string exit_codes_text() {
  return R"(Exit codes:
   0  done
   2  wrong flag, config or spec
  65  bad data
  66  missing input
  70  internal error, or too little memory
  73  output cannot be created
  74  reading or writing failed, or the folder of the run was replaced
  75  interrupted, can be resumed
  76  diverged: a value is not finite)";
}

}  // namespace renorm::cli
