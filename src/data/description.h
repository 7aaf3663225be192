// The description of a data set, without its images, and how its images are standardized.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace renorm::data {

// The maximum of the height and of the width of the images of every data set.
constexpr int64_t kMaxImageSide = 4096;
// The maximum of channels x height x width.
constexpr int64_t kMaxImageValues = 3 * kMaxImageSide * kMaxImageSide;

struct Description {
  std::string spec;
  std::vector<std::string> classes;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<double> mean;  // per channel, in units of a full byte; standardizing subtracts it
  std::vector<double> std;   // and divides by this
  // The share of the shorter side of an image that is the input of the net; 1 for data sets whose images have
  // the right size.
  double centre = 1.0;
  // Of the labels and, where images have names, of the names. A run resumes only with the same fingerprint.
  std::string fingerprint;
};

// The names of classes in files and messages. UTF-8 stays as it is. In another name, backslashes and bytes
// that are not UTF-8 become \xNN, so that different names stay different. Throws DataError "'WHERE': ..." if
// two are the same nevertheless.
std::vector<std::string> shown_classes(const std::vector<std::string>& names, const std::string& where);

// A sentence to note if there is one class only, otherwise "".
std::string one_class_note(const std::string& spec, const std::vector<std::string>& classes);

// Of the labels of both splits and of the images' names, one after the other; `names` may be empty.
std::string fingerprint_of(const std::vector<int64_t>& train, const std::vector<int64_t>& test,
                           const std::string& names);

// The value of each byte of a channel: (byte / 255 - mean) / std. Computed in double and rounded once, so it
// is the same for every compiler.
using ByteTable = std::array<float, 256>;
std::vector<ByteTable> standardizing_tables(const Description& description);  // one per channel

// Fills `out` [channel][pixel]. Pixel p of channel c is bytes[c * channel_step + p * pixel_step].
void standardize(const uint8_t* bytes, int64_t pixels, int64_t channel_step, int64_t pixel_step,
                 const std::vector<ByteTable>& tables, float* out);

}  // namespace renorm::data
