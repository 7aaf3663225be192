#include "train/stored_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "record/metrics.h"
#include "train/config_file.h"
#include "train/resumed_config.h"
#include "train/run_id.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;

void read_checkpoint(const RunPaths& paths, StoredRun* run) {
  const CheckpointFolder checkpoints(paths.checkpoints);
  if (checkpoints.steps().empty()) {
    run->notes.push_back(fmt::format("'{}' has no checkpoint, so training starts again at step 1",
                                     printable(paths.checkpoints)));
    return;
  }
  std::vector<std::string> refused;
  try {
    run->checkpoint = checkpoints.newest(&refused);
  } catch (const MissingInputError&) {
    throw DataError(fmt::format("'{}' holds no good checkpoint: {}", printable(paths.checkpoints),
                                fmt::join(refused, "; ")));
  }
  for (const std::string& sentence : refused) {
    run->notes.push_back(fmt::format("{}; continuing after step {}", sentence, run->checkpoint->state.step));
  }
}

// A run that began keeps its settings, so an edit would have no effect.
void check_unedited(const Config& file, const Config& run, const RunPaths& paths) {
  std::vector<std::string> edits;
  for (const std::string& name : differing(run, file)) {
    const Setting& setting = find_setting(name);
    edits.push_back(
        printable(fmt::format("{} is '{}' instead of '{}'", name, setting.get(file), setting.get(run))));
  }
  if (edits.empty()) return;
  throw UsageError(fmt::format(
      "'{}' differs from the run's settings: {}; restore it to continue the run, or choose another --out",
      printable(paths.config), fmt::join(edits, ", ")));
}

void check_same_run(const std::string& file, const std::string& id, const StoredRun& run) {
  if (id.empty() || run.id.empty() || id == run.id) return;
  throw DataError(fmt::format("'{}' belongs to run {}, {} to run {}; restore '{}'", printable(file), id,
                              run.checkpoint ? "the newest checkpoint" : "config.toml", run.id,
                              printable(file)));
}

// The first `bytes` of a file of lines. Those that follow were written after the checkpoint and are cut when
// the run continues.
std::string read_lines(const std::string& path, int64_t bytes) {
  if (bytes == 0) return "";
  std::string text = read_file(path);
  const bool long_enough = static_cast<int64_t>(text.size()) >= bytes;
  if (long_enough && text[static_cast<size_t>(bytes) - 1] == '\n') {
    text.resize(static_cast<size_t>(bytes));
    return text;
  }
  throw DataError(fmt::format("'{}' {}: it was {}, restore it", printable(path),
                              long_enough ? fmt::format("has no end of a line after {} bytes", bytes)
                                          : fmt::format("has {} bytes instead of {}", text.size(), bytes),
                              long_enough ? "altered" : "truncated or replaced"));
}

// Before the first checkpoint a run starts again with empty records, so those that exist must be its own.
void check_first_records(const RunPaths& paths, const StoredRun& run) {
  const std::string metrics = first_line(paths.metrics, record::kRecordStart);
  if (!metrics.empty()) {
    const bool is_cut = metrics.back() != '\n';
    const record::Metrics first = record::parse_metrics(metrics + (is_cut ? "\n" : ""), paths.metrics);
    if (first.steps.empty() && first.evaluations.empty()) {
      throw DataError(fmt::format("'{}' has no records of a run; restore it, or remove it to start again",
                                  printable(paths.metrics)));
    }
    check_same_run(paths.metrics, first.run().value_or(""), run);
  }
  const std::string header = record::summary_csv_header();
  const std::string summary = first_line(paths.summary, header);
  if (summary.empty() || summary == header + "\n") return;
  throw DataError(fmt::format("'{}' is no summary of a run; restore it, or remove it to start again",
                              printable(paths.summary)));
}

void check_records(const RunPaths& paths, const StoredRun& run) {
  const RunState& state = run.checkpoint->state;
  const std::string text = read_lines(paths.metrics, state.metrics_bytes);
  const record::Metrics metrics = record::parse_metrics(text, paths.metrics);
  check_same_run(paths.metrics, metrics.run().value_or(""), run);
  read_lines(paths.summary, state.summary_bytes);
}

}  // namespace

StoredConfig read_config(const RunPaths& paths) {
  StoredConfig stored;
  const std::string text = read_file(paths.config, kMaxConfigBytes);
  stored.given = read_toml(text, paths.config, &stored.config);
  stored.id = run_id_of(text);
  return stored;
}

StoredRun read_run(const RunPaths& paths) {
  const StoredConfig stored = read_config(paths);
  StoredRun run;
  read_checkpoint(paths, &run);
  run.id = run.checkpoint ? run.checkpoint->state.run.value_or(stored.id) : stored.id;
  run.config = stored.config;
  if (!run.checkpoint) {
    check_first_records(paths, run);
    return run;
  }
  check_same_run(paths.config, stored.id, run);
  check_unedited(stored.config, run.checkpoint->state.config, paths);
  run.config = with_free_settings(run.checkpoint->state.config, stored.config, stored.given);
  check_records(paths, run);
  return run;
}

}  // namespace renorm::train
