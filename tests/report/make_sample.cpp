// usage: renorm_report_sample DIR
// Writes reports of invented results into DIR: whole.html, unfinished.html, single.html, hostile.html,
// settings.html, empty.html.
#include <cstdio>
#include <exception>

#include "base/files.h"
#include "report/report.h"
#include "samples.h"

namespace {

void write_samples(const std::string& folder) {
  using renorm::report::html;
  namespace samples = renorm::report::testing;
  const renorm::report::ReportExtras extras{samples::small_png(), "The first images of the first classes."};
  const auto write = [&](const char* name, const renorm::record::Results& results) {
    renorm::write_atomically(folder + "/" + name + ".html", html(results, extras));
  };
  write("whole", samples::whole_experiment());
  write("unfinished", samples::unfinished_experiment());
  write("single", samples::single_run());
  write("hostile", samples::hostile_experiment());
  write("settings", samples::settings_experiment());
  write("empty", {});
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: renorm_report_sample DIR\n", stderr);
    return 2;
  }
  try {
    write_samples(arguments[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "renorm_report_sample: %s\n", error.what());
    return 1;
  }
  return 0;
}
