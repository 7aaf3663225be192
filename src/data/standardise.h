// From bytes to what a net is given. No torch.
#pragma once

#include <array>
#include <vector>

#include "data/description.h"

namespace renorm::data {

// What each byte of a channel becomes: (byte / 255 - mean) / std. Made in double and rounded once, so no
// compiler changes it.
using ByteTable = std::array<float, 256>;
std::vector<ByteTable> standardising_tables(const Description& description);  // one a channel

}  // namespace renorm::data
