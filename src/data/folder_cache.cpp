#include "data/folder_cache.h"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/checksum.h"
#include "base/files.h"

namespace renorm::data {
namespace {

constexpr int kVersion = 1;
constexpr size_t kDigestBytes = 64;
constexpr size_t kNameDigits = 16;
constexpr size_t kNumberBytes = 8;
constexpr int64_t kMostCacheBytes = int64_t{1} << 34;

std::string header_of(const std::string& root) {
  return fmt::format("renorm folder {}\n{}", kVersion, root) + '\0';
}

void append_number(uint64_t value, std::string* text) {
  for (size_t i = 0; i < kNumberBytes; ++i) text->push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

bool is_folder_name(std::string_view name) { return name.front() != '.'; }

// Takes the text apart from the front; every function is false at something that is not in order.
class CacheReader {
 public:
  CacheReader(const std::string& text, size_t at) : text_(text), at_(at) {}

  bool at_end() const { return at_ == text_.size(); }

  bool read(std::string* path, FolderListing* listing) {
    uint64_t changed = 0, others = 0;
    std::string_view name;
    if (!read_name(&name) || !read_number(&listing->inode) || !read_number(&changed) || !read_number(&others))
      return false;
    *path = name;
    listing->changed_ns = static_cast<int64_t>(changed);
    listing->others = static_cast<int64_t>(others);
    return listing->others >= 0 && read_names(is_folder_name, &listing->folders) &&
           read_names(is_image_name, &listing->images);
  }

 private:
  bool read_name(std::string_view* name) {
    const size_t zero = text_.find('\0', at_);
    if (zero == std::string::npos) return false;
    *name = std::string_view(text_).substr(at_, zero - at_);
    at_ = zero + 1;
    return true;
  }

  bool read_number(uint64_t* value) {
    if (text_.size() - at_ < kNumberBytes) return false;
    for (size_t i = 0; i < kNumberBytes; ++i) {
      *value |= uint64_t{static_cast<uint8_t>(text_[at_ + i])} << (8 * i);
    }
    at_ += kNumberBytes;
    return true;
  }

  // In ascending order, up to an empty one.
  bool read_names(bool (*allowed)(std::string_view), Names* names) {
    const size_t first = at_;
    std::string_view before, name;
    while (read_name(&name)) {
      if (name.empty()) {
        names->assign(text_, first, at_ - 1 - first);
        return true;
      }
      if (name <= before || name.find('/') != std::string_view::npos || !allowed(name)) return false;
      before = name;
    }
    return false;
  }

  const std::string& text_;
  size_t at_;
};

}  // namespace

std::string encode_folder_cache(const std::string& root, const FolderListings& listings) {
  std::string text = header_of(root);
  for (const auto& [path, listing] : listings) {
    text.append(path).push_back('\0');
    append_number(listing.inode, &text);
    append_number(static_cast<uint64_t>(listing.changed_ns), &text);
    append_number(static_cast<uint64_t>(listing.others), &text);
    text.append(listing.folders).push_back('\0');
    text.append(listing.images).push_back('\0');
  }
  text += sha256(text);
  return text;
}

std::optional<FolderListings> decode_folder_cache(const std::string& root, std::string text) {
  const std::string header = header_of(root);
  if (text.size() < header.size() + kDigestBytes) return std::nullopt;
  if (text.compare(0, header.size(), header) != 0) return std::nullopt;
  const std::string digest = text.substr(text.size() - kDigestBytes);
  text.resize(text.size() - kDigestBytes);
  if (sha256(text) != digest) return std::nullopt;
  FolderListings listings;
  CacheReader reader(text, header.size());
  while (!reader.at_end()) {
    std::string path;
    FolderListing listing;
    if (!reader.read(&path, &listing)) return std::nullopt;
    if (!listings.empty() && path <= listings.rbegin()->first) return std::nullopt;
    listings.emplace_hint(listings.end(), std::move(path), std::move(listing));
  }
  return listings;
}

std::string folder_cache_file(const std::string& root, const std::string& cache) {
  const std::string name = fmt::format("folder-{}.bin", sha256(header_of(root)).substr(0, kNameDigits));
  return (std::filesystem::path(cache) / name).string();
}

std::optional<FolderListings> read_folder_cache(const std::string& root, const std::string& cache) {
  try {
    return decode_folder_cache(root, read_file(folder_cache_file(root, cache), kMostCacheBytes));
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

void write_folder_cache(const std::string& root, const std::string& cache, const FolderListings& listings) {
  try {
    make_writable_folder(cache);
    write_atomically(folder_cache_file(root, cache), encode_folder_cache(root, listings));
  } catch (const std::runtime_error&) {
    return;
  }
}

}  // namespace renorm::data
