// The moments of one channel in channels-first data.
#if defined(RENORM_KERNELS_SIMD_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_MOMENTS_INL_H_
#undef RENORM_KERNELS_SIMD_MOMENTS_INL_H_
#else
#define RENORM_KERNELS_SIMD_MOMENTS_INL_H_
#endif

#include <cstdint>

#include "kernels/simd/ncs-inl.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// Offsets of values of a unit's first channel.
struct Places {
  int64_t unit;  // the first value of the unit
  int64_t at[kPlaces];
};

// Spread over the examples of the group and over positions, in different orders.
HWY_INLINE Places PlacesOf(const NcsGeometry& geometry, const NcsUnit& unit) {
  Places places;
  places.unit = geometry.Row(unit, 0, 0);
  for (int64_t k = 0; k < kPlaces; ++k) {
    const int64_t example = (2 * k + 1) * geometry.groups.size / (2 * kPlaces);
    const int64_t position = (2 * (2 * k % kPlaces) + 1) * geometry.shape.s / (2 * kPlaces);
    places.at[k] = geometry.Row(unit, example, 0) + position;
  }
  return places;
}

// Count, mean and sum of squared distances of one channel of one group. Chunks are summed in the data's
// precision, shifted by the previous chunk's mean, and merged in double.
template <typename P>
struct Moments {
  P shift;
  double count;
  double mean;
  double m2;

  // The first shift is the median of five values of the channel. A shift that is an outlier, far from almost
  // all values, would cancel away digits of the first chunk's variance.
  template <typename T>
  HWY_INLINE void Start(const T* channel, const Places& places) {
    shift = hn::GetLane(MedianOfFive(LoadOne(channel + places.at[0]), LoadOne(channel + places.at[1]),
                                     LoadOne(channel + places.at[2]), LoadOne(channel + places.at[3]),
                                     LoadOne(channel + places.at[4])));
    count = mean = m2 = 0.0;
  }

  // Adds a chunk of n values from its sums of x - shift and of (x - shift)^2.
  HWY_INLINE void Merge(double n, double sum, double sum_of_squares) {
    const double offset = sum / n;
    const double chunk_mean = static_cast<double>(shift) + offset;
    const double squares = sum_of_squares - sum * offset;
    const double total = count + n;
    const double delta = count == 0.0 ? 0.0 : chunk_mean - mean;
    mean = count == 0.0 ? chunk_mean : mean + delta * (n / total);
    m2 += (squares < 0.0 ? 0.0 : squares) + delta * delta * (count * n / total);
    count = total;
    shift = static_cast<P>(chunk_mean);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_MOMENTS_INL_H_
