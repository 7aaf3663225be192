// The flags of `renorm report`.
#include <fmt/format.h>

#include <memory>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/report_file.h"

namespace renorm::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  renorm report runs/reproduce-quick
  renorm report runs/iid runs/pairs --out comparison.html

The report is one file that needs nothing else, also no network. Runs may be unfinished.
)";

struct ReportOptions {
  std::vector<std::string> folders;
  std::string out;
};

void run(const ReportOptions& options) {
  if (options.folders.empty()) {
    throw UsageError("'renorm report' needs DIR, a folder of 'renorm reproduce' or of 'renorm train'");
  }
  const std::string file = options.out.empty() ? options.folders.front() + "/report.html" : options.out;
  const record::Results results = open_results(options.folders);
  check_writable(file);
  write_report(results, options.folders.front(), file);
  fmt::print("report         {}\n", printable(file));
}

}  // namespace

Command add_report(CLI::App& program) {
  CLI::App* app = program.add_subcommand("report", "Write the HTML report of an experiment or of runs");
  const auto options = std::make_shared<ReportOptions>();
  app->add_option("DIR", options->folders, "folder of 'renorm reproduce', or folders of 'renorm train'");
  app->add_option("--out", options->out, "the file; without it, report.html in the first DIR")
      ->type_name("FILE");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
