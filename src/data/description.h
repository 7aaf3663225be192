// What is known of a data set without its images. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace renorm::data {

struct Description {
  std::string spec;
  std::vector<std::string> classes;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<double> mean;  // a channel, in units of a full byte; what standardising subtracts
  std::vector<double> std;   // what it divides by
  // How much of the shorter side of somebody's picture is shown to the net: 1 for sets whose images come in
  // the right size.
  double centre = 1.0;
  // Of the labels and, where images have names, of the names: a run goes on only with the data it began with.
  std::string fingerprint;
};

// Of the labels of both splits and of the images' names, one after the other; `names` may be empty.
std::string fingerprint_of(const std::vector<int64_t>& train, const std::vector<int64_t>& test,
                           const std::string& names);

}  // namespace renorm::data
