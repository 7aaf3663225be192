// Files and folders with the care that results deserve: whole or not at all, on disk before they count.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace renorm {

// The whole file. Throws MissingInputError (absent, unreadable, not a regular file), DataError if it is
// longer than `limit` bytes, IoError.
std::string read_file(const std::string& path, int64_t limit = int64_t{1} << 40);

// Throws OutputError unless `path` can be made or replaced now. Leaves nothing behind.
void check_writable(const std::string& path);

// Makes the folder and its parents. Throws OutputError unless a file can be made in it now. Leaves nothing
// behind but the folder.
void make_writable_folder(const std::string& path);

// Replaces `path` by `bytes` in one step, on disk when it returns: a reader sees the old file or the new one.
// A symbolic link is followed. Throws IoError; then the old file is as it was, and nothing is left beside it.
void write_atomically(const std::string& path, const std::string& bytes);

// Makes a new file of `bytes` and waits until it is on disk; its name is there for good after sync_folder.
// Throws IoError, also if there is such a file already.
void write_durably(const std::string& path, const std::string& bytes);

// Waits until the folder's list of names is on disk. Throws IoError.
void sync_folder(const std::string& path);

// Names in a folder, sorted, without "." and ".."; empty if there is no such folder. Throws MissingInputError
// if the folder may not be read, IoError.
std::vector<std::string> list_folder(const std::string& path);

// A folder for what can be made again: $RENORM_CACHE, else $XDG_CACHE_HOME/renorm, else ~/.cache/renorm, and
// for a user without a home a folder of their own among the temporary files.
std::string cache_folder();

// A file that only grows, a whole line at a time. The lines of a process that was killed are whole but
// for possibly the last.
class LineFile {
 public:
  // Opens or makes the file; cuts it to `keep` bytes first if keep >= 0. Throws OutputError if it cannot be
  // opened, DataError if it is shorter than `keep`, IoError.
  explicit LineFile(std::string path, int64_t keep = -1);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Adds the newline. Throws IoError; then the file ends with the line before.
  void append(const std::string& line);
  void sync();  // waits until all of it is on disk; throws IoError
  int64_t size() const { return size_; }

 private:
  std::string path_;
  int descriptor_;
  int64_t size_;
};

}  // namespace renorm
