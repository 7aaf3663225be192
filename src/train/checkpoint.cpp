#include "train/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"

namespace renorm::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSumsBytes = 1 << 20;
constexpr size_t kDigestDigits = 64;
constexpr int64_t kMaxSteps = 1'000'000'000'000'000;
const std::string kState = "state.json";
const std::string kSums = "SHA256SUMS";
const std::string kPrefix = "step-";
const std::string kLast = "last";
const std::string kBest = "best";
constexpr int kMaxTemporaryNames = 1000;

using Files = std::map<std::string, std::string>;  // names to bytes or checksums

[[noreturn]] void fail(const std::string& what, const std::string& path, const std::string& reason) {
  throw IoError(fmt::format("cannot {} '{}': {}", what, printable(path), reason));
}

std::string folder_name(int64_t step) { return fmt::format("{}{:09}", kPrefix, step); }

// The step of "step-000000500" or of "step-500"; nothing for another name.
std::optional<int64_t> step_of(const std::string& name) {
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  try {
    return parse_integer(name.substr(kPrefix.size()), "", 0, kMaxSteps);
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

// Whether it is a folder, not a link, that holds nothing but files of a checkpoint.
bool holds_only_own_files(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return false;
  const std::string own[] = {kModelFile, kAverageFile, kOptimizerFile, kState, kSums};
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const bool is_own = std::find(std::begin(own), std::end(own), entry->path().filename()) != std::end(own);
    if (!is_own || !fs::is_regular_file(entry->symlink_status(error))) return false;
  }
  return !error;
}

// Whether it is a checkpoint, complete or not, and nothing else.
bool is_checkpoint(const fs::path& folder) {
  std::error_code error;
  return holds_only_own_files(folder) &&
         (fs::exists(folder / kState, error) || fs::exists(folder / kSums, error));
}

// Whether the path is one of fresh_path(), left behind by a killed process: ".tmp-step-000000500-123",
// ".tmp-last-123".
bool is_leftover(const fs::path& path) {
  const std::string name = path.filename();
  if (name.rfind(".tmp-", 0) != 0 && name.rfind(".old-", 0) != 0) return false;
  const std::string rest = name.substr(std::string(".tmp-").size());
  const size_t end = rest.rfind('-');
  if (end == std::string::npos || rest.find_first_not_of("0123456789.", end + 1) != std::string::npos) {
    return false;
  }
  const std::string of = rest.substr(0, end);
  std::error_code error;
  if (of == kLast || of == kBest) return fs::is_symlink(fs::symlink_status(path, error));
  const std::optional<int64_t> step = step_of(of);
  return step && folder_name(*step) == of && holds_only_own_files(path);
}

void delete_leftover(const fs::path& path) {
  std::error_code error;
  if (is_leftover(path)) fs::remove_all(path, error);
  if (error) fail("delete", path, error.message());
}

// A killed process with the same number may have left something of this name; it is deleted first.
fs::path fresh_path(const std::string& folder, const std::string& kind, const std::string& name) {
  for (int i = 0;; ++i) {
    const fs::path path =
        fs::path(folder) / fmt::format(".{}-{}-{}.{}", kind, name, static_cast<long>(getpid()), i);
    delete_leftover(path);
    std::error_code error;
    if (i == kMaxTemporaryNames || !fs::exists(fs::symlink_status(path, error))) return path;
  }
}

void rename_to(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail("write", to, std::strerror(errno));
}

// Renamed first, so that a process killed half-way leaves no incomplete checkpoint. A folder that is not a
// checkpoint stays.
void delete_folder(const std::string& folder, const std::string& name) {
  if (!is_checkpoint(fs::path(folder) / name)) return;
  const fs::path old = fresh_path(folder, "old", name);
  rename_to(fs::path(folder) / name, old);
  std::error_code error;
  fs::remove_all(old, error);
  if (error) fail("delete", old, error.message());
}

// Of a name that a checkpoint needs.
std::string foreign_sentence(const fs::path& path) {
  return fmt::format("'{}' is not a checkpoint of renorm; move it away", printable(path));
}

// Whether a new checkpoint may take the name: it is free, or a checkpoint has it, whatever was added to that.
bool is_replaceable(const fs::path& target) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(target, error)) || holds_only_own_files(target)) return true;
  return fs::is_directory(fs::symlink_status(target, error)) &&
         (fs::is_regular_file(fs::symlink_status(target / kState, error)) ||
          fs::is_regular_file(fs::symlink_status(target / kSums, error)));
}

// Moves the new folder to its name. An existing one is exchanged with it in one step where the file system
// can do so; then a checkpoint of that name exists at every moment.
void install(const fs::path& temporary, const std::string& folder, const std::string& name) {
  const fs::path target = fs::path(folder) / name;
  if (!is_replaceable(target)) throw IoError(foreign_sentence(target));
  std::error_code error;
  if (!fs::exists(fs::symlink_status(target, error))) return rename_to(temporary, target);
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return;
  const fs::path old = fresh_path(folder, "old", name);
  rename_to(target, old);
  if (std::rename(temporary.c_str(), target.c_str()) == 0) return;
  const int reason = errno;
  std::rename(old.c_str(), target.c_str());
  fail("write", target, std::strerror(reason));
}

