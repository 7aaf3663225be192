// Input: the JSON of `renorm eval`. An accepted input must survive writing and reading unchanged.
#include "fuzz.h"
#include "record/eval_result.h"

using namespace renorm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  record::EvalResult result;
  if (!fuzz::accepts([&] { result = record::parse_eval_result(fuzz::text_of(data, size), fuzz::kFile); }))
    return 0;
  const std::string text = record::to_json(result);
  fuzz::expect(record::to_json(record::parse_eval_result(text, fuzz::kFile)) == text, "the result changed");
  return 0;
}
