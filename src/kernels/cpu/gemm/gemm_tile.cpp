#include "kernels/cpu/gemm/gemm_tile.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cpu/gemm/tile_choice.h"
#include "runtime/cpu_isa.h"
#include "runtime/numerics.h"
#if defined(__aarch64__)
#include "kernels/cpu/aarch64/tiles.h"
#elif defined(__x86_64__)
#include "kernels/cpu/x86/tiles.h"
#endif

namespace deft::cpu {

namespace {

uint64_t usable_features() {
  const uint64_t features = deft::detail::isa_features.load(std::memory_order_relaxed);
  return features & deft::detail::kIsaUnknown ? deft::detail::find_isa_features() : features;
}

#if defined(__aarch64__)
// With block_k = 4608 no sum of bytes in ResNet-50 or BERT is cut; the panels still stream from L2.
constexpr TileChoice byte_tile(GemmTile tile, decltype(GemmTile::requantize) requantize) {
  tile.requantize = requantize;
  return {tile, needs("i8mm")};
}
// Best first within a panel type. block_k is the same for all tiles of a type (Note [One chain]): panels of a and b
// stay in L1.
constexpr TileChoice kTiles[] = {
    {{"neon_f32_8x8", Panel::f32, 8, 8, 1, 1, 4, 768, deft_neon_f32_8x8}, 0},
    {{"neon_f32_7x8", Panel::f32, 7, 8, 1, 1, 4, 768, deft_neon_f32_7x8}, 0},
    {{"neon_f32_4x8", Panel::f32, 4, 8, 1, 1, 4, 768, deft_neon_f32_4x8}, 0},
    {{"fhm_f16_8x12", Panel::f16, 8, 12, 1, 1, 2, 1024, deft_fhm_f16_8x12}, needs("asimdhp") | needs("asimdfhm")},
    {{"bf16_8x12", Panel::bf16, 8, 12, 4, 4, 8, 1024, deft_bf16_8x12}, needs("bf16")},
    {{"bf16_12x8", Panel::bf16, 12, 8, 4, 4, 8, 1024, deft_bf16_12x8}, needs("bf16")},
    {{"bf16_4x12", Panel::bf16, 4, 12, 4, 4, 8, 1024, deft_bf16_4x12}, needs("bf16")},
    byte_tile({"i8mm_s8_12x8", Panel::s8, 12, 8, 8, 8, 16, 4608, deft_i8mm_s8_12x8}, deft_i8mm_s8_12x8_bytes),
    {{"i8mm_s8_8x12", Panel::s8, 8, 12, 8, 8, 16, 4608, deft_i8mm_s8_8x12}, needs("i8mm")},
    byte_tile({"i8mm_s8_4x8", Panel::s8, 4, 8, 8, 8, 16, 4608, deft_i8mm_s8_4x8}, deft_i8mm_s8_4x8_bytes),
    {{"dot_s8_8x12", Panel::s8, 8, 12, 4, 4, 4, 4608, deft_dot_s8_8x12}, needs("asimddp")},
    byte_tile({"i8mm_u8s8_12x8", Panel::u8s8, 12, 8, 8, 8, 16, 4608, deft_i8mm_u8s8_12x8}, deft_i8mm_u8s8_12x8_bytes),
    {{"i8mm_u8s8_8x12", Panel::u8s8, 8, 12, 8, 8, 16, 4608, deft_i8mm_u8s8_8x12}, needs("i8mm")},
    byte_tile({"i8mm_u8s8_4x8", Panel::u8s8, 4, 8, 8, 8, 16, 4608, deft_i8mm_u8s8_4x8}, deft_i8mm_u8s8_4x8_bytes),
};
std::span<const TileChoice> native_tiles() { return kTiles; }
#elif defined(__x86_64__)
std::span<const TileChoice> native_tiles() { return x86_tiles(); }
#else
std::span<const TileChoice> native_tiles() { return {}; }
#endif

constexpr size_t kPanels = 7;
struct Lists {
  uint64_t features;  // for which the lists were built
  std::array<std::vector<GemmTile>, kPanels> tiles;
};

Lists usable_tiles(uint64_t features) {
  Lists lists{features, {}};
  const auto add = [&](GemmTile t) {
    std::vector<GemmTile>& list = lists.tiles[static_cast<size_t>(t.panel)];
    if (t.begin && !list.empty()) t.block_k = list[0].block_k;  // AMX: all tiles read panels packed for the best one
    list.push_back(t);
  };
  for (const TileChoice& choice : native_tiles()) {
    if ((choice.features & ~features) == 0) add(choice.tile);
  }
  for (const GemmTile& t : portable_tiles()) add(t);
  return lists;
}

// Tests lower the level and raise it again. Lists are never freed: packed matrices refer to their tiles, and threads
// may outlive static destruction.
const Lists& lists_for(uint64_t features) {
  static std::mutex mutex;
  static auto& all = *new std::vector<std::unique_ptr<const Lists>>;
  std::lock_guard lock(mutex);
  for (const auto& lists : all) {
    if (lists->features == features) return *lists;
  }
  return *all.emplace_back(std::make_unique<const Lists>(usable_tiles(features)));
}

}  // namespace

int64_t size_of(Panel panel) {
  constexpr int64_t sizes[] = {4, 8, 2, 2, 1, 1, 6};
  return sizes[static_cast<size_t>(panel)];
}

std::span<const GemmTile> gemm_tiles(Panel panel) {
  static std::atomic<const Lists*> current{nullptr};
  const uint64_t features = usable_features();
  const Lists* lists = current.load(std::memory_order_acquire);
  if (!lists || lists->features != features) [[unlikely]] {
    lists = &lists_for(features);
    current.store(lists, std::memory_order_release);
  }
  return lists->tiles[static_cast<size_t>(panel)];
}

namespace {

// Rows computed for a GEMM of m rows. Byte tiles leave the last rows to a smaller tile (run_bytes()).
int64_t rows_of(const GemmTile& t, int64_t m) {
  const int64_t whole = m / t.mr * t.mr, last = m - whole;
  const GemmTile* tail = t.requantize && last > 0 ? tail_tile(t) : nullptr;
  return whole + (last == 0 ? 0 : tail && last <= tail->mr ? tail->mr : t.mr);
}

}  // namespace

const GemmTile& best_tile(Panel panel, int64_t m, int64_t n) {
  const std::span<const GemmTile> tiles = gemm_tiles(panel);
  const GemmTile* best = &tiles[0];
  double least = 1e300, slower = 1;
  for (const GemmTile& t : tiles) {
    if ((t.portable && &t != &tiles[0]) || (tiles[0].begin && !t.begin)) break;  // AMX is ten times as fast as others
    const int64_t rows = m > 0 ? rows_of(t, m) : 1, columns = (n + t.nr - 1) / t.nr * t.nr;
    const bool small = 2 * t.mr * t.nr <= tiles[0].mr * tiles[0].nr;  // more loads per multiply-add
    const bool stores_slowly = tiles[0].requantize && !t.requantize;
    const double cost = static_cast<double>(rows) * static_cast<double>(columns) * slower * (small ? 1.4 : 1) *
                        (stores_slowly ? 1.1 : 1);
    if (cost < least) least = cost, best = &t;
    slower += 0.025;
  }
  return *best;
}

const GemmTile* tail_tile(const GemmTile& tile) {
  for (const GemmTile& t : gemm_tiles(tile.panel)) {
    const bool same = t.requantize && t.nr == tile.nr && t.a_group == tile.a_group && t.k_step == tile.k_step;
    if (same && 2 * t.mr <= tile.mr) return &t;
  }
  return nullptr;
}

const GemmTile& tile_for_rows(const GemmTile& packed, int64_t m) {
  const GemmTile* best = &packed;
  const auto waste = [&](const GemmTile& t) { return (m + t.mr - 1) / t.mr * t.mr - m; };
  for (const GemmTile& t : gemm_tiles(packed.panel)) {
    const bool reads =
        t.nr == packed.nr && t.b_group == packed.b_group && t.k_step == packed.k_step && t.block_k == packed.block_k;
    // A smaller tile is slower per row: it must save 1/16 of the rows, or 1/4 if it is half as high.
    const int64_t saved = waste(*best) - waste(t), least = 2 * t.mr <= packed.mr ? m / 4 : m / 16;
    if (reads && t.mr < best->mr && saved > least) best = &t;
  }
  return *best;
}

Panel panel_for(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return Panel::f64;
    case DType::bf16:
      return gemm_tiles(Panel::bf16).empty() ? Panel::f32 : Panel::bf16;
    case DType::f16:
      return gemm_tiles(Panel::f16).empty() ? Panel::f32 : Panel::f16;
    case DType::i8:
#if defined(__x86_64__)
      // VNNI multiplies unsigned by signed bytes only: a shift by 128 and column sums cost less than another tile.
      if (!cpu_has("amx_int8") && (cpu_has("avx512_vnni") || cpu_has("avx_vnni"))) return Panel::u8s8;
#endif
      return Panel::s8;
    case DType::u8:
      return gemm_tiles(Panel::u8s8).empty() ? Panel::s8 : Panel::u8s8;
    default:
      return Panel::f32;
  }
}

bool splits_fast() { return cpu_has("amx_fp16") || allow_tf32(); }

Panel panel_for(DType dtype, int64_t m, int64_t n, int64_t k) {
  const Panel panel = panel_for(dtype);
  if (panel != Panel::f32 || dtype != DType::f32 || !split_f32() || gemm_tiles(Panel::split).empty()) return panel;
  constexpr int64_t kLines = 16, kStep = 32, kLeastDepth = 96;
  constexpr double kMostPadding = 1.5;
  const int64_t least = splits_fast() ? 2 * kLines : 512;
  const double least_work = splits_fast() ? 256 * 1024 : 512e6;
  const auto product = [](int64_t x, int64_t y, int64_t z) {
    return static_cast<double>(x) * static_cast<double>(y) * static_cast<double>(z);
  };
  const auto whole = [](int64_t x, int64_t step) { return (x + step - 1) / step * step; };
  const double work = product(m, n, k);
  if (std::min(m, n) < least || k < kLeastDepth || work < least_work) return panel;
  return product(whole(m, kLines), whole(n, kLines), whole(k, kStep)) <= kMostPadding * work ? Panel::split : panel;
}

}  // namespace deft::cpu
