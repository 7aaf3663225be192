#include "models/weight_limit.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::models {
namespace {

constexpr int64_t kSlack = int64_t{1} << 20;

thread_local FileWeightLimit* innermost = nullptr;

}  // namespace

FileWeightLimit::FileWeightLimit(int64_t bytes, std::string file)
    : bytes_(bytes),
      file_(std::move(file)),
      left_(2 * (bytes / static_cast<int64_t>(sizeof(float))) + kSlack),
      outer_(std::exchange(innermost, this)) {}

FileWeightLimit::~FileWeightLimit() { innermost = outer_; }

void count_weights(int64_t count) {
  if (innermost == nullptr) return;
  if (count > innermost->left_) {
    throw DataError(fmt::format("{}: {} bytes are too few for the weights of its model",
                                printable(innermost->file_), innermost->bytes_));
  }
  innermost->left_ -= count;
}

}  // namespace renorm::models
