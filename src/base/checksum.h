#pragma once

#include <string>

namespace renorm {

// SHA-256 of the bytes as 64 hexadecimal digits.
std::string sha256(const std::string& bytes);

}  // namespace renorm
