#include "bench/onednn.h"

namespace renorm::bench {

std::unique_ptr<OneDnn> make_onednn(const Case&, const Data&, OneDnn::Format) { return nullptr; }

std::string onednn_version() { return ""; }

std::string onednn_blocked_format() { return ""; }

}  // namespace renorm::bench
