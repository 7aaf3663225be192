// Input: the card of an exported model. An accepted input must survive writing and reading unchanged.
#include "export/model_card.h"
#include "fuzz.h"

using namespace renorm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  exporting::ModelCard card;
  if (!fuzz::accepts([&] { card = exporting::parse_model_card(fuzz::text_of(data, size), fuzz::kFile); }))
    return 0;
  fuzz::expect(card.input.mean.size() == static_cast<size_t>(card.input.channels),
               "other channels than means");
  fuzz::expect(!card.classes.empty(), "no classes");
  const std::string written = exporting::to_json(card);
  fuzz::expect(exporting::to_json(exporting::parse_model_card(written, fuzz::kFile)) == written,
               "the card changed");
  return 0;
}
