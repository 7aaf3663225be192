#include "base/cpu.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace renorm {
namespace {

TEST(Cpu, AmxIsIncompleteWithoutALayoutOfItsTiles) {
  EXPECT_TRUE(has_incomplete_amx({/*has_amx=*/true, /*max_tile_layout=*/0}));
  EXPECT_FALSE(has_incomplete_amx({/*has_amx=*/true, /*max_tile_layout=*/1}));
  EXPECT_FALSE(has_incomplete_amx({/*has_amx=*/false, /*max_tile_layout=*/0}));
}

// The rest depends on the machine: the variable is set there, and a user's own value stays everywhere.
class CpuVariable : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    unsetenv("DNNL_MAX_CPU_ISA");
    unsetenv("ONEDNN_MAX_CPU_ISA");
  }
};

TEST_F(CpuVariable, RestrictsOneDnnOnlyWhereAmxIsIncomplete) {
  EXPECT_EQ(avoid_incomplete_amx(), has_incomplete_amx(cpu_report()));
  EXPECT_EQ(std::getenv("DNNL_MAX_CPU_ISA") != nullptr, has_incomplete_amx(cpu_report()));
}

TEST_F(CpuVariable, KeepsTheValueOfTheUser) {
  setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
  avoid_incomplete_amx();
  EXPECT_STREQ(std::getenv("DNNL_MAX_CPU_ISA"), "AVX2");
  clear();
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  avoid_incomplete_amx();
  EXPECT_EQ(std::getenv("DNNL_MAX_CPU_ISA"), nullptr);
}

TEST_F(CpuVariable, IsReportedByTheNameThatOneDnnReadsFirst) {
  EXPECT_EQ(onednn_limit(), "");
  setenv("DNNL_MAX_CPU_ISA", "ALL", 1);
  EXPECT_EQ(onednn_limit(), "DNNL_MAX_CPU_ISA=ALL");
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  EXPECT_EQ(onednn_limit(), "ONEDNN_MAX_CPU_ISA=AVX2");
}

}  // namespace
}  // namespace renorm
