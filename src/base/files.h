// Durable files and folders: a file is written whole or not at all, and is on disk before anything relies on
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace renorm {

// The whole file. Throws MissingInputError (absent, unreadable, not a regular file), DataError if it is
// longer than `limit` bytes, IoError.
std::string read_file(const std::string& path, int64_t limit = int64_t{1} << 40);

// The rest of read_file after open(2): `descriptor` is its result, with errno if it is negative; it is
// closed. The file was opened with O_NONBLOCK.
std::string read_opened(int descriptor, const std::string& path, int64_t limit);

// A symbolic link with the name of an output file: the file that it points to is replaced, or the link
// itself.
enum class Links { kFollow, kReplace };

// The file that is written: with kFollow the end of the links, so that replacing it does not replace a link.
std::string final_path(const std::string& path, Links links);

// Throws OutputError unless `path` can be created or replaced now. Leaves nothing behind.
void check_writable(const std::string& path, Links links = Links::kFollow);

// Creates the folder and its parents. Throws OutputError unless a file can be created in it now. Leaves only
// the folder behind.
void make_writable_folder(const std::string& path);

// Replaces `path` by `bytes` in one step and waits until they are on disk. A reader sees the old file or the
// new one. Throws IoError; then the old file is unchanged, with nothing left beside it.
void write_atomically(const std::string& path, const std::string& bytes, Links links = Links::kFollow);

// Creates a new file of `bytes` and waits until it is on disk. Its name is durable only after sync_folder.
// Throws IoError, also if the file exists.
void write_durably(const std::string& path, const std::string& bytes);

// Waits until the names in the folder are on disk. Throws IoError.
void sync_folder(const std::string& path);

// Names in a folder, sorted, without "." and ".."; empty if there is no such folder. Throws MissingInputError
// if the folder is unreadable, IoError.
std::vector<std::string> list_folder(const std::string& path);

// The folder for cached files: $RENORM_CACHE, else $XDG_CACHE_HOME/renorm, else ~/.cache/renorm; for a user
// without a home, a folder of their own in the temporary folder.
std::string cache_folder();

// A file to which whole lines are appended. After a process was killed, only the last line may be incomplete.
class LineFile {
 public:
  // Opens or creates the file; truncates it to `keep` bytes first if keep >= 0. Throws OutputError if it
  // cannot be opened, DataError if it is shorter than `keep`, IoError.
  explicit LineFile(std::string path, int64_t keep = -1);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Appends the line and a newline. Throws IoError; then the file ends with the previous line.
  void append(const std::string& line);
  void sync();  // waits until everything is on disk; throws IoError
  int64_t size() const { return size_; }
  // Whether the path still leads to this file, and the file has the length of what was appended.
  bool is_intact() const;

 private:
  std::string path_;
  int descriptor_;
  int64_t size_;
};

}  // namespace renorm
