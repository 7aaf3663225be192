// Input: a results.json. An accepted input must survive writing and reading unchanged.
#include "fuzz.h"
#include "record/results.h"

using namespace renorm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  record::Results results;
  if (!fuzz::accepts([&] { results = record::parse_results(fuzz::text_of(data, size), fuzz::kFile); }))
    return 0;
  const std::string text = record::to_json(results);
  fuzz::expect(record::to_json(record::parse_results(text, fuzz::kFile)) == text, "the results changed");
  return 0;
}
