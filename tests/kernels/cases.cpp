#include "cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include "support/shapes.h"

namespace renorm::test {
namespace {

using kernels::Activation;
using kernels::BFloat16;
using kernels::Layout;
using kernels::Shape;
using kernels::Stat;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Divides a batch of about `examples` into groups; the batch is enlarged to a multiple of the group size.
void draw_groups(Random& random, int64_t examples, Case* c) {
  const int64_t kind = random.integer(0, 3);
  const int64_t count =
      kind < 2 ? 1 : random.integer(2, std::max<int64_t>(2, std::min<int64_t>(examples, 6)));
  const int64_t size = (examples + count - 1) / count;
  c->shape.n = count * size;
  c->groups =
      kind == 2 ? kernels::strided_groups(c->shape.n, size) : kernels::contiguous_groups(c->shape.n, size);
}

void draw_limits(Random& random, Case* c) {
  switch (random.integer(0, 4)) {
    case 0:
      c->r_max = 1.0;
      c->d_max = 0.0;
      break;
    case 1:
      c->r_max = kInfinity;
      c->d_max = kInfinity;
      break;
    case 2:
      c->r_max = 3.0;
      c->d_max = 5.0;
      break;
    default:
      c->r_max = random.uniform(1.0, 2.0);
      c->d_max = random.uniform(0.0, 1.5);
  }
}

void draw_options(Random& random, Case* c) {
  c->layout = random.chance(0.5) ? Layout::kNcs : Layout::kNsc;
  c->activation = random.chance(0.4) ? Activation::kRelu : Activation::kNone;
  c->eps = random.chance(0.7) ? 1e-5 : random.uniform(1e-4, 0.1);
  c->has_weight = random.chance(0.75);
  c->has_bias = random.chance(0.75);
  c->has_running = random.chance(0.8);
  c->has_residual = random.chance(0.5);
  c->misaligned = random.chance(0.5);
  c->seed = random.bits();
  draw_limits(random, c);
}

// Examples, channels, positions; the number of examples may still grow to fit the groups.
Shape draw_shape(Random& random) {
  const int64_t kind = random.integer(0, 9);
  if (kind < 5) return {random.integer(1, 9), random.pick(edge_sizes()), random.pick(edge_sizes())};
  if (kind == 5) return {random.integer(1, 4), random.integer(1, 3), random.pick(long_sizes())};
  if (kind == 6) return {random.integer(1, 2), random.pick(edge_sizes()), random.integer(200, 700)};
  if (kind == 7) return {random.pick(many_sizes()), random.pick(edge_sizes()), 1};
  if (kind == 8) return {random.integer(2, 40), random.pick(wide_sizes()), random.integer(1, 5)};
  return {random.integer(20, 80), random.integer(1, 12), random.pick(edge_sizes())};
}

template <typename T>
Buffer<T> input(Random& random, const Case& c, int64_t count) {
  return {count, c.misaligned ? random.integer(0, 15) : 0, Buffer<T>::Use::kInput};
}

template <typename T>
Buffer<T> output(Random& random, const Case& c, int64_t count) {
  return {count, c.misaligned ? random.integer(0, 15) : 0, Buffer<T>::Use::kOutput};
}

template <typename T>
void allocate_outputs(Random& random, const Case& c, Arrays<T>* a) {
  using P = Stat<T>;
  a->y = output<T>(random, c, values_of(c));
  a->dx = output<T>(random, c, values_of(c));
  a->dresidual = output<T>(random, c, values_of(c));
  a->mask = output<uint8_t>(random, c, kernels::mask_bytes(values_of(c)));
  for (Buffer<P>* statistic : {&a->batch_mean, &a->batch_mean_low, &a->batch_std, &a->r, &a->d}) {
    *statistic = output<P>(random, c, statistics_of(c));
  }
  a->dweight = output<P>(random, c, c.shape.c);
  a->dbias = output<P>(random, c, c.shape.c);
}

struct Spread {
  std::vector<double> mean;
  std::vector<double> std;
};

Spread draw_spread(Random& random, const Case& c) {
  Spread spread;
  for (int64_t channel = 0; channel < c.shape.c; ++channel) {
    spread.std.push_back(std::exp(random.uniform(-1.0, 1.0)));
    spread.mean.push_back(random.uniform(0.5, 1.0) * (random.chance(0.5) ? 1.0 : -1.0) * c.mean_over_std *
                          spread.std.back());
  }
  return spread;
}

template <typename T>
void fill_data(Random& random, const Case& c, const Spread& spread, Arrays<T>* a) {
  const bool channels_last = c.layout == Layout::kNsc;
  int64_t i = 0;
  for (int64_t n = 0; n < c.shape.n; ++n) {
    const double shift = random.uniform(-0.5, 0.5);
    for (int64_t outer = 0; outer < (channels_last ? c.shape.s : c.shape.c); ++outer) {
      for (int64_t inner = 0; inner < (channels_last ? c.shape.c : c.shape.s); ++inner, ++i) {
        const auto channel = static_cast<size_t>(channels_last ? inner : outer);
        a->x[i] = narrow<T>(spread.mean[channel] + spread.std[channel] * (random.normal() + shift));
        a->dy[i] = narrow<T>(random.normal());
      }
    }
  }
}

}  // namespace

Case draw_case(Random& random) {
  constexpr int64_t kMaxValues = 60000;
  Case c;
  draw_options(random, &c);
  do {
    c.shape = draw_shape(random);
    draw_groups(random, c.shape.n, &c);
  } while (values_of(c) > kMaxValues);
  return c;
}

Case draw_tiny_case(Random& random) {
  Case c;
  draw_options(random, &c);
  c.shape = {random.integer(1, 6), random.integer(1, 4), random.integer(1, 7)};
  draw_groups(random, c.shape.n, &c);
  return c;
}

std::string describe(const Case& c) {
  std::ostringstream text;
  text << (c.layout == Layout::kNcs ? "ncs" : "nsc") << " n=" << c.shape.n << " c=" << c.shape.c
       << " s=" << c.shape.s << " groups=" << c.groups.count << "x" << c.groups.size
       << (c.groups.example_step == 1 ? "" : " strided") << (c.activation == Activation::kRelu ? " relu" : "")
       << " eps=" << c.eps << " r_max=" << c.r_max << " d_max=" << c.d_max << (c.has_weight ? " weight" : "")
       << (c.has_bias ? " bias" : "") << (c.has_running ? " running" : "")
       << (c.has_residual ? " residual" : "") << (c.misaligned ? " misaligned" : "")
       << " mean/std=" << c.mean_over_std << " seed=" << c.seed;
  return text.str();
}

template <typename T>
Arrays<T> draw_arrays(const Case& c) {
  using P = Stat<T>;
  Random random(c.seed);
  Arrays<T> a;
  const Spread spread = draw_spread(random, c);
  a.x = input<T>(random, c, values_of(c));
  a.dy = input<T>(random, c, values_of(c));
  fill_data(random, c, spread, &a);
  a.running_mean = input<P>(random, c, c.shape.c);
  a.running_std = input<P>(random, c, c.shape.c);
  if (c.has_weight) a.weight = input<P>(random, c, c.shape.c);
  if (c.has_bias) a.bias = input<P>(random, c, c.shape.c);
  for (int64_t channel = 0; channel < c.shape.c; ++channel) {
    const auto k = static_cast<size_t>(channel);
    a.running_mean[channel] = static_cast<P>(spread.mean[k] + random.uniform(-2.0, 2.0) * spread.std[k]);
    a.running_std[channel] = static_cast<P>(spread.std[k] * std::exp(random.uniform(-1.0, 1.0)));
    if (c.has_weight) a.weight[channel] = static_cast<P>(random.normal());
    if (c.has_bias) a.bias[channel] = static_cast<P>(random.normal());
  }
  if (c.has_residual) {
    a.residual = input<T>(random, c, values_of(c));
    for (int64_t i = 0; i < a.residual.size(); ++i) a.residual[i] = narrow<T>(random.normal());
  }
  allocate_outputs(random, c, &a);
  return a;
}

template <typename T>
Arrays<double> widen(const Case& c, const Arrays<T>& arrays) {
  Arrays<double> wide;
  wide.x = widen(arrays.x);
  wide.dy = widen(arrays.dy);
  wide.residual = widen(arrays.residual);
  wide.weight = widen(arrays.weight);
  wide.bias = widen(arrays.bias);
  wide.running_mean = widen(arrays.running_mean);
  wide.running_std = widen(arrays.running_std);
  Random unused(0);
  Case aligned = c;
  aligned.misaligned = false;
  allocate_outputs(unused, aligned, &wide);
  return wide;
}

template Arrays<float> draw_arrays<float>(const Case&);
template Arrays<double> draw_arrays<double>(const Case&);
template Arrays<BFloat16> draw_arrays<BFloat16>(const Case&);
template Arrays<double> widen<float>(const Case&, const Arrays<float>&);
template Arrays<double> widen<double>(const Case&, const Arrays<double>&);
template Arrays<double> widen<BFloat16>(const Case&, const Arrays<BFloat16>&);

}  // namespace renorm::test
