#include "cli/blas.h"

#include <dlfcn.h>

#include <filesystem>

namespace renorm::cli {

Blas blas_kind(const std::string& file) {
  const auto has = [&](const char* part) { return file.find(part) != std::string::npos; };
  if (has("openblas-pthread") || has("openblas64-pthread")) return Blas::kOpenBlasThreads;
  if (has("openblas-serial") || has("openblas64-serial")) return Blas::kOpenBlasSerial;
  if (has("openblas-openmp") || has("blis-openmp")) return Blas::kOpenMp;
  // Debian's folder of the reference implementation.
  if (has("/blas/libblas.so")) return Blas::kReference;
  return Blas::kOther;
}

std::string blas_file(const void* address) {
  Dl_info user = {};
  if (dladdr(address, &user) == 0) return "";
  void* library = dlopen(user.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return "";
  // Searches the library and then its dependencies, as the dynamic linker did.
  const void* product = dlsym(library, "sgemm_");
  dlclose(library);
  Dl_info blas = {};
  if (product == nullptr || dladdr(product, &blas) == 0) return "";
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(blas.dli_fname, error);
  return error ? blas.dli_fname : file.string();
}

}  // namespace renorm::cli
