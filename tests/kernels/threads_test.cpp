// GEMMs give the same bytes for any number of threads, at every instruction-set level of this machine.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/cpu/gemm/blocked_gemm.h"
#include "runtime/cpu_isa.h"
#include "runtime/half.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes random_matrix(DType dtype, int64_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  Bytes out(static_cast<size_t>(count) * size_of(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const float v = values(rng);
    void* at = out.data() + static_cast<size_t>(i) * size_of(dtype);
    switch (dtype) {
      case DType::f64:
        *static_cast<double*>(at) = v;
        break;
      case DType::bf16:
        *static_cast<BFloat16*>(at) = BFloat16(v);
        break;
      case DType::f16:
        *static_cast<Half*>(at) = Half(v);
        break;
      case DType::i8:
        *static_cast<int8_t*>(at) = static_cast<int8_t>(v * 127);
        break;
      default:
        *static_cast<float*>(at) = v;
    }
  }
  return out;
}

struct Shape3 {
  int64_t m, n, k;
};

// c of the operands' type, or int32 for bytes; b is given by its columns.
Bytes run_tile(const GemmTile& tile, DType dtype, const Shape3& s, bool with_bias,
               int64_t block_bytes = kBlockBytes[0]) {
  const Bytes a = random_matrix(dtype, s.m * s.k, 1), b = random_matrix(dtype, s.n * s.k, 2);
  const Bytes bias = random_matrix(DType::f32, s.n, 3);
  const StridedSource left({dtype, a.data(), s.k, 1}), right({dtype, b.data(), s.k, 1});
  const DType c_dtype = dtype == DType::i8 ? DType::i32 : dtype;
  Bytes c(static_cast<size_t>(s.m * s.n) * size_of(c_dtype), 0xcd);
  BlockedGemm p{.tile = &tile, .m = s.m, .n = s.n, .k = s.k};
  p.a = &left;
  p.b = &right;
  p.c = c.data();
  p.c_dtype = c_dtype;
  p.c_row = s.n;
  p.block_bytes = block_bytes;
  if (with_bias) {
    p.epilogue.bias = bias.data();
    p.epilogue.activation = Activation::relu;
  }
  run_blocked_gemm(p);
  return c;
}

class ProductThreads : public testing::Test {
 protected:
  ProductThreads() : before_(num_threads()) {}
  ~ProductThreads() override { set_num_threads(before_); }

  // The last k is longer than any tile's block of k.
  static constexpr Shape3 kShapes[] = {{131, 97, 130}, {7, 1001, 300}, {1001, 5, 300}, {1, 4001, 65}, {61, 50, 5003}};

 private:
  int before_;
};

TEST_F(ProductThreads, DoNotChangeTheResultAtAnyLevel) {
  for (int level = 0; level <= isa_choice().level; ++level) {
    IsaGuard guard(isa_choice().levels[static_cast<size_t>(level)].name);
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8}) {
      for (const GemmTile& tile : gemm_tiles(panel_for(dtype))) {
        for (const Shape3& s : kShapes) {
          SCOPED_TRACE(testing::Message() << isa_level_name() << " " << tile.name << " " << name_of(dtype) << " " << s.m
                                          << "x" << s.n << "x" << s.k);
          const bool with_bias = dtype != DType::i8 && s.n == 97;
          set_num_threads(1);
          const Bytes expected = run_tile(tile, dtype, s, with_bias);
          for (int threads : {1, 2, 3, 7}) {
            set_num_threads(threads);
            EXPECT_TRUE(run_tile(tile, dtype, s, with_bias) == expected) << "with " << threads;
          }
        }
      }
    }
  }
}

// What autotuning chooses from: Note [Candidates] in autotune.h.
TEST_F(ProductThreads, TilesAndBlocksDoNotChangeTheResult) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8}) {
    for (const Shape3& s : kShapes) {
      const std::span<const GemmTile> tiles = gemm_tiles(panel_for(dtype));
      const Bytes expected = run_tile(tiles[0], dtype, s, false);
      for (const GemmTile& tile : tiles) {
        // Candidates are native tiles that sum the same groups of k.
        if (tile.portable || tile.a_group != tiles[0].a_group) continue;
        for (int64_t block_bytes : kBlockBytes) {
          EXPECT_TRUE(run_tile(tile, dtype, s, false, block_bytes) == expected)
              << tile.name << " " << name_of(dtype) << " " << s.m << "x" << s.n << "x" << s.k << " " << block_bytes;
        }
      }
    }
  }
}

}  // namespace
}  // namespace deft::cpu
