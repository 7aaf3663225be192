#include "cli/core/system_probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace renorm::cli {
namespace {

// A made-up system below a temporary folder.
class SystemProbe : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "renorm-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  void put(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_ + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  std::string root_;
};

TEST_F(SystemProbe, ReadsModelAndFeatures) {
  put("/proc/cpuinfo",
      "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nflags\t\t: fpu avx avx2 fma avx512fake bmi2\n");
  EXPECT_EQ(cpu_model(root_), "Some CPU @ 2.00GHz");
  EXPECT_EQ(cpu_features(root_), (std::vector<std::string>{"avx", "avx2", "fma"}));
}

TEST_F(SystemProbe, KnowsTheOtherNameOfFeatures) {
  put("/proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd sve\n");
  EXPECT_EQ(cpu_model(root_), "unknown");
  EXPECT_EQ(cpu_features(root_), (std::vector<std::string>{"asimd", "sve"}));
}

TEST_F(SystemProbe, AnEmptySystemHasNoLimits) {
  EXPECT_EQ(cpu_model(root_), "unknown");
  EXPECT_TRUE(cpu_features(root_).empty());
  EXPECT_EQ(cpus_by_quota(root_), 0.0);
  EXPECT_EQ(available_memory(root_), -1);
  EXPECT_EQ(load_average(root_), -1.0);
  EXPECT_EQ(huge_pages(root_), "");
}

TEST_F(SystemProbe, ReadsTheQuotaOfTheUnifiedTree) {
  put("/proc/self/cgroup", "0::/user/run\n");
  put("/sys/fs/cgroup/user/run/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpus_by_quota(root_), 1.5);
  put("/sys/fs/cgroup/user/run/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus_by_quota(root_), 0.0);
}

TEST_F(SystemProbe, FindsTheGroupThatAContainerMountsAtTheTop) {
  put("/proc/self/cgroup", "0::/somewhere/else\n");
  put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpus_by_quota(root_), 0.5);
}

TEST_F(SystemProbe, ReadsTheQuotaOfVersionOne) {
  put("/proc/self/cgroup", "4:cpuacct,cpu:/job\n0::/\n");
  put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
  put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus_by_quota(root_), 2.0);
  put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpus_by_quota(root_), 0.0);
}

TEST_F(SystemProbe, MemoryIsTheSmallerOfMachineAndGroup) {
  put("/proc/meminfo", "MemTotal:  4000 kB\nMemAvailable:    3000 kB\n");
  EXPECT_EQ(available_memory(root_), 3000 * 1024);
  put("/proc/self/cgroup", "0::/run\n");
  put("/sys/fs/cgroup/run/memory.max", "1000000\n");
  put("/sys/fs/cgroup/run/memory.current", "400000\n");
  EXPECT_EQ(available_memory(root_), 600000);
  put("/sys/fs/cgroup/run/memory.current", "2000000\n");
  EXPECT_EQ(available_memory(root_), 0);
  put("/sys/fs/cgroup/run/memory.max", "max\n");
  EXPECT_EQ(available_memory(root_), 3000 * 1024);
}

TEST_F(SystemProbe, ReadsLoadAndHugePages) {
  put("/proc/loadavg", "1.25 0.50 0.10 2/300 4000\n");
  EXPECT_EQ(load_average(root_), 1.25);
  put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(huge_pages(root_), "never");
}

TEST_F(SystemProbe, TheRealOneHasAtLeastOneCpu) { EXPECT_GE(cpus_by_affinity(), 1); }

TEST(BlasKind, GoesByTheFile) {
  const std::string lib = "/usr/lib/x86_64-linux-gnu/";
  EXPECT_EQ(blas_kind(lib + "blas/libblas.so.3.11.0"), Blas::kReference);
  EXPECT_EQ(blas_kind(lib + "openblas-openmp/libblas.so.3"), Blas::kOpenMp);
  EXPECT_EQ(blas_kind(lib + "openblas-pthread/libblas.so.3"), Blas::kOpenBlasThreads);
  EXPECT_EQ(blas_kind(lib + "openblas-serial/libblas.so.3"), Blas::kOpenBlasSerial);
  EXPECT_EQ(blas_kind(lib + "libmkl_rt.so"), Blas::kOther);
}

}  // namespace
}  // namespace renorm::cli
