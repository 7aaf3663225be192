// The choice of the instruction set, the override for tests, and the copy that benchmarks use as the limit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/targets.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/kernels.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

void StreamCopy(const float* HWY_RESTRICT x, float* HWY_RESTRICT y, int64_t n) {
  const int64_t lanes = Lanes<float>();
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    for (int64_t k = 0; k < 4; ++k) hn::Stream(Load(x + i + k * lanes), Tag<float>(), y + i + k * lanes);
  }
  for (; i < n; ++i) y[i] = x[i];
  hwy::FlushStream();
}

int64_t Target() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace renorm::kernels {

HWY_EXPORT(StreamCopy);
HWY_EXPORT(Target);

void stream_copy(const float* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(StreamCopy)(x, y, n); }

std::string simd_target() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(Target)()); }

std::vector<std::string> runnable_simd_targets() {
  // Lower bits are better targets.
  std::vector<std::string> names;
  const uint64_t runnable =
      static_cast<uint64_t>(hwy::SupportedTargets()) & static_cast<uint64_t>(HWY_TARGETS);
  for (int bit = 0; bit < 63; ++bit) {
    const uint64_t target = uint64_t{1} << bit;
    if ((runnable & target) != 0) names.emplace_back(hwy::TargetName(static_cast<int64_t>(target)));
  }
  return names;
}

void force_simd_target(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  if (!name.empty()) {
    for (int bit = 0; bit < 63; ++bit) {
      const int64_t target = int64_t{1} << bit;
      if ((HWY_TARGETS & target) != 0 && name == hwy::TargetName(target))
        hwy::SetSupportedTargetsForTest(target);
    }
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace renorm::kernels
#endif  // HWY_ONCE
