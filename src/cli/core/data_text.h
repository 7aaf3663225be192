// How `renorm data` puts what it knows into lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace renorm::cli {

void print_line(const char* label, const std::string& text);

std::string names_text(const std::vector<std::string>& names);  // "3: ant, bee, cat", the first few of many
std::string numbers_text(const std::vector<double>& numbers);   // "0.4850, 0.4560"
std::string counts_text(const std::vector<int64_t>& labels, int64_t classes);  // "24,000 images, 100 a class"

}  // namespace renorm::cli
