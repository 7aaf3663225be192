// Named tensors to safetensors bytes and back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/optimizer.h"

namespace renorm::train {

// The values of tensors of any device and layout; the same values in the same order give the same bytes.
// Float, double, bfloat16, half, int64, int32, uint8 and bool. `metadata` is text that travels along.
std::string encode_tensors(const std::vector<NamedTensor>& tensors,
                           const std::map<std::string, std::string>& metadata = {});

// All tensors of a file by name, in memory of their own. Throws DataError that starts with `file`, also for a
// tensor of a dtype that encode_tensors does not write.
std::map<std::string, torch::Tensor> read_tensors(const std::string& bytes, const std::string& file);

// Copies every tensor of the file into the live one of the same name. Throws DataError naming file and tensor
// if one is missing or not wanted, or its dtype or shape differ; then nothing was changed.
void restore_tensors(const std::string& bytes, const std::string& file, std::vector<NamedTensor> into);

// The same from the file `name` among a checkpoint's `files`; `folder` starts the messages. Throws DataError
// also if there is no such file.
void restore_file(const std::map<std::string, std::string>& files, const std::string& name,
                  const std::string& folder, std::vector<NamedTensor> into);

}  // namespace renorm::train
