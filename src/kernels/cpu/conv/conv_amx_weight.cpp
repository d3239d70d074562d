// Weight gradients on AMX tiles, of 16-bit floats and of f32 split into three bf16: tile rows are output channels,
// columns input channels, and k runs over positions. dy is transposed, so that the positions of a channel are
// contiguous. x is copied as pairs of positions, in rows of even length, once for each tap along x or twice for all of
// them: a tap along y reads the same copy some rows further on, at an aligned place.
#include <atomic>
#include <cstring>

#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/conv/line_tiles.h"
#include "kernels/cpu/copy/copy.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/gemm/pack_rows.h"
#include "kernels/cpu/gemm/pack_split.h"
#include "kernels/cpu/gemm/tile_series.h"
#include "runtime/parallel.h"
#if defined(__x86_64__)
#include "kernels/cpu/x86/pack_words.h"
#endif

namespace deft::cpu::detail {

#if defined(__x86_64__)

namespace {

using Word = uint16_t;  // the bits of a bf16 or f16, or of a part of an f32

constexpr int64_t kBlock = 32, kHalf = 16;  // rows and columns of a tile; half of either
constexpr int64_t kStep = 32;               // positions of a step
constexpr int64_t kPair = 2 * kBlock;       // 16-bit values of a pair of positions, of one part
// Copies of x for a block of channels and of dy stay in L2 up to this many positions.
constexpr int64_t kNearBytes = 1280 << 10, kLeastPositions = 768;
constexpr int64_t kCopyWork = 100;  // a copy of a value takes about as long as this many multiply-adds
constexpr int64_t kAheadSteps = 1, kAheadPixels = 8;                                           // prefetch distance
constexpr int64_t kFewParts = 8, kMostParts = 16, kPartPositions = 3072, kPartSums = 2 << 20;  // part_count()
// Large weights with few positions are packed instead: 512 channels on 7 x 7 take 13 ms of f32 here, 10.6 packed, but
// four images take the same, and bf16 takes 3 ms instead of 4 for one.
constexpr int64_t kFewPositions = 256, kManyWeights = 1 << 20;
// With one tap, copies take much of the time: only many positions of few channels pay, in 16 bits (256 to 128 channels
// on 56 x 56: 4.0 ms, packed 5.9; 256 to 1024 on 14 x 14: 2.6 and 2.0).
constexpr int64_t kManyPositions = 4096, kFewWeights = 256 * 512;

int64_t share(int64_t all, int64_t count) { return (all + count - 1) / count; }
int64_t round_up(int64_t x, int64_t step) { return share(x, step) * step; }
int64_t blocks_of(int64_t channels) { return share(channels, kBlock); }

bool all_finite(const float* values, int64_t count) {
  constexpr uint32_t kInfinity = 0x7f800000;
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    most = std::max(most, bits & 0x7fffffff);
  }
  return most < kInfinity;
}

Panel tiles_for(const ConvCall& c, const Window& w) {
  return panel_for(c.dtype, c.c_out / c.groups, c.c_in / c.groups * w.tap_count(), c.n * w.positions());
}
int64_t parts_of(Panel tiles) { return tiles == Panel::split ? 3 : 1; }  // of a value

// With few channels, taps along x are copied side by side, as if they were channels.
bool joins_taps(const ConvCall& c, const Window& w) { return c.groups == 1 && c.c_in < kHalf && w.tap_step[2] == 1; }

// Sums are [group][block of input channels][panel of output channels][tap][output channel][input channel]: panels and
// blocks have 32 channels of one group. Joined taps along x count as input channels.
struct SumsForm {
  SumsForm(const ConvCall& c, const Window& w)
      : joined(joins_taps(c, w)),
        groups(c.groups),
        cg(c.c_in / c.groups * (joined ? w.taps[2] : 1)),
        og(c.c_out / c.groups),
        taps(joined ? w.taps[1] : w.tap_count()),
        blocks(blocks_of(cg)),
        panels(blocks_of(og)),
        size(groups * blocks * panels * taps * kBlock * kBlock) {}
  int64_t ins(int64_t block) const { return std::min(kBlock, cg - block * kBlock); }
  int64_t outs(int64_t panel) const { return std::min(kBlock, og - panel * kBlock); }
  int64_t at(int64_t group, int64_t block, int64_t panel) const {
    return ((group * blocks + block) * panels + panel) * taps * kBlock * kBlock;
  }
  bool joined;
  int64_t groups, cg, og, taps;
  int64_t blocks, panels;  // of a group
  int64_t size;
};

// How positions are cut into slots: a part of a long output row, some rows of an image, or whole images side by side.
// Each tap along x has its own copy of x, or (`shifted`) taps share two copies per residue of the stride, the second
// shifted by one position. They then read some pairs further on, beyond the row, where dy has zeros.
struct Slots {
  Slots(const ConvCall& c, const Window& w, const SumsForm& f, int64_t parts)
      : window(w), taps_x(f.joined ? 1 : w.taps[2]), images(c.n * w.count[0]) {
    const int64_t far = (w.taps[1] - 1) * w.tap_step[1], far_x = (taps_x - 1) * w.tap_step[2];
    residues = std::min(w.step[1], far + 1);
    const int64_t shared = 2 * std::min(w.step[2], far_x + 1);
    const auto most_of = [&](int64_t count) {
      return std::max(kLeastPositions, kNearBytes / (2 * parts * (c.c_out + kBlock * residues * count)));
    };
    const int64_t work = c.c_out / c.groups * f.taps + kCopyWork * shared;  // of a position; more is a waste
    const int64_t saved = kCopyWork * (taps_x - shared) * std::min(w.count[2], most_of(shared));
    shifted = saved > work * (far_x / w.step[2]);
    copies = shifted ? shared : taps_x;
    reach = shifted ? far_x / w.step[2] : 0;
    const int64_t most = most_of(copies);
    across = std::clamp<int64_t>(most / (w.count[1] * w.count[2]), 1, images);
    across = share(images, share(images, across));
    width = share(w.count[2], share(w.count[2], most));
    in_row = share(w.count[2], width);
    lines = in_row > 1 ? 1 : share(w.count[1], across > 1 ? 1 : share(w.count[1] * w.count[2], most));
    in_image = share(w.count[1], lines) * in_row;
    pitch = round_up(across * (width + reach), 2);
    depth = round_up(lines * pitch, kStep);
    rows = lines + far / w.step[1];
    all = share(images, across) * in_image;
    pairs = residues * copies * rows * pitch / 2;
    beyond = (depth - lines * pitch + reach + 1) / 2;
  }
  // Distance in pairs from the start of a block to the first pair that tap t reads.
  int64_t tap(int64_t t) const {
    const int64_t y = t / taps_x * window.tap_step[1], step = window.step[1];
    const int64_t line = y / step * pitch / 2;
    if (!shifted) return copy(y % step, t % taps_x) + line;
    const int64_t x = t % taps_x * window.tap_step[2], residue = x % window.step[2], shift = x / window.step[2];
    return copy(y % step, 2 * residue + shift % 2) + line + shift / 2;
  }
  // The column of x at position p of a copy, counted from the first that any tap reads.
  int64_t column(int64_t copy, int64_t p) const {
    if (shifted) return (p + copy % 2) * window.step[2] + copy / 2;
    return p * window.step[2] + copy * window.tap_step[2];
  }
  int64_t copy(int64_t residue, int64_t x) const { return (residue * copies + x) * rows * pitch / 2; }
  const Window& window;
  int64_t taps_x, copies;  // copies of the columns of x
  bool shifted;
  int64_t reach;             // positions read beyond a row
  int64_t images, residues;  // residues: of the stride along y that are read
  int64_t across, lines;     // images side by side; output rows of a slot
  int64_t width;             // positions of a row of an image
  int64_t in_row, in_image;  // slots of a row, of an image
  int64_t pitch, depth;      // positions of a row; of a slot, as whole steps
  int64_t rows;              // of x, of one residue
  int64_t all;               // number of slots
  int64_t pairs, beyond;     // of a block of channels in a slot; that tiles read beyond its end
};

// Sums over some slots, `together` of which are copied at a time.
class WeightGradient {
 public:
  WeightGradient(const ConvCall& c, const Slots& slots, const SumsForm& form, int64_t together, const void* dy,
                 float* sums)
      : c_(c),
        w_(slots.window),
        s_(slots),
        f_(form),
        dy_(static_cast<const char*>(dy)),
        size_(static_cast<int64_t>(deft::size_of(c.dtype))),
        tile_(best_tile(tiles_for(c, slots.window), kBlock, kBlock)),
        low_tile_(tile_for_rows(tile_, kHalf)),
        parts_(parts_of(tile_.panel)),
        together_(together),
        panel_(parts_ * s_.depth * kBlock),
        block_(parts_ * s_.pairs * kPair),
        slot_(form.groups * form.blocks * block_ + parts_ * s_.beyond * kPair),
        transposed_(together * form.groups * form.panels * panel_),
        pairs_(together * slot_),
        columns_(s_.copies * columns_of_copy()),
        sums_(sums) {
    for (int64_t s = 1; s <= together; ++s) {
      clear(pairs_.data() + s * slot_ - parts_ * s_.beyond * kPair, parts_ * s_.beyond * kPair);
    }
    if (f_.og % kHalf != 0)
      clear(transposed_.data(), together * f_.groups * f_.panels * panel_);  // rows without a channel
    for (int64_t i = 0; i < s_.copies * columns_of_copy(); ++i) {
      const int64_t read = s_.column(i / columns_of_copy(), i % columns_of_copy()), column = read + w_.base[2];
      columns_[i] = f_.joined ? read : column >= 0 && column < w_.size[2] ? column : -1;
    }
  }

