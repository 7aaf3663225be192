// The file that keeps the listings of a folder of images between two starts. No torch.
#pragma once

#include <optional>
#include <string>

#include "data/folder_tree.h"

namespace renorm::data {

// A line with the version, the root followed by a zero byte, the folders one after the other, then the
// SHA-256 of all before. A folder is its path and a zero byte, three numbers of 8 bytes, low byte first
// (inode, changed_ns, others), then its folders and its images, each list ended by one more zero byte.
std::string encode_folder_cache(const std::string& root, const FolderListings& listings);
// Nothing unless the file is whole, of this version, of this root, and such that encode_folder_cache could
// have made it.
std::optional<FolderListings> decode_folder_cache(const std::string& root, std::string text);

// The file in the folder `cache` that belongs to `root`, an absolute path.
std::string folder_cache_file(const std::string& root, const std::string& cache);

// Nothing if there is no such file or it is damaged: then the folders are listed anew.
std::optional<FolderListings> read_folder_cache(const std::string& root, const std::string& cache);
// That it cannot be written is no error: only the next start takes longer.
void write_folder_cache(const std::string& root, const std::string& cache, const FolderListings& listings);

}  // namespace renorm::data
