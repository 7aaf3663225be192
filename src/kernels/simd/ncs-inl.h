// Channels-first units and the pipeline over them, in which one unit is written while the next is gathered.
#if defined(RENORM_KERNELS_SIMD_NCS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_NCS_INL_H_
#undef RENORM_KERNELS_SIMD_NCS_INL_H_
#else
#define RENORM_KERNELS_SIMD_NCS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/internal.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// Channels [first, first + width) of one group.
struct NcsUnit {
  int64_t group;
  int64_t first;
  int64_t width;
};

// Where the rows of a channels-first problem are.
struct NcsGeometry {
  Shape shape;
  Groups groups;
  simd::NcsPlan plan;

  HWY_INLINE NcsUnit Unit(int64_t index) const {
    const int64_t first = index % plan.blocks * plan.block;
    return {index / plan.blocks, first, std::min(plan.block, shape.c - first)};
  }
  // Offset of channel unit.first + j of the group's example number `example`.
  HWY_INLINE int64_t Row(const NcsUnit& unit, int64_t example, int64_t j) const {
    const int64_t n = unit.group * groups.group_step + example * groups.example_step;
    return (n * shape.c + unit.first + j) * shape.s;
  }
  // From a row to the same channel's row of the group's next example, or of the one before.
  HWY_INLINE int64_t Stride(bool reverse) const {
    return (reverse ? -1 : 1) * groups.example_step * shape.c * shape.s;
  }
};

// Where the pieces of a problem with few channels are.
struct PieceGeometry {
  Shape shape;
  Groups groups;
  simd::PiecePlan plan;

  int64_t Channel(int64_t unit) const { return unit / plan.pieces % shape.c; }
  int64_t Group(int64_t unit) const { return unit / plan.pieces / shape.c; }
  int64_t First(int64_t unit) const { return unit % plan.pieces * plan.values; }
  int64_t Last(int64_t unit) const { return std::min(First(unit) + plan.values, groups.size * shape.s); }

  // Calls body(offset, length) for the parts of rows that make up the unit, in order.
  template <class Body>
  HWY_INLINE void ForRows(int64_t unit, const Body& body) const {
    const int64_t last = Last(unit);
    for (int64_t at = First(unit); at < last;) {
      const int64_t example = at / shape.s;
      const int64_t end = std::min(last, (example + 1) * shape.s);
      const int64_t n = Group(unit) * groups.group_step + example * groups.example_step;
      body((n * shape.c + Channel(unit)) * shape.s + at - example * shape.s, end - at);
      at = end;
    }
  }
};

HWY_INLINE bool GatheredBackwards(int64_t unit) { return unit % 2 != 0; }

// Units [first, last) through a Pass: Run(current, next, reverse) writes the unit `current` and gathers the
// unit `next`, either of which may be null; Start(unit) comes before a unit is gathered, Fold(unit) between
// its gathering and its writing. Reads from memory, reads from cache and stores overlap. A unit's Start
// follows the Fold of the previous unit. A unit is written in the direction opposite to its gathering, so
// that the rows read last, which are still in cache, are written first. The direction of gathering depends on
// the unit alone, not on the range.
template <class Pass>
HWY_INLINE void RunPipeline(Pass& pass, const NcsGeometry& geometry, int64_t first, int64_t last) {
  NcsUnit current = geometry.Unit(first);
  pass.Start(current);
  pass.Run(nullptr, &current, GatheredBackwards(first));
  for (int64_t index = first; index < last; ++index) {
    pass.Fold(current);
    const bool reverse = GatheredBackwards(index + 1);
    if (index + 1 == last) {
      pass.Run(&current, nullptr, reverse);
      break;
    }
    const NcsUnit next = geometry.Unit(index + 1);
    pass.Start(next);
    pass.Run(&current, &next, reverse);
    current = next;
  }
  hwy::FlushStream();
}

// Units that are only gathered, not written.
template <class Pass>
HWY_INLINE void GatherOnly(Pass& pass, const NcsGeometry& geometry, int64_t first, int64_t last) {
  for (int64_t index = first; index < last; ++index) {
    const NcsUnit unit = geometry.Unit(index);
    pass.Start(unit);
    pass.Run(nullptr, &unit, GatheredBackwards(index));
    pass.Fold(unit);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_NCS_INL_H_
