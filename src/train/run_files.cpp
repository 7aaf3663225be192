#include "train/run_files.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "train/config_file.h"
#include "train/settings.h"
#include "train/stored_run.h"

namespace renorm::train {
namespace {

// Whether config.toml has this id and every setting, as in `config`.
bool is_stored(const RunPaths& paths, const std::string& id, const Config& config) {
  try {
    const StoredConfig stored = read_config(paths);
    return stored.id == id && stored.given.size() == settings().size() &&
           to_toml(stored.config) == to_toml(config);
  } catch (const std::runtime_error&) {
    return false;  // absent, or no config file, which a new run replaces
  }
}

}  // namespace

void RunFiles::take(FolderContents expected) {
  make_writable_folder(paths_.folder);
  lock_.emplace(paths_.lock);
  if (expected != FolderContents::kRun && contents_of(paths_) == FolderContents::kRun) {
    throw OutputError(fmt::format("another process has just trained in '{}'; repeat the command",
                                  printable(paths_.folder)));
  }
}

void RunFiles::write_config(const Config& config) try {
  if (is_stored(paths_, id, config)) return;
  write_atomically(paths_.config, run_id_comment(id) + to_toml(config));
} catch (const IoError& error) {
  throw OutputError(error.what());
}

void RunFiles::start(const RunState& state, const Config& config, const std::string& meeting_place) {
  check_place();
  try {
    // A run that cannot write all of its files is refused before anything is deleted
    // or overwritten.
    for (const std::string& path : {paths_.metrics, paths_.summary}) LineFile(path, /*keep=*/-1);
    make_writable_folder(paths_.checkpoints);
    checkpoints_.check_free_after(state.step);
    clean_run_folder(paths_, meeting_place);
    checkpoints_.clean();
    // A process killed right after writing its checkpoint has not set the links.
    if (state.step > 0) checkpoints_.settle(state, config.keep);
    write_config(config);
    metrics_.emplace(paths_.metrics, state.metrics_bytes);
    summary_.emplace(paths_.summary, state.summary_bytes);
    if (summary_->size() == 0) summary_->append(record::summary_csv_header());
  } catch (const IoError& error) {
    throw OutputError(error.what());
  }
}

void RunFiles::save(RunState* state, std::map<std::string, std::string> tensors) {
  // The checkpoint refers to these files, so they are on disk before it.
  metrics_->sync();
  summary_->sync();
  state->run = id;
  state->metrics_bytes = metrics_->size();
  state->summary_bytes = summary_->size();
  const Checkpoint checkpoint = {*state, std::move(tensors)};
  checkpoints_.write(checkpoint, state->config.keep, [this] { check_place(); });
}

void RunFiles::check_files() const {
  lock_->check();
  const auto check = [](const std::optional<LineFile>& file, const std::string& path) {
    if (!file || file->is_intact()) return;
    throw IoError(
        fmt::format("'{}' was deleted, replaced or altered by another process; this process stops and writes "
                    "nothing more; restore it to continue the run",
                    printable(path)));
  };
  check(metrics_, paths_.metrics);
  check(summary_, paths_.summary);
}

void RunFiles::check_place() const {
  check_files();
  try {
    check_inside(paths_);
  } catch (const OutputError& error) {
    throw IoError(error.what());
  }
}

}  // namespace renorm::train
