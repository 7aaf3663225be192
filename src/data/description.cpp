#include "data/description.h"

#include <fmt/format.h>

#include <set>

#include "base/checksum.h"
#include "base/errors.h"
#include "base/text.h"

namespace renorm::data {
namespace {

std::string shown_name(const std::string& name) {
  if (is_utf8(name)) return name;
  std::string result;
  for (size_t i = 0; i < name.size();) {
    const Character character = character_at(name, i);
    const std::string bytes = name.substr(i, character.length);
    if (character.valid && character.code != '\\') {
      result += bytes;
    } else {
      for (const char byte : bytes) result += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    i += character.length;
  }
  return result;
}

}  // namespace

std::vector<std::string> shown_classes(const std::vector<std::string>& names, const std::string& where) {
  std::vector<std::string> shown;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    shown.push_back(shown_name(name));
    if (seen.insert(shown.back()).second) continue;
    throw DataError(fmt::format(
        "'{}': two classes are shown as '{}', where \\xNN is a byte that is not UTF-8; rename one",
        printable(where), printable(shown.back())));
  }
  return shown;
}

std::string one_class_note(const std::string& spec, const std::vector<std::string>& classes) {
  if (classes.size() > 1) return "";
  return fmt::format("the data '{}' has one class only, so every prediction is right", printable(spec));
}

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
