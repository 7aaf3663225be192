#include "train/bfloat16_check.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace renorm::train {
namespace {

// The remedy where LibTorch refuses bfloat16 convolutions.
const char* remedy(DtypeFrom from) {
  switch (from) {
    case DtypeFrom::kSettings:
      return "leave out --dtype bf16";
    case DtypeFrom::kUnstartedRun:
      return "add --dtype float";
    case DtypeFrom::kBegunRun:
      break;
  }
  return "continue the run on another one, or without DNNL_MAX_CPU_ISA and ONEDNN_MAX_CPU_ISA if they are "
         "set";
}

std::string sentence_on(const models::BFloat16Cost& cost) {
  return fmt::format("bfloat16 convolutions {} on this machine", cost.words());
}

}  // namespace

std::string judge_bfloat16(const models::BFloat16Cost& cost, DtypeFrom from, bool is_forced) {
  if (cost.is_useful()) return "";
  const std::string sentence = sentence_on(cost);
  if (!cost.is_available) throw UsageError(fmt::format("{}; {}", sentence, remedy(from)));
  if (from == DtypeFrom::kSettings && !is_forced) {
    throw UsageError(sentence + "; leave out --dtype bf16, or add --force-bf16");
  }
  return sentence;
}

std::string float_instead(const models::BFloat16Cost& cost) {
  return cost.is_useful() ? "" : sentence_on(cost) + "; the run is evaluated in float";
}

}  // namespace renorm::train
