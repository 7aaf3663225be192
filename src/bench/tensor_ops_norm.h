// Batch Renorm the way people write it, as a layer of a net.
#pragma once

#include "models/norm.h"

namespace renorm::bench {

// One tensor operation after the other, a separate ReLU; `eps` and `momentum` mean what they mean in Batch
// Renorm, the limits are fixed. There is a bias and no weight.
models::MakeNorm tensor_ops_norm(double eps, double momentum, double r_max, double d_max);

}  // namespace renorm::bench