  // Slots [begin, end).
  void run(int64_t begin, int64_t end) const {
    const int64_t threads = in_parallel_region() ? 1 : num_threads(), rows = s_.residues * s_.rows;
    const int64_t copies = rows + f_.groups * f_.panels, blocks = f_.groups * f_.blocks * f_.panels;
    const int64_t each = blocks >= 2 * threads || threads == 1 ? f_.taps : 1;  // taps of a task
    for (int64_t first = begin; first < end; first += together_) {
      const int64_t count = std::min(together_, end - first);
      parallel_for(0, count * copies, 1, [&](int64_t c0, int64_t c1) {
        const Room room(*this);
        for (int64_t i = c0; i < c1; ++i) {
          const int64_t s = i / copies, what = i % copies;
          what < rows ? copy_row(first + s, s, what / s_.rows, what % s_.rows, room)
                      : transpose_panel(first + s, s, what - rows, room);
        }
      });
      parallel_balanced(0, blocks * f_.taps / each, 1, [&](int64_t t0, int64_t t1) {
        const TileSeries series(tile_);
        for (int64_t t = t0 * each; t < t1 * each; ++t) sum_tile(t / f_.taps, t % f_.taps, count, first > begin);
      });
    }
  }

 private:
  // Buffers for copying, one per thread.
  struct Room {
    explicit Room(const WeightGradient& g)
        : places(std::max(g.s_.copies * g.s_.pitch, g.s_.depth)), words(g.s_.across * g.row_words()) {}
    Workspace<const Word*> places;
    Workspace<Word> words;
  };
  // Words of a row that is not read in place.
  int64_t row_words() const {
    const int64_t reach = (s_.width - 1) * w_.step[2] + (w_.taps[2] - 1) * w_.tap_step[2] + 1;
    return f_.joined ? reach * c_.c_in : parts_ > 1 ? reach * parts_ * kBlock : 0;
  }

