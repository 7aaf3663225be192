#include "data/description.h"

#include "base/checksum.h"

namespace renorm::data {

std::string fingerprint_of(const std::vector<int64_t>& train, const std::vector<int64_t>& test,
                           const std::string& names) {
  std::string bytes;
  for (const auto* labels : {&train, &test}) {
    for (const int64_t label : *labels) bytes += std::to_string(label) + ' ';
    bytes += '\n';
  }
  return sha256(bytes + names);
}

}  // namespace renorm::data
