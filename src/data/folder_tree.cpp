#include "data/folder_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "base/errors.h"

namespace renorm::data {
namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;

int64_t in_ns(const timespec& time) { return int64_t{time.tv_sec} * kNanoseconds + time.tv_nsec; }

[[noreturn]] void refuse(const std::string& path, int error) {
  const std::string sentence = failure("list the folder", path, error);
  if (error == EIO || error == ENOMEM || error == EMFILE || error == ENFILE) throw IoError(sentence);
  throw MissingInputError(sentence);
}

FolderIdentity identity_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

enum class EntryKind { kFolder, kFile, kOther };

EntryKind kind_of(int folder, const dirent& entry) {
  if (entry.d_type == DT_DIR) return EntryKind::kFolder;
  if (entry.d_type == DT_REG) return EntryKind::kFile;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return EntryKind::kOther;
  struct stat status = {};
  if (::fstatat(folder, entry.d_name, &status, 0) != 0) return EntryKind::kOther;
  if (S_ISDIR(status.st_mode)) return EntryKind::kFolder;
  return S_ISREG(status.st_mode) ? EntryKind::kFile : EntryKind::kOther;
}

Names sorted_names(std::vector<std::string>* list) {
  std::sort(list->begin(), list->end());
  Names names;
  for (const std::string& name : *list) names.append(name).push_back('\0');
  return names;
}

void read_entries(DIR* stream, const std::string& path, FolderListing* listing) {
  std::vector<std::string> folders, images;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream);  // NOLINT(concurrency-mt-unsafe): the stream is this call's own
    if (entry == nullptr) break;
    if (entry->d_name[0] == '.') continue;
    const EntryKind kind = kind_of(::dirfd(stream), *entry);
    if (kind == EntryKind::kFolder) {
      folders.emplace_back(entry->d_name);
    } else if (kind == EntryKind::kFile && is_image_name(entry->d_name)) {
      images.emplace_back(entry->d_name);
    } else {
      ++listing->others;
    }
  }
  if (errno != 0) refuse(path, errno);
  listing->folders = sorted_names(&folders);
  listing->images = sorted_names(&images);
}

struct CloseFolder {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

FolderListing read_folder(const std::string& path, int64_t settle_ns, FolderIdentity* identity) {
  Descriptor descriptor(open_file(path, O_RDONLY | O_DIRECTORY));
  struct stat status = {};
  timespec now = {};
  // The time is taken before the names: a later change makes it differ.
  if (!descriptor.valid() || ::fstat(descriptor.get(), &status) != 0) refuse(path, errno);
  ::clock_gettime(CLOCK_REALTIME, &now);
  *identity = identity_of(status);
  FolderListing listing;
  listing.inode = status.st_ino;
  const int64_t changed = in_ns(status.st_ctim);
  listing.changed_ns = changed <= in_ns(now) - settle_ns ? changed : 0;
  const std::unique_ptr<DIR, CloseFolder> stream(::fdopendir(descriptor.get()));
  if (stream == nullptr) refuse(path, errno);
  static_cast<void>(descriptor.release());  // the stream closes it
  read_entries(stream.get(), path, &listing);
  return listing;
}

}  // namespace

bool is_image_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.front() == '.') return false;
  std::string ending(name.substr(dot + 1));
  for (char& letter : ending) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return ending == "jpg" || ending == "jpeg" || ending == "png";
}

std::string joined(const std::string& folder, std::string_view name) {
  if (folder.empty()) return std::string(name);
  std::string path = folder;
  if (name.empty()) return path;
  if (path.back() != '/') path += '/';
  return path.append(name);
}

FolderTree::FolderTree(std::string root, FolderListings known, int64_t settle_ns)
    : root_(std::move(root)), known_(std::move(known)), settle_ns_(settle_ns) {}

const FolderListing& FolderTree::list(const std::string& folder, FolderIdentity* identity) {
  const auto found = identities_.find(folder);
  if (found != identities_.end()) {
    *identity = found->second;
    return current_.at(folder);
  }
  const FolderListing& listing = look_up(folder, identity);
  identities_.emplace(folder, *identity);
  return listing;
}

const FolderListing& FolderTree::look_up(const std::string& folder, FolderIdentity* identity) {
  const std::string path = joined(root_, folder);
  FolderListings::node_type known = known_.extract(folder);
  if (!known.empty()) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) refuse(path, errno);
    *identity = identity_of(status);
    const FolderListing& listing = known.mapped();
    if (listing.changed_ns != 0 && listing.changed_ns == in_ns(status.st_ctim) &&
        listing.inode == status.st_ino) {
      return current_.insert(std::move(known)).position->second;
    }
  }
  ++listed_;
  return current_.insert_or_assign(folder, read_folder(path, settle_ns_, identity)).first->second;
}

bool FolderTree::images_below(const std::string& folder, std::set<FolderIdentity>* seen, Names* images,
                              int64_t* others) {
  std::vector<std::string> waiting{""};  // relative to `folder`; the next one is the last
  bool first = true;
  while (!waiting.empty()) {
    const std::string below = std::move(waiting.back());
    waiting.pop_back();
    FolderIdentity identity;
    const FolderListing& listing = list(joined(folder, below), &identity);
    const bool entered = seen->insert(identity).second;
    if (first && !entered) return false;
    first = false;
    if (!entered) continue;
    *others += listing.others;
    for_each_name(listing.images,
                  [&](std::string_view name) { images->append(joined(below, name)).push_back('\0'); });
    const auto place = static_cast<std::ptrdiff_t>(waiting.size());
    for_each_name(listing.folders, [&](std::string_view name) { waiting.push_back(joined(below, name)); });
    std::reverse(waiting.begin() + place, waiting.end());
  }
  return true;
}

}  // namespace renorm::data
