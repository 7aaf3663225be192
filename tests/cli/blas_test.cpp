#include "cli/blas.h"

#include <gtest/gtest.h>

namespace renorm::cli {
namespace {

TEST(BlasKind, DependsOnTheFile) {
  const std::string lib = "/usr/lib/x86_64-linux-gnu/";
  EXPECT_EQ(blas_kind(lib + "blas/libblas.so.3.11.0"), Blas::kReference);
  EXPECT_EQ(blas_kind(lib + "openblas-openmp/libblas.so.3"), Blas::kOpenMp);
  EXPECT_EQ(blas_kind(lib + "openblas-pthread/libblas.so.3"), Blas::kOpenBlasThreads);
  EXPECT_EQ(blas_kind(lib + "openblas-serial/libblas.so.3"), Blas::kOpenBlasSerial);
  EXPECT_EQ(blas_kind(lib + "libmkl_rt.so"), Blas::kOther);
}

TEST(BlasFile, IsEmptyForAProgramWithoutMatrixProduct) {
  EXPECT_EQ(blas_file(reinterpret_cast<const void*>(&blas_kind)), "");
}

}  // namespace
}  // namespace renorm::cli
