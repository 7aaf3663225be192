// The id of a run: drawn when it begins, kept when it is resumed. config.toml has it in its first line,
// state.json of each checkpoint and the first line of metrics.jsonl under the key "run". Files of versions
// without ids have none.
#pragma once

#include <string>

namespace renorm::train {

// 16 hexadecimal digits from the system's random numbers.
std::string new_run_id();
bool is_run_id(const std::string& text);

// The first line of config.toml, a comment: a config file may start another run.
std::string run_id_comment(const std::string& id);
// The id in the first line of a config file; "" if there is none.
std::string run_id_of(const std::string& toml);

}  // namespace renorm::train
