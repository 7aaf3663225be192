#include "bench/cases.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>
#include <sstream>

#include "base/errors.h"

namespace renorm::bench {
namespace {

constexpr uint64_t kSeed = 20170210;
constexpr int64_t kMaxValues = int64_t{1} << 28;

std::vector<Case> in_all_layouts(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<Case> cases;
  for (const Layout layout : kLayouts) {
    for (const auto& sizes : shapes) {
      if ((sizes.size() == 2) == (layout == Layout::kDense)) cases.push_back({sizes, layout});
    }
  }
  return cases;
}

// One size of a shape. Only digits: "-1", "1e3" and "" are rejected.
int64_t parse_size(const std::string& text, const std::string& shape) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  const int64_t size = digits && text.size() <= 9 ? std::stoll(text) : 0;
  if (size < 1) {
    throw UsageError(fmt::format("--shapes: '{}' must be sizes such as 32x64x56x56 or 32x1024", shape));
  }
  return size;
}

std::vector<int64_t> parse_shape(const std::string& shape) {
  std::vector<int64_t> sizes;
  std::istringstream stream(shape);
  for (std::string part; std::getline(stream, part, 'x');) sizes.push_back(parse_size(part, shape));
  if (sizes.size() != 2 && sizes.size() != 4) {
    throw UsageError(fmt::format("--shapes: '{}' must have two sizes (NxC) or four (NxCxHxW)", shape));
  }
  double values = 1.0;
  for (const int64_t size : sizes) values *= static_cast<double>(size);
  if (values > static_cast<double>(kMaxValues)) {
    throw UsageError(fmt::format("--shapes: '{}' has more than {} values", shape, kMaxValues));
  }
  // Groups of four examples are measured too.
  if (sizes[0] % 4 != 0)
    throw UsageError(fmt::format("--shapes: the batch of '{}' must be a multiple of 4", shape));
  return sizes;
}

}  // namespace

std::string Case::shape_name() const { return fmt::format("{}", fmt::join(sizes, "x")); }

int64_t Case::values() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
}

double Case::megabytes() const { return static_cast<double>(values()) * sizeof(float) / 1e6; }

std::vector<Case> standard_cases(bool quick) {
  if (quick) {
    return in_all_layouts(
        {{32, 192, 35, 35}, {32, 64, 56, 56}, {32, 192, 17, 17}, {32, 512, 7, 7}, {32, 1024}});
  }
  return in_all_layouts({{32, 32, 149, 149},
                         {32, 64, 147, 147},
                         {32, 192, 71, 71},
                         {32, 192, 35, 35},
                         {32, 192, 17, 17},
                         {32, 320, 8, 8},
                         {32, 64, 56, 56},
                         {32, 256, 56, 56},
                         {32, 1024, 14, 14},
                         {32, 512, 7, 7},
                         {32, 32, 32, 32},
                         {32, 1024},
                         {256, 256},
                         {256, 1024},
                         {256, 2048},
                         {256, 4096}});
}

std::vector<Case> parse_cases(const std::string& shapes) {
  std::vector<std::vector<int64_t>> parsed;
  std::istringstream stream(shapes);
  for (std::string shape; std::getline(stream, shape, ',');) parsed.push_back(parse_shape(shape));
  if (parsed.empty()) throw UsageError("--shapes must name at least one shape");
  return in_all_layouts(parsed);
}

Data::Data(const Case& shape_and_layout, at::ScalarType type) {
  const at::Generator generator = at::detail::createCPUGenerator(kSeed);
  const auto format = shape_and_layout.layout == Layout::kNhwc ? at::MemoryFormat::ChannelsLast
                                                               : at::MemoryFormat::Contiguous;
  const auto in_layout = [&] {
    return at::randn(shape_and_layout.sizes, generator).to(type).contiguous(format);
  };
  x = in_layout();
  dy = in_layout();
  const int64_t channels = shape_and_layout.sizes[1];
  weight = at::rand({channels}, generator) + 0.5;
  bias = at::randn({channels}, generator) * 0.2;
  running_mean = at::randn({channels}, generator) * 0.1;
  running_std = at::rand({channels}, generator) * 0.2 + 0.9;
  running_var = running_std.square() - kEps;
  residual = in_layout();
}

}  // namespace renorm::bench