// Writes one file; returns its line of SHA256SUMS. The checksum takes as long as the writing, so both are
// done at once; a system that has no thread to spare computes it afterwards.
std::string write_part(const fs::path& into, const std::string& name, const std::string& bytes) {
  const auto policy = std::launch::async | std::launch::deferred;
  std::future<std::string> digest = std::async(policy, [&bytes] { return sha256(bytes); });
  write_durably(into / name, bytes);
  return fmt::format("{}  {}\n", digest.get(), name);
}

void write_files(const fs::path& into, const Checkpoint& checkpoint) {
  std::error_code error;
  if (!fs::create_directory(into, error)) {
    fail("make the folder", into, error ? error.message() : "it exists");
  }
  std::string sums;
  for (const auto& [name, bytes] : checkpoint.tensors) sums += write_part(into, name, bytes);
  sums += write_part(into, kState, to_json(checkpoint.state));
  write_durably(into / kSums, sums);
  sync_folder(into);
}

// Whether the name is free or a link.
bool is_link_or_free(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  return fs::is_symlink(status) || !fs::exists(status);
}

// Links are for users; a file system without them, or a name that is taken, is no reason to stop.
void point(const std::string& folder, const std::string& link, const std::string& target) {
  if (!is_link_or_free(fs::path(folder) / link)) return;
  const fs::path temporary = fresh_path(folder, "tmp", link);
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return;
    fail("write", fs::path(folder) / link, std::strerror(errno));
  }
  rename_to(temporary, fs::path(folder) / link);
}

void update_links(const std::string& folder, const std::vector<int64_t>& steps, int64_t last, int64_t best) {
  point(folder, kLast, folder_name(last));
  if (std::find(steps.begin(), steps.end(), best) != steps.end()) {
    point(folder, kBest, folder_name(best));
    return;
  }
  const fs::path link = fs::path(folder) / kBest;
  if (!is_link_or_free(link)) return;
  if (::unlink(link.c_str()) != 0 && errno != ENOENT) fail("delete", link, std::strerror(errno));
}

// Deletes the steps up to `last`, except the newest `keep` and the best. `steps` are ascending.
void prune(const std::string& folder, const std::vector<int64_t>& steps, int64_t last, int64_t best,
           int64_t keep) {
  const auto end = std::upper_bound(steps.begin(), steps.end(), last);
  const auto kept = std::min<int64_t>(std::max<int64_t>(keep, 1), end - steps.begin());
  for (auto old = steps.begin(); old != end - kept; ++old) {
    if (*old != best) delete_folder(folder, folder_name(*old));
  }
}

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw DataError(fmt::format("{}: {}", printable(path), what));
}

// A missing file makes the checkpoint invalid; it is not a missing input of the user.
std::string read_part(const fs::path& path, int64_t limit) {
  try {
    return read_file(path, limit);
  } catch (const MissingInputError& error) {
    refuse(path, error.what());
  }
}

bool is_digest(const std::string& text) {
  return text.size() == kDigestDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_file_name(const std::string& text) {
  const auto good = [](char c) { return c == '.' || c == '-' || c == '_' || std::isalnum(uint8_t(c)) != 0; };
  return !text.empty() && text[0] != '.' && std::all_of(text.begin(), text.end(), good);
}

Files parse_sums(const std::string& text, const fs::path& path) {
  if (text.empty() || text.back() != '\n') refuse(path, "cut short; it must end with a newline");
  Files sums;
  int64_t line = 0;
  for (const std::string& content : split(text.substr(0, text.size() - 1), '\n')) {
    ++line;
    const std::string digest = content.substr(0, kDigestDigits);
    const std::string rest = content.size() > kDigestDigits ? content.substr(kDigestDigits) : "";
    if (!is_digest(digest) || rest.rfind("  ", 0) != 0 || !is_file_name(rest.substr(2))) {
      refuse(path, fmt::format("line {} must be a SHA-256 checksum, two spaces and a file name, got '{}'",
                               line, printable(content)));
    }
    if (!sums.emplace(rest.substr(2), digest).second)
      refuse(path, fmt::format("line {} names a file again", line));
  }
  return sums;
}

Files read_verified(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) refuse(folder, "there is no such checkpoint");
  const Files sums = parse_sums(read_part(folder / kSums, kMaxSumsBytes), folder / kSums);
  if (sums.count(kState) == 0) refuse(folder / kState, fmt::format("not listed in {}", kSums));
  for (const std::string& name : list_folder(folder)) {
    if (name != kSums && sums.count(name) == 0) refuse(folder / name, fmt::format("not listed in {}", kSums));
  }
  Files files;
  for (const auto& [name, digest] : sums) {
    std::string bytes = read_part(folder / name, int64_t{1} << 40);
    if (sha256(bytes) != digest) {
      refuse(folder / name, fmt::format("does not match its checksum in {}: altered or truncated", kSums));
    }
    files[name] = std::move(bytes);
  }
  return files;
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string path) : path_(std::move(path)) {}

