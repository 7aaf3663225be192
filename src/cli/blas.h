// The BLAS library that LibTorch uses.
#pragma once

#include <string>

namespace renorm::cli {

enum class Blas { kOpenMp, kOpenBlasThreads, kOpenBlasSerial, kReference, kOther };
// By the file of the library, symbolic links resolved.
Blas blas_kind(const std::string& file);

// The file from which the library or program that holds `address` takes its matrix product, symbolic links
// resolved; "" if it has its own.
std::string blas_file(const void* address);

}  // namespace renorm::cli
