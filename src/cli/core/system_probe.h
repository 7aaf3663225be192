// What the system says about itself. No torch. `root` stands before every path, for tests; "" is the real
// one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace renorm::cli {

std::string cpu_model(const std::string& root = "");  // "unknown" if it does not say
// Of the instruction sets that matter here those that the CPU has, by the kernel's names.
std::vector<std::string> cpu_features(const std::string& root = "");

int cpus_by_affinity();  // that this process may run on
// CPUs' worth of time that the control group grants; 0: no limit.
double cpus_by_quota(const std::string& root = "");
// Bytes that can be had without swapping, the control group's limit included; -1: unknown.
int64_t available_memory(const std::string& root = "");
double load_average(const std::string& root = "");  // of the last minute; -1: unknown
// "always", "madvise" or "never"; "" if the kernel has none.
std::string huge_pages(const std::string& root = "");

enum class Blas { kOpenMp, kOpenBlasThreads, kOpenBlasSerial, kReference, kOther };
// By the file that the library really is.
Blas blas_kind(const std::string& file);
// The file from which the library or program that holds `address` gets its matrix product, links followed; ""
// if it has its own.
std::string blas_file(const void* address);

}  // namespace renorm::cli
