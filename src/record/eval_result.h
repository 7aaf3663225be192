// The result of `renorm eval --json`, which experiments read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/metrics.h"

namespace renorm::record {

struct ClassResult {
  std::string name;
  int64_t images = 0;
  int64_t correct = 0;
  double accuracy = 0.0;  // percent; 0 without images
};

struct EvalResult {
  std::string run;  // folder
  std::string checkpoint;
  int64_t step = 0;
  std::string data;   // spec
  std::string split;  // "train", "test"
  int64_t images = 0;
  int64_t skipped_images = 0;  // older files have no such key
  Score averaged;              // keys accuracy and loss
  Score raw;                   // keys raw_accuracy and raw_loss
  bool batch_statistics = false;
  std::optional<std::string> sampler;  // of the minibatches; null without batch statistics
  std::optional<int64_t> extra_rows;   // of `renorm eval --extra-rows`
  std::vector<ClassResult> per_class;
};

// Ends with a newline. Bytes that are not UTF-8 are replaced.
std::string to_json(const EvalResult& result);

// Throws DataError "FILE: ...". Unknown keys are ignored.
EvalResult parse_eval_result(const std::string& text, const std::string& file);

}  // namespace renorm::record
