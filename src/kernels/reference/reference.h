// The specification: the paper's formulas as plain double loops. Slow, obvious, and what every other
// path is compared with. Each function accepts every problem that problem.h describes.
#pragma once

#include "kernels/problem.h"

namespace renorm::kernels::reference {

void forward(const Forward<double>& problem);
void backward(const Backward<double>& problem);
void inference(const Inference<double>& problem);

}  // namespace renorm::kernels::reference
