// Folders that belong to the user alone.
#pragma once

#include <string>

namespace renorm {

// Why `path` is not a folder of this user to which nobody else can write: "'PATH' belongs to another user".
// "" if it is one. A symbolic link is not.
std::string private_folder_problem(const std::string& path);

// Creates the folder, for this user alone, and its parents. Throws OutputError unless it is then a folder of
// this user to which nobody else can write, and a file can be created in it now.
void make_private_folder(const std::string& path);

}  // namespace renorm
