#include "cli/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cli/errors.h"

namespace renorm::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw OutputError(fmt::format("cannot write '{}': {}", path, reason));
}

// A link is followed, so that replacing the file does not replace the link.
fs::path final_path(const std::string& path) {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(path, error);
  return error ? fs::path(path) : resolved;
}

fs::path temporary_beside(const fs::path& target) {
  return fs::path(target.string() + fmt::format(".tmp.{}", static_cast<long>(getpid())));
}

void write_temporary(const std::string& path, const fs::path& temporary, const std::string& text) {
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) fail(path, std::strerror(errno));
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  written = std::fflush(file) == 0 && fsync(fileno(file)) == 0 && written;
  const int error = errno;
  std::fclose(file);
  if (written) return;
  std::remove(temporary.c_str());
  fail(path, std::strerror(error));
}

}  // namespace

void check_writable(const std::string& path) {
  const fs::path target = final_path(path);
  std::error_code error;
  if (fs::exists(target, error)) {
    if (!fs::is_regular_file(target, error)) fail(path, "it is not a regular file");
    if (access(target.c_str(), W_OK) != 0) fail(path, std::strerror(errno));
  }
  const fs::path temporary = temporary_beside(target);
  write_temporary(path, temporary, "");
  std::remove(temporary.c_str());
}

void write_atomically(const std::string& path, const std::string& text) {
  const fs::path target = final_path(path);
  const fs::path temporary = temporary_beside(target);
  write_temporary(path, temporary, text);
  if (std::rename(temporary.c_str(), target.c_str()) == 0) return;
  const int error = errno;
  std::remove(temporary.c_str());
  fail(path, std::strerror(error));
}

}  // namespace renorm::cli
