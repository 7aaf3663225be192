#include "train/tensor_file.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "record/safetensors.h"

namespace renorm::train {
namespace {

using record::TensorBytes;

struct DtypeName {
  at::ScalarType type;
  const char* name;
};
constexpr DtypeName kDtypes[] = {{at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kBFloat16, "BF16"},
                                 {at::kHalf, "F16"},  {at::kLong, "I64"},   {at::kInt, "I32"},
                                 {at::kByte, "U8"},   {at::kBool, "BOOL"}};

// The name of a dtype in the format; "" if it is not supported.
std::string dtype_name(at::ScalarType type) {
  for (const DtypeName& dtype : kDtypes) {
    if (dtype.type == type) return dtype.name;
  }
  return "";
}

std::string shape_text(at::IntArrayRef shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

[[noreturn]] void refuse(const std::string& file, const std::string& name, const std::string& what) {
  throw DataError(fmt::format("{}: tensor '{}' {}; read the file with the settings it was written with",
                              printable(file), printable(name), what));
}

void check_bools(const TensorBytes& stored, const std::string& file) {
  const auto is_bool = [](char byte) { return byte == 0 || byte == 1; };
  if (stored.dtype != "BOOL" || std::all_of(stored.data, stored.data + stored.bytes, is_bool)) return;
  throw DataError(fmt::format("{}: tensor '{}' is BOOL but holds a byte that is neither 0 nor 1",
                              printable(file), printable(stored.name)));
}

void check_fits(const TensorBytes& stored, const torch::Tensor& live, const std::string& file) {
  if (const std::string expected = dtype_name(live.scalar_type()); stored.dtype != expected) {
    refuse(file, stored.name, fmt::format("is {}, expected {}", printable(stored.dtype), expected));
  }
  if (live.sizes() != at::IntArrayRef(stored.shape)) {
    refuse(file, stored.name,
           fmt::format("has shape {}, expected {}", shape_text(stored.shape), shape_text(live.sizes())));
  }
  check_bools(stored, file);
}

// A copy: bytes of a file may be at any address.
torch::Tensor values_of(const TensorBytes& stored, at::ScalarType type) {
  torch::Tensor values = at::empty(stored.shape, type);
  if (stored.bytes > 0) std::memcpy(values.data_ptr(), stored.data, static_cast<size_t>(stored.bytes));
  return values;
}

at::ScalarType dtype_of(const TensorBytes& stored, const std::string& file) {
  for (const DtypeName& dtype : kDtypes) {
    if (stored.dtype == dtype.name) return dtype.type;
  }
  throw DataError(fmt::format("{}: tensor '{}' is {}, which is not supported", printable(file),
                              printable(stored.name), printable(stored.dtype)));
}

}  // namespace

std::string encode_tensors(const std::vector<NamedTensor>& tensors,
                           const std::map<std::string, std::string>& metadata) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> held;
  std::vector<TensorBytes> views;
  held.reserve(tensors.size());
  views.reserve(tensors.size());
  for (const NamedTensor& named : tensors) {
    const std::string dtype = dtype_name(named.tensor.scalar_type());
    TORCH_CHECK(!dtype.empty(), "renorm::train::encode_tensors: tensor '", named.name,
                "' must be of a dtype of the format, got ", named.tensor.scalar_type());
    held.push_back(named.tensor.detach().cpu().contiguous());
    const torch::Tensor& tensor = held.back();
    views.push_back({named.name, dtype, tensor.sizes().vec(), static_cast<const char*>(tensor.data_ptr()),
                     static_cast<int64_t>(tensor.nbytes())});
  }
  return record::encode_safetensors(views, metadata);
}

std::map<std::string, torch::Tensor> read_tensors(const std::string& bytes, const std::string& file) {
  std::map<std::string, torch::Tensor> tensors;
  for (const TensorBytes& stored : record::parse_safetensors(bytes, file).tensors) {
    const at::ScalarType type = dtype_of(stored, file);
    check_bools(stored, file);
    tensors[stored.name] = values_of(stored, type);
  }
  return tensors;
}

void restore_tensors(const std::string& bytes, const std::string& file, std::vector<NamedTensor> into) {
  const record::Safetensors parsed = record::parse_safetensors(bytes, file);
  std::unordered_map<std::string, torch::Tensor*> expected;
  for (NamedTensor& live : into) expected[live.name] = &live.tensor;
  std::unordered_set<std::string> found;
  for (const TensorBytes& stored : parsed.tensors) {
    const auto live = expected.find(stored.name);
    if (live == expected.end()) refuse(file, stored.name, "is not expected");
    check_fits(stored, *live->second, file);
    found.insert(stored.name);
  }
  for (const NamedTensor& live : into) {
    if (found.count(live.name) == 0) refuse(file, live.name, "is missing");
  }
  const torch::NoGradGuard no_grad;
  for (const TensorBytes& stored : parsed.tensors) {
    torch::Tensor& live = *expected[stored.name];
    live.copy_(values_of(stored, live.scalar_type()));
  }
}

void restore_file(const std::map<std::string, std::string>& files, const std::string& name,
                  const std::string& folder, std::vector<NamedTensor> into) {
  const auto found = files.find(name);
  if (found == files.end()) throw DataError(fmt::format("{}: there is no {}", folder, name));
  restore_tensors(found->second, fmt::format("{}/{}", folder, name), std::move(into));
}

}  // namespace renorm::train
