// usage: renorm_report_sample DIR
// Writes reports of invented results into DIR: whole.html, unfinished.html, single.html, hostile.html,
// settings.html, empty.html, comparison.html.
#include <cstdio>
#include <exception>

#include "base/files.h"
#include "report/report.h"
#include "samples.h"

namespace {

void write_samples(const std::string& folder) {
  using renorm::report::html;
  namespace samples = renorm::report::testing;
  const std::string png = samples::small_png();
  const std::string data =
      "strokes:classes=50,train=200,test=40,ink=1,jitter=0.25,decoy=0.7,decoy-ink=0.9,amplitude=0.15";
  const renorm::report::ReportExtras extras{png, data + ": one row per class",
                                            renorm::report::WhyPanel{data, png, png, png, png}};
  const auto write = [&](const char* name, const renorm::record::Results& results) {
    renorm::write_atomically(folder + "/" + name + ".html", html(results, extras));
  };
  write("whole", samples::whole_experiment());
  write("unfinished", samples::unfinished_experiment());
  write("single", samples::single_run());
  write("hostile", samples::hostile_experiment());
  write("settings", samples::settings_experiment());
  write("empty", {});
  renorm::write_atomically(
      folder + "/comparison.html",
      renorm::report::comparison_html(
          {{"first", samples::whole_experiment()}, {"second", samples::unfinished_experiment()}}, extras));
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