  template <class T>
  static void clear(T* from, int64_t count) {
    std::memset(static_cast<void*>(from), 0, static_cast<size_t>(count) * sizeof(T));
  }
  int64_t columns_of_copy() const { return w_.count[2] + s_.reach; }
  int64_t image_of(int64_t slot) const { return slot / s_.in_image * s_.across; }
  int64_t first_row_of(int64_t slot) const { return slot % s_.in_image / s_.in_row * s_.lines; }
  int64_t begin_of(int64_t slot) const { return slot % s_.in_row * s_.width; }  // along x
  int64_t live_width(int64_t slot) const { return std::min(s_.width, w_.count[2] - begin_of(slot)); }
  int64_t live_images(int64_t slot) const { return std::min(s_.across, s_.images - image_of(slot)); }

  // ---- Copies of x.

  // A row of an image; null in the padding.
  const void* row_of(int64_t image, int64_t row) const {
    const int64_t z = image % w_.count[0] * w_.step[0] + w_.base[0];
    if (z < 0 || z >= w_.size[0] || row < 0 || row >= w_.size[1]) return nullptr;
    const int64_t pixel = ((image / w_.count[0] * w_.size[0] + z) * w_.size[1] + row) * w_.size[2];
    return static_cast<const char*>(c_.x) + pixel * c_.c_in * size_;
  }
  void copy_row(int64_t slot, int64_t s, int64_t residue, int64_t r, const Room& room) const {
    const int64_t y = (first_row_of(slot) + r) * w_.step[1] + w_.base[1] + residue;
    find_places(slot, y, room);
    for (int64_t block = 0; block < f_.groups * f_.blocks; ++block) {
      const int64_t first = block / f_.blocks * f_.cg + block % f_.blocks * kBlock, ins = f_.ins(block % f_.blocks);
      if (parts_ > 1) split_rows_of(slot, y, first, ins, room);
      for (int64_t x = 0; x < s_.copies; ++x) {
        Word* to = pairs_.data() + s * slot_ + block * block_;
        to += (s_.copy(residue, x) + r * s_.pitch / 2) * parts_ * kPair;
        pair_halves_512(room.places.data() + x * s_.pitch, parts_ > 1 ? 0 : first, s_.pitch / 2, parts_, ins, to);
      }
    }
  }
  // The address of the first channel of row y at every position, for each copy: in x, or in room.words, which receives
  // padded rows whose taps are joined, and split blocks of channels.
  void find_places(int64_t slot, int64_t y, const Room& room) const {
    std::fill_n(room.places.data(), s_.copies * s_.pitch, nullptr);
    for (int64_t i = 0; i < live_images(slot); ++i) {
      const auto* row = static_cast<const Word*>(row_of(image_of(slot) + i, y));
      if (!row) continue;
      Word* own = room.words.data() + i * row_words();
      if (f_.joined) pad_row(row, begin_of(slot), own);
      const Word* at = row_words() > 0 ? own : row;
      const int64_t pixel = parts_ > 1 ? parts_ * kBlock : c_.c_in;
      const int64_t first = first_column(slot), end = f_.joined ? INT64_MAX : end_column(slot);
      for (int64_t x = 0; x < s_.copies; ++x) {
        const int64_t* columns = columns_.data() + x * columns_of_copy() + begin_of(slot);
        const Word** places = room.places.data() + x * s_.pitch + i * (s_.width + s_.reach);
        for (int64_t k = 0; k < live_width(slot) + s_.reach; ++k) {
          if (columns[k] >= 0 && columns[k] < end) places[k] = at + (columns[k] - first) * pixel;
        }
      }
    }
  }
  // The first column in room.words, or in x itself.
  int64_t first_column(int64_t slot) const {
    const int64_t x = begin_of(slot) * w_.step[2];
    if (f_.joined) return x;
    return parts_ > 1 ? std::clamp<int64_t>(x + w_.base[2], 0, w_.size[2]) : 0;
  }
  // One past the last column that a tap reads.
  int64_t end_column(int64_t slot) const {
    const int64_t last = (begin_of(slot) + live_width(slot) - 1) * w_.step[2] + (w_.taps[2] - 1) * w_.tap_step[2];
    return std::min(w_.size[2], last + w_.base[2] + 1);
  }
  void split_rows_of(int64_t slot, int64_t y, int64_t first, int64_t ins, const Room& room) const {
    const int64_t begin = first_column(slot), end = end_column(slot);
    for (int64_t i = 0; i < live_images(slot); ++i) {
      const auto* from = static_cast<const float*>(row_of(image_of(slot) + i, y));
      if (!from) continue;
      from += begin * c_.c_in + first;
      Word* to = room.words.data() + i * row_words();
      for (int64_t k = begin; k < end; ++k, from += c_.c_in, to += parts_ * kBlock) {
        prefetch_range(from + kAheadPixels * c_.c_in, ins * 4);
        split_values(from, ins, to);
      }
    }
  }
  void pad_row(const Word* row, int64_t x, Word* to) const {
    const int64_t column = x * w_.step[2] + w_.base[2], before = std::max<int64_t>(0, -column);
    const int64_t inside = std::min(row_words() / c_.c_in, w_.size[2] - column) - before;
    clear(to, row_words());
    if (inside > 0) std::copy_n(row + (column + before) * c_.c_in, inside * c_.c_in, to + before * c_.c_in);
  }

