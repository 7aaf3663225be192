// Folders of images as the file system shows them; nobody but folder_index.h needs it. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace renorm::data {

// Names, each followed by a zero byte, which no name has.
using Names = std::string;

// What one folder holds. Hidden names, which start with a dot, are left out.
struct FolderListing {
  uint64_t inode = 0;
  int64_t changed_ns = 0;  // when the folder last changed; 0: it may have changed since it was listed
  int64_t others = 0;      // files that are not images, and links that lead nowhere
  Names folders;           // sorted by bytes; links to folders are folders
  Names images;            // sorted by bytes; links to files are files
};
// By path below the root, whose own is "".
using FolderListings = std::map<std::string, FolderListing>;

// Ends in .jpg, .jpeg or .png in any case, and is not hidden.
bool is_image_name(std::string_view name);

// Calls use(name) for each.
template <typename Use>
void for_each_name(const Names& names, Use&& use) {
  for (size_t at = 0; at < names.size();) {
    const std::string_view name(names.c_str() + at);
    use(name);
    at += name.size() + 1;
  }
}

// "a" and "b" as "a/b"; either may be "".
std::string joined(const std::string& folder, std::string_view name);

// Device and inode: what a folder is, under whatever path.
using FolderIdentity = std::pair<uint64_t, uint64_t>;

class FolderTree {
 public:
  // `known` are listings that may be out of date. A folder that changed less than settle_ns before it was
  // listed is listed again next time: the clocks of file systems are coarse.
  FolderTree(std::string root, FolderListings known, int64_t settle_ns);

  // The folder's listing, the known one if the folder did not change since; looked at only once. Sets
  // `identity`. Throws MissingInputError if it may not be read, IoError.
  const FolderListing& list(const std::string& folder, FolderIdentity* identity);

  // Names, relative to `folder`, of the images in it and all below it, in an order that the names determine;
  // `others` grows by what was passed over. Folders in `seen` are not entered, which ends loops of links;
  // those that are entered are added. False if `folder` itself was seen.
  bool images_below(const std::string& folder, std::set<FolderIdentity>* seen, Names* images,
                    int64_t* others);

  const std::string& root() const { return root_; }
  int64_t listed() const { return listed_; }  // folders that were read
  // All that were asked for, and whether they are not just the known ones.
  const FolderListings& listings() const { return current_; }
  bool differs() const { return listed_ > 0 || !known_.empty(); }

 private:
  const FolderListing& look_up(const std::string& folder, FolderIdentity* identity);

  std::string root_;
  FolderListings known_;                              // not asked for yet
  FolderListings current_;                            // asked for
  std::map<std::string, FolderIdentity> identities_;  // of those
  int64_t settle_ns_;
  int64_t listed_ = 0;
};

}  // namespace renorm::data
