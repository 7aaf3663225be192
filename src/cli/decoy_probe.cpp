#include "cli/decoy_probe.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/table.h"
#include "base/text.h"
#include "data/strokes.h"
#include "train/decoy_probe.h"

namespace renorm::cli {
namespace {

constexpr int64_t kProbedImages = 400;

// Throws UsageError for data without decoys, or with too few characters.
data::StrokesOptions decoy_data(const train::RunState& run) {
  const std::optional<data::StrokesOptions> strokes = data::strokes_of_spec(run.config.data);
  if (!strokes || strokes->decoy == 0.0) {
    throw UsageError(fmt::format("--probe-decoys needs data with decoys, strokes:...,decoy=P; the run has {}",
                                 printable(run.config.data)));
  }
  if (strokes->classes < train::kProbeClasses || strokes->test < 2) {
    throw UsageError(fmt::format(
        "--probe-decoys needs {} classes with 2 test characters each, for minibatches of 32; the run has {}",
        train::kProbeClasses, printable(run.config.data)));
  }
  return *strokes;
}

std::string own_and_decoy(double own) { return fmt::format("{:.0f} / {:.0f}", own, 100.0 - own); }

}  // namespace

void print_decoy_probe(train::OpenedRun& run, const std::string& folder, uint64_t seed,
                       const data::OpenOptions& open) {
  if (run.state.config.norm == train::NormKind::kGroupnorm) {
    throw UsageError(
        "--probe-decoys compares batch statistics with averages; group normalization has neither");
  }
  const data::StrokesOptions strokes = decoy_data(run.state);
  const data::ByteDataset characters =
      data::cached_strokes(data::characters_of(strokes), cache_folder(), open.threads, open.progress);
  std::optional<train::WeightAverage::Applied> applied;
  if (run.average != nullptr) applied.emplace(*run.average);
  const train::DecoyProbe probe =
      train::probe_decoys(*run.model, strokes, run.state.data, characters.test, kProbedImages, seed);
  fmt::print("{}, step {}: {} test characters, each with a decoy of another class; own class / decoy, %\n\n",
             printable(folder), run.state.step, probe.images);
  fmt::print(
      "{}",
      aligned_table({{"", "own / decoy"},
                     {"moving averages", own_and_decoy(probe.alone)},
                     {"batch statistics, a partner of its class", own_and_decoy(probe.with_partner)},
                     {"batch statistics, a partner of the decoy's", own_and_decoy(probe.with_decoys_partner)},
                     {"batch statistics, neither", own_and_decoy(probe.with_neither)}}));
  std::vector<std::vector<std::string>> rows = {{"ink"},
                                                {"moving averages, decoy with 0.7 of the ink: own %"}};
  for (const train::DecoyProbe::AtInk& at : probe.by_ink) {
    rows[0].push_back(shortest(at.ink));
    rows[1].push_back(fmt::format("{:.0f}", at.own));
  }
  fmt::print("\n{}", aligned_table(rows));
}

}  // namespace renorm::cli
