// The settings of a resumed run: those that its folder has, and those that are given by name with `config`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config.h"

namespace renorm::train {

// Whether a run can be started from the settings given. Those that may change in the course of a run do not
// describe one.
bool describes_run(const std::vector<std::string>& given);

// `stored` with the given settings that may change in the course of a run.
Config with_free_settings(Config stored, const Config& config, const std::vector<std::string>& given);

// For a run that recorded nothing yet: `stored` with all given settings. Steps and epochs replace each other.
Config corrected_config(Config stored, const Config& config, const std::vector<std::string>& given);

// For a run that has begun: `stored`, resolved, with the given settings that may change. Throws UsageError if
// another one differs; `folder` is for the message.
Config continued_config(const Config& stored, const Config& config, const std::vector<std::string>& given,
                        int64_t training_images, const std::string& folder);

}  // namespace renorm::train
