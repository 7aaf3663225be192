// The specification of the parts: plain double loops, with the arguments of kernels/parts.h.
#pragma once

#include "kernels/parts.h"

namespace renorm::kernels::reference {

void statistics(const Statistics<double>& problem);
void apply(const Apply<double>& problem);
void backward_sums(const ApplyBackward<double>& problem, const GradientSums<double>& sums);
void backward_apply(const ApplyBackward<double>& problem, const GradientSums<const double>& sums,
                    double count, double* dx);

}  // namespace renorm::kernels::reference
