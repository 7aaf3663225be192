// Models that are built from a description in a file take no more memory than the file justifies.
#pragma once

#include <cstdint>
#include <string>

namespace renorm::models {

// While it lives, models that are made on this thread get their weights from a file of `bytes` bytes. Weights
// are floats, so a model with more of them than the file can hold does not fit to it. Making a model with
// more than twice as many and a million throws DataError that starts with `file`, before memory for them is
// allocated; the slack leaves it to the reader of the weights to name the tensor that differs.
class FileWeightLimit {
 public:
  FileWeightLimit(int64_t bytes, std::string file);
  ~FileWeightLimit();
  FileWeightLimit(const FileWeightLimit&) = delete;
  FileWeightLimit& operator=(const FileWeightLimit&) = delete;

 private:
  friend void count_weights(int64_t count);

  int64_t bytes_;
  std::string file_;
  int64_t left_;
  FileWeightLimit* outer_;
};

// For the layers: called before memory for `count` weights is allocated.
void count_weights(int64_t count);

}  // namespace renorm::models
