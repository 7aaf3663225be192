// Nets as TorchScript archives, which LibTorch and PyTorch open without renorm.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <map>
#include <string>

#include "models/model.h"

namespace renorm::train {

// The archive of a net in evaluation mode that computes in float with LibTorch's own operators
// (portable_model.h). Its method forward takes float images [n, channels, height, width], any n, and gives
// logits [n, classes]; parameters and buffers have the net's names, without those that evaluation does not
// use. `example` are images of a batch size other than 1. `extra` are files that travel in the archive.
std::string to_torchscript(models::Classifier& model, const torch::Tensor& example,
                           const std::map<std::string, std::string>& extra);

struct TorchScript {
  torch::jit::Module module;  // on the CPU
  std::string extra;          // the bytes of the extra file; "" if there is none
};
// Throws DataError that starts with `file`.
TorchScript read_torchscript(const std::string& bytes, const std::string& file,
                             const std::string& extra_name);

}  // namespace renorm::train
