#pragma once

#include <string>

#include "bench/summary.h"

namespace renorm::bench {

// geomean.<layout>.<pass>.<ratio> (and `large`, the same over large tensors only), targets, machine, and the
// raw figures of every case in milliseconds.
std::string to_json(const Results& results);

}  // namespace renorm::bench
