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

std::vector<ByteTable> standardizing_tables(const Description& description) {
  std::vector<ByteTable> tables(description.mean.size());
  for (size_t channel = 0; channel < tables.size(); ++channel) {
    for (size_t byte = 0; byte < tables[channel].size(); ++byte) {
      const double value = static_cast<double>(byte) / 255.0;
      tables[channel][byte] =
          static_cast<float>((value - description.mean[channel]) / description.std[channel]);
    }
  }
  return tables;
}

void standardize(const uint8_t* bytes, int64_t pixels, int64_t channel_step, int64_t pixel_step,
                 const std::vector<ByteTable>& tables, float* out) {
  for (const ByteTable& table : tables) {
    for (int64_t p = 0; p < pixels; ++p) out[p] = table[bytes[p * pixel_step]];
    out += pixels;
    bytes += channel_step;
  }
}

}  // namespace renorm::data
