// Elementary functions from basic IEEE operations alone: the same bits with every libm and CPU, relative
// error below 1e-14 on the stated range. Compiled with -ffp-contract=off, as every file must be whose results
// are to be the same everywhere.
#pragma once

namespace renorm {

double portable_log(double x);  // x > 0, normal
double portable_exp(double x);  // |x| <= 700
struct SinCos {
  double sin;
  double cos;
};
SinCos portable_sin_cos(double x);  // |x| <= 100

}  // namespace renorm