  // ---- dy, transposed: [step][output channel][part][position].

  const GemmTile& tile_of(int64_t panel) const { return f_.outs(panel) > kHalf ? tile_ : low_tile_; }

  void transpose_panel(int64_t slot, int64_t s, int64_t index, const Room& room) const {
    const int64_t outs = f_.outs(index % f_.panels), step = parts_ * tile_of(index % f_.panels).mr * kStep;
    const int64_t first = index / f_.panels * f_.og + index % f_.panels * kBlock;
    find_positions(slot, first, room);
    Word* to = transposed_.data() + (s * f_.groups * f_.panels + index) * panel_;
    for (int64_t p = 0; p < s_.depth; p += kStep, to += step) {
      ask_for(room.places.data(), p + kAheadSteps * kStep, outs);
      parts_ > 1 ? transpose_floats(room.places.data() + p, outs, to)
                 : transpose_halves_512(room.places.data() + p, 0, outs, to);
    }
  }
  // The hardware does not prefetch rows that are far apart.
  void ask_for(const Word* const* places, int64_t first, int64_t outs) const {
    for (int64_t p = first; p < std::min(first + kStep, s_.depth); ++p) {
      if (places[p]) prefetch_range(places[p], outs * size_);
    }
  }
  // The addresses of channels from `first` on, at every position of a slot.
  void find_positions(int64_t slot, int64_t first, const Room& room) const {
    std::fill_n(room.places.data(), s_.depth, nullptr);
    const int64_t lines = std::min(s_.lines, w_.count[1] - first_row_of(slot));
    for (int64_t i = 0; i < live_images(slot); ++i) {
      for (int64_t y = 0; y < lines; ++y) {
        const int64_t line = (image_of(slot) + i) * w_.count[1] + first_row_of(slot) + y;
        const char* from = dy_ + ((line * w_.count[2] + begin_of(slot)) * c_.c_out + first) * size_;
        const Word** place = room.places.data() + y * s_.pitch + i * (s_.width + s_.reach);
        for (int64_t x = 0; x < live_width(slot); ++x, from += c_.c_out * size_) {
          place[x] = reinterpret_cast<const Word*>(from);
        }
      }
    }
  }
  static void transpose_floats(const Word* const* places, int64_t outs, Word* to) {
    alignas(64) float lines[kBlock * kStep];
    const void* at[kStep];
    for (int64_t i = 0; i < kStep; ++i) at[i] = places[i] ? static_cast<const void*>(places[i]) : kZeroLine;
    pack_words_512(at, kStep, outs * 4, 0, 0, lines);
    split_values(lines, outs * kStep, to);
  }

