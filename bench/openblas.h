// OpenBLAS as a peer inside this process, where it is installed: found when the program runs, no part of the build.
#pragma once

#include <cstdint>
#include <string>

namespace deft::bench {

struct OpenBlas {
  std::string name;  // "OpenBLAS 0.3.21"
  void (*set_threads)(int);
  // The C interface of BLAS; see sgemm() and sgemv().
  void (*cblas_sgemm)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  void (*cblas_sgemv)(int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

  // c = a b, all row-major and contiguous; b as n x k if `b_rows_are_columns`.
  void sgemm(int64_t m, int64_t n, int64_t k, const float* a, const float* b, bool b_rows_are_columns, float* c) const;
  // y = w x for w of n x k.
  void sgemv(int64_t n, int64_t k, const float* w, const float* x, float* y) const;
};
// nullptr where there is none.
const OpenBlas* open_blas();

}  // namespace deft::bench
