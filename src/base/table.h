// Text in aligned columns.
#pragma once

#include <string>
#include <vector>

namespace renorm {

// The rows as lines, with two blanks between columns. The first `left` columns are flush left, the others
// flush right. All rows have the same number of cells, in UTF-8.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows, size_t left = 1);

}  // namespace renorm
