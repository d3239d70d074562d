#include "bench/openblas.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <optional>
#include <sstream>

namespace deft::bench {

namespace {

constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;  // of cblas.h

template <class F>
bool find(void* library, const char* symbol, F& function) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  return function != nullptr;
}

std::optional<OpenBlas> load() {
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) return {};
  OpenBlas blas;
  const char* (*config)() = nullptr;
  bool complete = find(library, "openblas_set_num_threads", blas.set_threads) &&
                  find(library, "openblas_get_config", config) && find(library, "cblas_sgemm", blas.cblas_sgemm) &&
                  find(library, "cblas_sgemv", blas.cblas_sgemv);
  if (!complete) return {};
  std::istringstream words(config());  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
  std::string what, version;
  words >> what >> version;
  blas.name = fmt::format("{} {}", what, version);
  return blas;
}

}  // namespace

void OpenBlas::sgemm(int64_t m, int64_t n, int64_t k, const float* a, const float* b, bool b_rows_are_columns,
                     float* c) const {
  int b_row = static_cast<int>(b_rows_are_columns ? k : n);
  cblas_sgemm(kRowMajor, kNoTranspose, b_rows_are_columns ? kTranspose : kNoTranspose, static_cast<int>(m),
              static_cast<int>(n), static_cast<int>(k), 1, a, static_cast<int>(k), b, b_row, 0, c, static_cast<int>(n));
}

void OpenBlas::sgemv(int64_t n, int64_t k, const float* w, const float* x, float* y) const {
  cblas_sgemv(kRowMajor, kNoTranspose, static_cast<int>(n), static_cast<int>(k), 1, w, static_cast<int>(k), x, 1, 0, y,
              1);
}

const OpenBlas* open_blas() {
  static const std::optional<OpenBlas> blas = load();
  return blas ? &*blas : nullptr;
}

}  // namespace deft::bench
