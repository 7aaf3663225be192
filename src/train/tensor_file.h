// Named tensors to safetensors bytes and back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/tensors.h"

namespace renorm::train {

// Tensors of any device and layout, of float, double, bfloat16, half, int64, int32, uint8 or bool. The same
// values in the same order give the same bytes. `metadata` is stored in the header.
std::string encode_tensors(const std::vector<NamedTensor>& tensors,
                           const std::map<std::string, std::string>& metadata = {});

// All tensors of a file by name, in their own memory. Throws DataError that starts with `file`, also for a
// dtype that encode_tensors does not write.
std::map<std::string, torch::Tensor> read_tensors(const std::string& bytes, const std::string& file);

// Copies every tensor of the file into the one of the same name. Throws DataError with file and tensor if one
// is missing or unexpected, or its dtype or shape differs; then nothing was changed.
void restore_tensors(const std::string& bytes, const std::string& file, std::vector<NamedTensor> into);

// The same from the file `name` of a checkpoint's `files`; `folder` starts the messages. Throws DataError
// also if the file is missing.
void restore_file(const std::map<std::string, std::string>& files, const std::string& name,
                  const std::string& folder, std::vector<NamedTensor> into);

}  // namespace renorm::train
