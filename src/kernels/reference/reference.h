// The specification: the paper's formulas as plain double loops. Slow and obvious; tests compare every other
// implementation with it. Each function accepts every problem that problem.h describes.
#pragma once

#include "kernels/problem.h"

namespace renorm::kernels::reference {

void forward(const Forward<double>& problem);
void backward(const Backward<double>& problem);
void inference(const Inference<double>& problem);

}  // namespace renorm::kernels::reference
