#include "train/run_id.h"

#include <fmt/format.h>

#include <cstdint>
#include <random>

namespace renorm::train {
namespace {

constexpr size_t kDigits = 16;
const std::string kStart = "# run ";

}  // namespace

std::string new_run_id() {
  std::random_device system;
  return fmt::format("{:08x}{:08x}", static_cast<uint32_t>(system()), static_cast<uint32_t>(system()));
}

bool is_run_id(const std::string& text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string run_id_comment(const std::string& id) { return kStart + id + "\n"; }

std::string run_id_of(const std::string& toml) {
  const std::string line = toml.substr(0, toml.find('\n'));
  if (line.rfind(kStart, 0) != 0) return "";
  std::string id = line.substr(kStart.size());
  return is_run_id(id) ? id : "";
}

}  // namespace renorm::train
