// The name somebody probably meant.
#pragma once

#include <string>
#include <vector>

namespace renorm {

// The candidate with the fewest single-character edits from `word`, the first of equals; "" if there is none
// or if more than half of the word would have to change.
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

// "; did you mean 'iid'?" or, if nothing is near, "; there are iid, labels, blocks". Ends a message about an
// unknown name.
std::string name_hint(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace renorm
