#include "data/standardise.h"

namespace renorm::data {

std::vector<ByteTable> standardising_tables(const Description& description) {
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

}  // namespace renorm::data