std::string CheckpointFolder::path_of(int64_t step) const { return fs::path(path_) / folder_name(step); }

std::vector<int64_t> CheckpointFolder::steps() const {
  std::vector<int64_t> found;
  for (const std::string& name : list_folder(path_)) {
    const std::optional<int64_t> step = step_of(name);
    std::error_code error;
    if (!step || folder_name(*step) != name) continue;
    if (fs::is_directory(fs::symlink_status(fs::path(path_) / name, error))) found.push_back(*step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void CheckpointFolder::write(const Checkpoint& checkpoint, int64_t keep,
                             const std::function<void()>& check_folder) {
  check_folder();
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) fail("make the folder", path_, error.message());
  const int64_t step = checkpoint.state.step;
  const fs::path temporary = fresh_path(path_, "tmp", folder_name(step));
  try {
    write_files(temporary, checkpoint);
    check_folder();
    install(temporary, path_, folder_name(step));
  } catch (const IoError&) {
    if (is_leftover(temporary)) fs::remove_all(temporary, error);
    throw;
  }
  // Older ones are deleted only after the new one is on disk.
  sync_folder(path_);
  check_folder();
  settle(checkpoint.state, keep);
}

void CheckpointFolder::settle(const RunState& state, int64_t keep) {
  const std::vector<int64_t> all = steps();
  update_links(path_, all, state.step, state.best_step);
  prune(path_, all, state.step, state.best_step, keep);
  clean();
}

void CheckpointFolder::check_free_after(int64_t step) const {
  for (const std::string& name : list_folder(path_)) {
    const std::optional<int64_t> other = step_of(name);
    if (!other || *other <= step || folder_name(*other) != name) continue;
    if (!is_replaceable(fs::path(path_) / name)) {
      throw OutputError(foreign_sentence(fs::path(path_) / name));
    }
  }
}

Checkpoint CheckpointFolder::read(int64_t step) const {
  const fs::path folder = path_of(step);
  Checkpoint checkpoint;
  checkpoint.tensors = read_verified(folder);
  checkpoint.state = parse_run_state(checkpoint.tensors[kState], folder / kState);
  checkpoint.tensors.erase(kState);
  if (checkpoint.state.step != step) {
    refuse(folder / kState,
           fmt::format("of step {}, but in the folder of step {}", checkpoint.state.step, step));
  }
  return checkpoint;
}

int64_t CheckpointFolder::find(const std::string& name, std::vector<std::string>* refused) const {
  const bool best = name == kBest;
  std::optional<int64_t> step;
  if (name == kLast || best) {
    const RunState state = newest(refused).state;
    step = best ? state.best_step : state.step;
  } else {
    step = step_of(name.rfind(kPrefix, 0) == 0 ? name : kPrefix + name);
  }
  if (!step) {
    throw MissingInputError(
        fmt::format("a checkpoint is called last, best, step-N or N, got '{}'", printable(name)));
  }
  const std::vector<int64_t> all = steps();
  if (std::find(all.begin(), all.end(), *step) != all.end()) return *step;
  const std::string others =
      all.empty() ? "there is none" : fmt::format("there are steps {}", fmt::join(all, ", "));
  throw MissingInputError(
      fmt::format("'{}' has no checkpoint '{}'; {}", printable(path_), printable(name), printable(others)));
}

Checkpoint CheckpointFolder::newest(std::vector<std::string>* refused) const {
  std::vector<int64_t> all = steps();
  std::reverse(all.begin(), all.end());
  std::string first_refusal;
  const auto note = [&](const std::string& sentence) {
    if (first_refusal.empty()) first_refusal = sentence;
    if (refused != nullptr) refused->emplace_back(sentence);
  };
  std::error_code no_link;
  const std::optional<int64_t> last = step_of(fs::read_symlink(fs::path(path_) / kLast, no_link));
  if (last && (all.empty() || *last > all.front())) {
    note(fmt::format("'{}' is missing", printable(path_of(*last))));
  }
  for (const int64_t step : all) {
    try {
      return read(step);
    } catch (const DataError& error) {
      note(error.what());
    } catch (const IoError& error) {
      note(error.what());
    }
  }
  throw MissingInputError(fmt::format("'{}' has no {}", printable(path_),
                                      all.empty() ? "checkpoint" : "good checkpoint; " + first_refusal));
}

void CheckpointFolder::clean() const {
  for (const std::string& name : list_folder(path_)) delete_leftover(fs::path(path_) / name);
}

}  // namespace renorm::train
