// Files in a folder that may come from a stranger: nothing outside of the folder is opened.
#pragma once

#include <cstdint>
#include <string>

namespace renorm {

// Whether `name` is a relative path without "..". Links are not considered.
bool is_inside(const std::string& name);

// The whole file `name`, a relative path, in `folder`. Links below `folder` are not followed; `folder` itself
// may be one. Throws as read_file does, and DataError if a part of `name` is a link or leaves the folder.
std::string read_file_inside(const std::string& folder, const std::string& name,
                             int64_t limit = int64_t{1} << 40);

}  // namespace renorm
