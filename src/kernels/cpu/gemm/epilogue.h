// The epilogue: from the sums of a register tile to c; see Epilogue in blocked_gemm.h.
#pragma once

#include "kernels/cpu/gemm/blocked_gemm.h"

namespace deft::cpu::detail {

inline constexpr int kMostColumns = 64;  // of a tile; the widest vectors beyond it included

// Scale, bias and correction of the columns of one panel, ready to use.
struct ColumnTerms {
  float scale[kMostColumns], bias[kMostColumns];
  int32_t correction[kMostColumns];  // added to the sum (bytes)
};
void column_terms(const BlockedGemm& p, int64_t j0, int64_t count, const int32_t* sums, ColumnTerms& terms);

// Finishes rows [0, rows) x columns [0, columns) of a tile at (i0, j0) of c. `sums` are the tile's sums, in rows of
// `width` values and readable two vectors beyond. offsets[i] is where row i of c begins.
struct TileStore {
  int64_t i0, j0;
  int rows, columns, width;
  const void* sums;
  const int64_t* offsets;
  // c is larger than the caches (streaming_store.h): the caller ends with end_stream().
  bool streams = false;
};
void store_tile(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms);

// Byte outputs without residual or old c: (sum + correction) * scale + bias, rounded, plus the zero point.
bool requantizes(const BlockedGemm& p);

// The scale of a column, or of a row with on_rows. Always inline: a call from vector code would mix AVX and SSE
// instructions without vzeroupper between them (GCC's -fipa-ra sees that the callee leaves the vectors alone), which
// takes about 180 ns on a Xeon.
[[gnu::always_inline]] inline float scale_at(const Epilogue& e, int64_t i) {
  return e.scale ? e.scale[i] * e.alpha : e.alpha;
}
[[gnu::always_inline]] inline float bias_at(const Epilogue& e, int64_t i) {
  switch (e.bias_dtype) {
    case DType::bf16:
      return static_cast<const BFloat16*>(e.bias)[i];
    case DType::f16:
      return static_cast<const Half*>(e.bias)[i];
    case DType::f64:
      return static_cast<float>(static_cast<const double*>(e.bias)[i]);
    default:
      return static_cast<const float*>(e.bias)[i];
  }
}

}  // namespace deft::cpu::detail
