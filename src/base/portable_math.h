// Elementary functions from basic IEEE operations alone: the same bits with every libm and CPU, relative
// error below 1e-14 on the stated range. A file whose results must be the same everywhere is compiled with
// -ffp-contract=off, as the one that holds these is.
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
