// PNG files; see image_decode.h.
#pragma once

#include <string>

#include "data/image_decode.h"

namespace renorm::data {

StoredImage decode_png(const std::string& bytes, const std::string& file, const DecodeLimits& limits,
                       DecodePart part);

}  // namespace renorm::data
