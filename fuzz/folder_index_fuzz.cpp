// Input: what stands between the head of a folder's cache file and its checksum, which is put right; and the
// same bytes as a whole file.
#include "base/checksum.h"
#include "data/folder_cache.h"
#include "fuzz.h"

using namespace renorm;

namespace {

const char* const kRoot = "/root";

void expect_names(const data::Names& names, bool images) {
  std::string before;
  data::for_each_name(names, [&](std::string_view name) {
    fuzz::expect(!name.empty() && name.front() != '.', "a name that is hidden or empty");
    fuzz::expect(name.find('/') == std::string_view::npos, "a name that leads elsewhere");
    fuzz::expect(before < name, "names out of order");
    fuzz::expect(!images || data::is_image_name(name), "an image that is none");
    before = name;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzz::text_of(data, size);
  data::decode_folder_cache(kRoot, bytes);
  static const std::string empty = data::encode_folder_cache(kRoot, {});
  const std::string body = empty.substr(0, empty.size() - 64) + bytes;
  const std::string text = body + sha256(body);
  const auto listings = data::decode_folder_cache(kRoot, text);
  if (!listings) return 0;
  for (const auto& [path, listing] : *listings) {
    fuzz::expect(listing.others >= 0, "less than no files");
    expect_names(listing.folders, false);
    expect_names(listing.images, true);
  }
  fuzz::expect(data::encode_folder_cache(kRoot, *listings) == text, "the cache changed");
  return 0;
}
