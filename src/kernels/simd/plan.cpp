#include "kernels/simd/plan.h"

#include <algorithm>

namespace renorm::kernels::simd {
namespace {

// Outputs bypass the cache if inputs and outputs together have this size: they would only evict the data that
// is read next.
constexpr int64_t kStreamBytes = int64_t{16} << 20;
// Channels-first blocks span about this many neighbouring values of an example.
constexpr int64_t kBlockValues = 768;
// But no less than this, so that a cache line has values of two blocks at most.
constexpr int64_t kMinBlockValues = 64;
static_assert(kMinBlockValues <= kMaxBlock);
// Channels-first rows shorter than this are taken as runs. The limit is higher where outputs bypass the cache
// and rows are not of whole cache lines, because lines that two rows share are slow there, and more so their
// part of a mask.
constexpr int64_t kShortRow = 128;
constexpr int64_t kShortStreamedRow = 180;
constexpr int64_t kShortMaskedRow = 640;
// In cache rows of these lengths are taken one by one: the coefficients per value that runs need are too many
// loads, and there is no memory to wait for while another row is gathered. Longer rows are summed in parts.
constexpr int64_t kMinSingleRow = 64;
constexpr int64_t kMinSingleRowOfBackward = 32;
constexpr int64_t kMaxSingleRow = 2048;
constexpr int64_t kLineBytes = 64;
// Channels-first data of at most kFewUnits channels and groups is taken in pieces of kPieceValues if its rows
// have kFewRow values or more. Other data has as many units, if it has as many channels and groups.
constexpr int64_t kFewUnits = 8;
constexpr int64_t kFewRow = 320;
constexpr int64_t kPieceValues = int64_t{1} << 16;
// Channels-last units: rows are a multiple of the first, and a group has at most the second.
constexpr int64_t kRowMultiple = 256;
constexpr int64_t kMaxBlocks = 64;
// Small groups and their channels of one unit.
constexpr int64_t kSmallGroups = 16;
constexpr int64_t kSmallChannels = 512;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t row_bytes(const Traffic& traffic) { return traffic.shape.s * traffic.value_bytes; }

int64_t short_row(const Traffic& traffic, bool stream) {
  if (!stream || row_bytes(traffic) % kLineBytes == 0) return kShortRow;
  return traffic.writes_mask ? kShortMaskedRow : kShortStreamedRow;
}

}  // namespace

bool streams(const Traffic& traffic) {
  const Shape& shape = traffic.shape;
  return traffic.arrays * shape.n * shape.c * row_bytes(traffic) >= kStreamBytes;
}

NcsPlan plan_ncs(const Traffic& traffic, const Groups& groups) {
  const Shape& shape = traffic.shape;
  const bool stream = streams(traffic);
  const bool runs = shape.s < short_row(traffic, stream);
  const int64_t many_units = groups.count * shape.c / kFewUnits;
  const int64_t block = std::min({ceil_div(kBlockValues, shape.s), kMaxBlock, shape.c,
                                  std::max(many_units, ceil_div(kMinBlockValues, shape.s))});
  const int64_t blocks = ceil_div(shape.c, block);
  // Rows of a mask do not begin at whole bytes.
  const bool single = !stream && !traffic.writes_mask && shape.s >= kMinSingleRow && shape.s <= kMaxSingleRow;
  return {block, blocks, groups.count * blocks, stream, runs && !single, single};
}

NcsPlan plan_ncs_backward(const Traffic& traffic, const Groups& groups, bool may_stream) {
  NcsPlan plan = plan_ncs(traffic, groups);
  const int64_t s = traffic.shape.s;
  // By size alone: the order of additions does not depend on where the outputs lie.
  plan.single = !plan.stream && s >= kMinSingleRowOfBackward && s <= kMaxSingleRow;
  plan.stream = plan.stream && may_stream;
  plan.runs = plan.runs && !plan.single;
  return plan;
}

bool has_few_channels(const Shape& shape, const Groups& groups) {
  return groups.count * shape.c <= kFewUnits && shape.s >= kFewRow &&
         groups.size * shape.s >= 2 * kPieceValues;
}

PiecePlan plan_pieces(const Traffic& traffic, const Groups& groups) {
  const Shape& shape = traffic.shape;
  const int64_t pieces = ceil_div(groups.size * shape.s, kPieceValues);
  return {kPieceValues, pieces, groups.count * shape.c * pieces, streams(traffic)};
}

NscPlan plan_nsc(const Traffic& traffic, const Groups& groups) {
  const int64_t all = groups.size * traffic.shape.s;
  const int64_t rows = ceil_div(all, kMaxBlocks * kRowMultiple) * kRowMultiple;
  const int64_t blocks = ceil_div(all, rows);
  return {rows, blocks, groups.count * blocks, streams(traffic)};
}

bool has_small_groups(const Shape& shape, const Groups& groups) {
  return groups.size * shape.s <= kMaxSmallRows;
}

SmallPlan plan_small(const Shape& shape, const Groups& groups) {
  const int64_t channels = std::min(shape.c, kSmallChannels);
  return {kSmallGroups, channels, ceil_div(shape.c, channels), ceil_div(groups.count, kSmallGroups)};
}

}  // namespace renorm::kernels::simd
