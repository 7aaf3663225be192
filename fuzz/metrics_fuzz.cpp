// Input: a metrics.jsonl. An accepted input must survive writing and reading unchanged.
#include "fuzz.h"
#include "record/metrics.h"

using namespace renorm;

namespace {

std::string written(const record::Metrics& metrics) {
  std::string text;
  for (const auto& step : metrics.steps) text += record::to_json_line(step) + "\n";
  for (const auto& evaluation : metrics.evaluations) text += record::to_json_line(evaluation) + "\n";
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  record::Metrics metrics;
  if (!fuzz::accepts([&] { metrics = record::parse_metrics(fuzz::text_of(data, size), fuzz::kFile); }))
    return 0;
  const std::string text = written(metrics);
  fuzz::expect(written(record::parse_metrics(text, fuzz::kFile)) == text, "the records changed");
  const size_t rows = std::min(metrics.steps.size(), metrics.evaluations.size());
  for (size_t i = 0; i < rows; ++i) {
    const std::string row = record::summary_csv_row(metrics.evaluations[i], metrics.steps[i]);
    fuzz::expect(row.find('\n') == std::string::npos, "a row of several lines");
  }
  return 0;
}
