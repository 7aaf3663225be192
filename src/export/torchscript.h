// Nets as TorchScript archives, which LibTorch and PyTorch open without renorm.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <map>
#include <string>

#include "models/model.h"

namespace renorm::exporting {

// The archive of a net in evaluation mode that computes in float with LibTorch's own operators
// (portable_model.h). Its method forward takes float images [n, channels, height, width], any n, and returns
// logits [n, classes]. Parameters and buffers keep their names; those that evaluation does not use are left
// out. `example` holds more than one image. `extra` are additional files of the archive.
std::string to_torchscript(models::Classifier& model, const torch::Tensor& example,
                           const std::map<std::string, std::string>& extra);

struct TorchScript {
  torch::jit::Module module;  // on the CPU
  std::string extra;          // the content of the extra file; "" if it is missing
};
// Reading can run code of the archive: `bytes` must come from this process or from somebody trusted. Throws
// DataError that starts with `file`.
TorchScript read_torchscript(const std::string& bytes, const std::string& file,
                             const std::string& extra_name);

}  // namespace renorm::exporting
