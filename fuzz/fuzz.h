// Shared by the fuzz targets: the refusals that are allowed, and a check that ends the program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/errors.h"

namespace renorm::fuzz {

// The file name that parsers are given with their bytes.
inline const char* const kFile = "FILE";

inline void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

// A refusal is one line that a terminal can show, whatever bytes it quotes.
inline void expect_sentence(const std::string& message) {
  expect(!message.empty(), "a refusal without a message");
  expect(message.size() < 4000, "a refusal that quotes without end: " + message);
  expect(std::none_of(message.begin(), message.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
         "a refusal with control characters: " + message);
}

// Whether `parse` accepts its input. UsageError and DataError are the two ways to refuse outside bytes; any
// other exception ends the program. A DataError starts with the file.
template <typename Parse>
bool accepts(Parse&& parse, const std::string& file = kFile) {
  try {
    parse();
    return true;
  } catch (const UsageError& error) {
    expect_sentence(error.what());
  } catch (const DataError& error) {
    expect_sentence(error.what());
    expect(std::string(error.what()).rfind(file, 0) == 0,
           "a refusal that does not start with the file: " + std::string(error.what()));
  }
  return false;
}

inline std::string text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace renorm::fuzz
