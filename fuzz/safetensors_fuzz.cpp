// Input: a safetensors file. An accepted input must survive writing and reading unchanged.
#include <map>
#include <tuple>
#include <vector>

#include "fuzz.h"
#include "record/safetensors.h"

using namespace renorm;

namespace {

void expect_inside(const record::Safetensors& file, const std::string& bytes) {
  for (const auto& tensor : file.tensors) {
    fuzz::expect(tensor.bytes >= 0 && tensor.data >= bytes.data() &&
                     tensor.data + tensor.bytes <= bytes.data() + bytes.size(),
                 "a tensor outside of the file");
    int64_t values = 1;
    for (const int64_t length : tensor.shape) values *= length;
    fuzz::expect(values * record::dtype_size(tensor.dtype) == tensor.bytes, "a size that does not fit");
  }
}

using Contents = std::map<std::string, std::tuple<std::string, std::vector<int64_t>, std::string>>;

// Everything about the tensors by name, because writing may put them into another order.
Contents contents_of(const record::Safetensors& file) {
  Contents contents;
  for (const auto& tensor : file.tensors)
    contents[tensor.name] = {tensor.dtype, tensor.shape,
                             std::string(tensor.data, static_cast<size_t>(tensor.bytes))};
  return contents;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzz::text_of(data, size);
  record::Safetensors file;
  if (!fuzz::accepts([&] { file = record::parse_safetensors(bytes, fuzz::kFile); })) return 0;
  expect_inside(file, bytes);

  const std::string written = record::encode_safetensors(file.tensors, file.metadata);
  const auto again = record::parse_safetensors(written, fuzz::kFile);
  fuzz::expect(again.metadata == file.metadata, "the metadata changed");
  fuzz::expect(again.tensors.size() == file.tensors.size(), "tensors were lost");
  fuzz::expect(contents_of(again) == contents_of(file), "the tensors changed");
  fuzz::expect(record::encode_safetensors(again.tensors, again.metadata) == written, "the bytes changed");
  return 0;
}
