// Files the user asked for, written whole or not at all.
#pragma once

#include <string>

namespace renorm::cli {

// Throws OutputError unless `path` can be made or replaced now. Leaves nothing behind.
void check_writable(const std::string& path);

// Replaces `path` by `text` in one step: a reader sees the old file or the new one. Throws OutputError.
void write_atomically(const std::string& path, const std::string& text);

}  // namespace renorm::cli
