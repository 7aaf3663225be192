// People's pictures as the input of a model.
#pragma once

#include <string>
#include <vector>

#include "data/description.h"
#include "export/model_card.h"

namespace renorm::cli {

class PictureInput {
 public:
  // Throws UsageError unless the images have one channel (grey) or three.
  explicit PictureInput(const train::ModelCard::Input& input);

  // Fills `out` [channels, height, width] from a JPEG or PNG file: upright, the middle of it, standardised.
  // Throws MissingInputError, DataError, IoError.
  void read(const std::string& file, float* out) const;
  int64_t size() const { return input_.channels * input_.height * input_.width; }  // values of an image

 private:
  train::ModelCard::Input input_;
  std::vector<data::ByteTable> tables_;
};

}  // namespace renorm::cli
