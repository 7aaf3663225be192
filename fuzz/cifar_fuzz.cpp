// Input: a byte whose lowest bit chooses CIFAR-10 or CIFAR-100, then a file of records.
#include "data/cifar.h"
#include "fuzz.h"

using namespace renorm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const bool hundred = data[0] & 1;
  const int64_t label_bytes = hundred ? 2 : 1;
  const int64_t classes = hundred ? 100 : 10;
  data::ByteImages images;
  const bool taken = fuzz::accepts([&] {
    data::parse_cifar(fuzz::text_of(data + 1, size - 1), fuzz::kFile, label_bytes, classes, &images);
  });
  if (!taken) return 0;
  const auto bytes = static_cast<int64_t>(size - 1);
  fuzz::expect(images.size() == bytes / (label_bytes + 3072), "records were lost");
  fuzz::expect(static_cast<int64_t>(images.pixels.size()) == images.size() * 3072, "pixels were lost");
  for (const int64_t label : images.labels)
    fuzz::expect(label >= 0 && label < classes, "a label out of range");
  return 0;
}
