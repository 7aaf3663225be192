#include "train/bfloat16_check.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "support.h"

namespace renorm::train {
namespace {

using models::BFloat16Cost;
using testing::message_of;

const BFloat16Cost kUseful{true, 0.5};
const BFloat16Cost kSlow{true, 57.2};
const BFloat16Cost kNone{true, 1.0, /*is_available=*/false};

std::string refusal(const BFloat16Cost& cost, DtypeFrom from, bool is_forced) {
  return message_of<UsageError>([&] { judge_bfloat16(cost, from, is_forced); });
}

TEST(BFloat16Check, UsefulBFloat16IsNotMentioned) {
  for (const DtypeFrom from : {DtypeFrom::kSettings, DtypeFrom::kUnstartedRun, DtypeFrom::kBegunRun}) {
    EXPECT_EQ(judge_bfloat16(kUseful, from, /*is_forced=*/false), "");
  }
}

TEST(BFloat16Check, SlowBFloat16IsRefusedUnlessForcedOrStored) {
  const std::string sentence =
      "bfloat16 convolutions take 57 times as long as in float and keep sums in float on this machine";
  EXPECT_EQ(refusal(kSlow, DtypeFrom::kSettings, /*is_forced=*/false),
            sentence + "; leave out --dtype bf16, or add --force-bf16");
  EXPECT_EQ(judge_bfloat16(kSlow, DtypeFrom::kSettings, /*is_forced=*/true), sentence);
  EXPECT_EQ(judge_bfloat16(kSlow, DtypeFrom::kUnstartedRun, /*is_forced=*/false), sentence);
  EXPECT_EQ(judge_bfloat16(kSlow, DtypeFrom::kBegunRun, /*is_forced=*/false), sentence);
}

TEST(BFloat16Check, ABegunRunIsNotAdvisedToChangeItsDtype) {
  for (const bool is_forced : {false, true}) {
    EXPECT_EQ(refusal(kNone, DtypeFrom::kSettings, is_forced),
              "bfloat16 convolutions are not available on this machine; leave out --dtype bf16");
    EXPECT_EQ(refusal(kNone, DtypeFrom::kUnstartedRun, is_forced),
              "bfloat16 convolutions are not available on this machine; add --dtype float");
    EXPECT_EQ(refusal(kNone, DtypeFrom::kBegunRun, is_forced),
              "bfloat16 convolutions are not available on this machine; continue the run on another one, or "
              "without DNNL_MAX_CPU_ISA and ONEDNN_MAX_CPU_ISA if they are set");
  }
}

TEST(BFloat16Check, ARunIsEvaluatedInFloatWhereBFloat16IsNotUseful) {
  EXPECT_EQ(float_instead(kUseful), "");
  EXPECT_EQ(float_instead(kSlow),
            "bfloat16 convolutions take 57 times as long as in float and keep sums in float on this machine; "
            "the run is evaluated in float");
  EXPECT_EQ(float_instead(kNone),
            "bfloat16 convolutions are not available on this machine; the run is evaluated in float");
}

}  // namespace
}  // namespace renorm::train
