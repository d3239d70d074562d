// The blocked GEMM under every matmul and convolution: c = epilogue(a * b), packed and in parallel. Results do not
// depend on the number of threads (Note [One chain]).
#pragma once

#include <memory>

#include "base/function_ref.h"
#include "kernels/cpu/gemm/pack.h"

namespace deft::cpu {

// An operand of a GEMM that can pack itself into panels. A line is a row of a or a column of b. Called from several
// threads.
class PanelSource {
 public:
  virtual ~PanelSource() = default;
  // As pack() in kernels/cpu/gemm/pack.h.
  virtual void pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
                    int32_t* sums) const = 0;
  // The matrix behind it, if the operand is a plain matrix: some tiles can then read its rows in place.
  virtual const StridedMatrix* strided() const { return nullptr; }
};

class StridedSource : public PanelSource {
 public:
  explicit StridedSource(const StridedMatrix& m) : matrix(m) {}
  void pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
            int32_t* sums) const override {
    cpu::pack(tile, side, matrix, l0, lines, k0, k, out, sums);
  }
  const StridedMatrix* strided() const override { return &matrix; }
  StridedMatrix matrix;
};

// A whole operand in panels, kept for many GEMMs: blocks of tile.block_k one after the other, each with all its lines.
class PackedMatrix {
 public:
  // `with_sums`: sums() will be needed (a left operand with a zero point).
  PackedMatrix(const GemmTile& tile, Side side, const PanelSource& from, int64_t lines, int64_t k,
               bool with_sums = true);
  ~PackedMatrix();
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;

  const GemmTile& tile() const { return tile_; }
  Side side() const { return side_; }
  int64_t lines() const { return lines_; }
  int64_t k() const { return k_; }
  int64_t bytes() const { return bytes_; }
  // Panels of the lines from l0 (a multiple of the tile's width) over k from k0 (a multiple of block_k).
  const void* panels(int64_t l0, int64_t k0) const;
  const int32_t* sums() const { return sums_; }  // of each line over all of k; b of bytes only, else null

 private:
  void release();
  const GemmTile& tile_;
  Side side_;
  int64_t lines_, k_, bytes_;
  void* data_;
  int32_t* sums_ = nullptr;
};

enum class Activation : uint8_t { none, relu, gelu, gelu_tanh, silu, sigmoid, tanh };

// c = store(act((sum - a_zero * column sums) * scale + bias + residual + old c)). Intermediate values are f32 (f64 for
// an f64 GEMM); without any of these terms an int32 c gets the exact sum.
struct Epilogue {
  float alpha = 1;
  const float* scale = nullptr;  // one per column of c (per row with on_rows); times alpha
  const void* bias = nullptr;    // the same
  DType bias_dtype = DType::f32;
  bool on_rows = false;
  const void* residual = nullptr;  // of c's dtype, strides and, for bytes, scale and zero point
  bool accumulate = false;         // adds the old c
  Activation activation = Activation::none;
  int32_t a_zero = 0;   // zero point of a's panels (bytes): packed_zero()
  float out_scale = 1;  // int8 / uint8 c: q = round_to_even(value / out_scale) + out_zero, saturated
  int32_t out_zero = 0;
  bool plain() const {
    return alpha == 1 && !scale && !bias && !residual && activation == Activation::none && a_zero == 0;
  }
};

// The zero point of the panels: bytes of the sign that the tile does not take are shifted by 128 when packed.
int32_t packed_zero(const GemmTile& tile, DType a, int32_t zero);

struct BlockedGemm {
  const GemmTile* tile = nullptr;
  int64_t m = 0, n = 0, k = 0;
  const PanelSource* a = nullptr;  // either this or packed_a
  const PanelSource* b = nullptr;
  const PackedMatrix* packed_a = nullptr;  // of this tile; packed_b may be of another that tile_for_rows() allows
  const PackedMatrix* packed_b = nullptr;
  void* c = nullptr;
  DType c_dtype = DType::f32;
  int64_t c_row = 0, c_col = 1;
  // Where row i of c begins, in elements, if not at i * c_row: fills the offsets of rows [i0, i0 + count). A residual
  // has the same offsets.
  const FunctionRef<void(int64_t i0, int64_t count, int64_t* offsets)>* row_offsets = nullptr;
  Epilogue epilogue = {};
  int64_t block_bytes = 0;  // of a block of packed rows of a; 0: chosen by autotuning
};
void run_blocked_gemm(const BlockedGemm& p);

// Block sizes worth trying, the likely best first.
inline constexpr int64_t kBlockBytes[] = {384 << 10, 16 << 10, 768 << 10, 160 << 10};

}  // namespace deft::cpu
