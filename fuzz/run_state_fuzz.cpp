// Input: the state.json of a checkpoint. An accepted input must survive writing and reading unchanged.
#include "fuzz.h"
#include "train/checkpoint.h"

using namespace renorm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  train::RunState state;
  if (!fuzz::accepts([&] { state = train::parse_run_state(fuzz::text_of(data, size), fuzz::kFile); }))
    return 0;
  const std::string written = train::to_json(state);
  fuzz::expect(train::to_json(train::parse_run_state(written, fuzz::kFile)) == written, "the state changed");
  return 0;
}