  // ---- Sums.

  void sum_tile(int64_t index, int64_t tap, int64_t slots, bool add) const {
    const int64_t panel = index % f_.panels, group = index / f_.panels / f_.blocks;
    const GemmTile& tile = tile_of(panel);
    float* to = sums_ + (index * f_.taps + tap) * kBlock * kBlock;
    for (int64_t s = 0; s < slots; ++s) {
      const Word* a = transposed_.data() + ((s * f_.groups + group) * f_.panels + panel) * panel_;
      const Word* b = pairs_.data() + s * slot_ + index / f_.panels * block_ + s_.tap(tap) * parts_ * kPair;
      if (f_.ins(index / f_.panels % f_.blocks) > kHalf) {
        tile.run(s_.depth / kStep, a, b, to, kBlock, add || s > 0);
      } else {
        run_narrow(tile.mr, a, b, to, add || s > 0);
      }
    }
  }

  // Up to 16 columns.
  void run_narrow(int64_t rows, const Word* a, const Word* b, float* to, bool add) const {
    const Piece all{s_.depth / kStep, 0};
    const int64_t row = parts_ * kStep * static_cast<int64_t>(sizeof(Word));
    const ConvTile tile{a, b, to, kBlock * static_cast<int64_t>(sizeof(float)), add, row, &all, 1, rows * row};
    amx_conv_tile(tile_.panel, rows > kHalf, false)(&tile);
  }

