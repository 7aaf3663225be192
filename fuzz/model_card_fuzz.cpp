// Input: the card of an exported model. An accepted input must survive writing and reading unchanged.
#include "fuzz.h"
#include "export/model_card.h"

using namespace renorm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  train::ModelCard card;
  if (!fuzz::accepts([&] { card = train::parse_model_card(fuzz::text_of(data, size), fuzz::kFile); }))
    return 0;
  fuzz::expect(card.input.mean.size() == static_cast<size_t>(card.input.channels),
               "other channels than means");
  fuzz::expect(!card.classes.empty(), "no classes");
  const std::string written = train::to_json(card);
  fuzz::expect(train::to_json(train::parse_model_card(written, fuzz::kFile)) == written, "the card changed");
  return 0;
}
