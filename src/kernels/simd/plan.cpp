#include "kernels/simd/plan.h"

#include <algorithm>

namespace renorm::kernels::simd {
namespace {

// Outputs of at least this size bypass the cache: they would only evict the data that is read next.
constexpr int64_t kStreamBytes = int64_t{8} << 20;
// Channels-first blocks span about this many neighbouring values of an example.
constexpr int64_t kBlockValues = 1024;
// Channels-first rows shorter than this, and not of whole cache lines, are taken as runs. The limit is higher
// where outputs bypass the cache, because lines that two rows share are slow there.
constexpr int64_t kShortRow = 128;
constexpr int64_t kShortStreamedRow = 320;
constexpr int64_t kLineBytes = 64;
// Channels-first rows longer than this are left to the CPU, which fetches long rows ahead by itself.
constexpr int64_t kFetchedRowBytes = int64_t{32} << 10;
// Channels-first data of at most this many channels and groups is taken in pieces of so many values.
constexpr int64_t kFewUnits = 8;
constexpr int64_t kPieceValues = int64_t{1} << 16;
// Channels-last units: rows are a multiple of the first, and a group has at most the second.
constexpr int64_t kRowMultiple = 256;
constexpr int64_t kMaxBlocks = 64;
// Small groups and their channels of one unit.
constexpr int64_t kSmallGroups = 16;
constexpr int64_t kSmallChannels = 512;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t row_bytes(const Shape& shape, size_t value_bytes) {
  return shape.s * static_cast<int64_t>(value_bytes);
}

bool fetches(const Shape& shape, size_t value_bytes) {
  return row_bytes(shape, value_bytes) <= kFetchedRowBytes;
}

}  // namespace

bool streams(const Shape& shape, size_t value_bytes) {
  return shape.n * shape.c * row_bytes(shape, value_bytes) >= kStreamBytes;
}

NcsPlan plan_ncs(const Shape& shape, const Groups& groups, size_t value_bytes) {
  const bool stream = streams(shape, value_bytes);
  const bool whole_lines = row_bytes(shape, value_bytes) % kLineBytes == 0;
  const bool runs = !whole_lines && shape.s < (stream ? kShortStreamedRow : kShortRow);
  const int64_t block = std::clamp<int64_t>(ceil_div(kBlockValues, shape.s), 1, std::min(kMaxBlock, shape.c));
  const int64_t blocks = ceil_div(shape.c, block);
  return {block, blocks, groups.count * blocks, stream, runs, fetches(shape, value_bytes)};
}

bool has_few_channels(const Shape& shape, const Groups& groups) {
  return groups.count * shape.c <= kFewUnits && groups.size * shape.s >= 2 * kPieceValues;
}

PiecePlan plan_pieces(const Shape& shape, const Groups& groups, size_t value_bytes) {
  const int64_t pieces = ceil_div(groups.size * shape.s, kPieceValues);
  return {kPieceValues, pieces, groups.count * shape.c * pieces, streams(shape, value_bytes),
          fetches(shape, value_bytes)};
}

NscPlan plan_nsc(const Shape& shape, const Groups& groups, size_t value_bytes) {
  const int64_t all = groups.size * shape.s;
  const int64_t rows = ceil_div(all, kMaxBlocks * kRowMultiple) * kRowMultiple;
  const int64_t blocks = ceil_div(all, rows);
  return {rows, blocks, groups.count * blocks, streams(shape, value_bytes)};
}

bool has_small_groups(const Shape& shape, const Groups& groups) {
  return groups.size * shape.s <= kMaxSmallRows;
}

SmallPlan plan_small(const Shape& shape, const Groups& groups) {
  const int64_t channels = std::min(shape.c, kSmallChannels);
  return {kSmallGroups, channels, ceil_div(shape.c, channels), ceil_div(groups.count, kSmallGroups)};
}

}  // namespace renorm::kernels::simd