  const ConvCall& c_;
  const Window& w_;
  const Slots& s_;
  const SumsForm& f_;
  const char* dy_;
  int64_t size_;  // of a value
  const GemmTile &tile_, &low_tile_;
  int64_t parts_, together_;
  int64_t panel_, block_, slot_;  // words of copies: a panel of dy, a block of x, all blocks of a slot
  Workspace<Word> transposed_, pairs_;
  Workspace<int64_t> columns_;  // of x, for each copy and position; negative: padding
  float* sums_;
};

// The sums of a panel over all parts, as [output channel][tap][input channel]. Returns false if some are not finite.
bool finish_panel(const SumsForm& f, int64_t parts, float* sums, int64_t group, int64_t panel, WeightSums finish) {
  const int64_t depth = f.taps * f.cg, count = f.outs(panel);
  const Workspace<float> lines(count * depth);
  for (int64_t block = 0; block < f.blocks; ++block) {
    float* own = sums + f.at(group, block, panel);
    for (int64_t part = 1; part < parts; ++part) {
      for (int64_t i = 0; i < f.taps * kBlock * kBlock; ++i) own[i] += own[part * f.size + i];
    }
    const int64_t sizes[3] = {f.taps, count, f.ins(block)};
    copy_strided({own, DType::f32, {kBlock * kBlock, kBlock, 1}},
                 {lines.data() + block * kBlock, DType::f32, {f.cg, depth, 1}}, 3, sizes);
  }
  finish(group, panel * kBlock, count, lines.data());
  return all_finite(lines.data(), count * depth);
}

// Few sums of many positions: parts of fixed size, each by one thread from its own copies (16 threads, 16 images of 64
// channels on 56 x 56 positions: 1.0 ms, with shared copies 1.8). Too few parts would leave threads idle.
int64_t part_count(const Slots& s, const SumsForm& f, int64_t positions) {
  const int64_t parts = std::min({kMostParts, positions / kPartPositions, kPartSums / f.size, s.all});
  return parts >= kFewParts ? parts : 1;
}

}  // namespace

bool amx_weight_pays(const ConvCall& c, const Window& w) {
  if (size_of(c.dtype) > 4 || !c.channels_last || !has_amx(tiles_for(c, w))) return false;
  if (w.taps[0] != 1) return false;
  // With few channels or one tap, f32 loses more by incomplete tiles and by a copy for each tap than AMX gains.
  if (c.dtype == DType::f32 && (!splits_fast() || w.tap_count() == 1 || c.c_in / c.groups < kBlock)) return false;
  const int64_t positions = c.n * w.positions(), weights = c.c_out * (c.c_in / c.groups) * w.tap_count();
  if (w.tap_count() == 1) return c.groups == 1 && weights <= kFewWeights && positions >= kManyPositions;
  return positions >= kFewPositions || weights <= kManyWeights;
}

bool sum_amx(const ConvCall& c, const Window& w, const void* dy, WeightSums finish) {
  const SumsForm form(c, w);
  const Slots slots(c, w, form, parts_of(tiles_for(c, w)));
  const int64_t parts = part_count(slots, form, c.n * w.positions());
  const Workspace<float> sums(parts * form.size);
  if (parts == 1) {
    const int64_t together = std::min<int64_t>(slots.all, in_parallel_region() ? 1 : num_threads());
    WeightGradient(c, slots, form, together, dy, sums.data()).run(0, slots.all);
  } else {
    parallel_balanced(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const WeightGradient gradient(c, slots, form, 1, dy, sums.data() + part * form.size);
        gradient.run(slots.all * part / parts, slots.all * (part + 1) / parts);
      }
    });
  }
  std::atomic<bool> finite = true;
  parallel_for(0, form.groups * form.panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (!finish_panel(form, parts, sums.data(), i / form.panels, i % form.panels, finish)) finite = false;
    }
  });
  return finite;
}

#else

bool amx_weight_pays(const ConvCall&, const Window&) { return false; }
bool sum_amx(const ConvCall&, const Window&, const void*, WeightSums) { return false; }

#endif

}  // namespace deft::cpu::detail
