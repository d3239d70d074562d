// Gradients of weights on AMX tiles, of 16-bit floats and of f32 that is split in three of them: rows are input
// channels, columns output channels, and k runs over positions. Of x, images are copied turned, with their padding, a
// line of positions after another: every tap reads the copy at a place of its own, which a tile's rows may begin at,
// while pairs of dy's positions lie as tiles read columns. What tiles read between two lines meets zeros of dy.
#include <atomic>
#include <cstring>

#include "kernels/cpu/conv_internal.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/line_blocks.h"
#include "kernels/cpu/pack_split.h"
#include "kernels/cpu/tile_series.h"
#include "runtime/parallel.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deft::cpu::detail {

#if defined(__x86_64__)

namespace {

using Word = uint16_t;  // the bits of a bf16 or f16

constexpr int64_t kBlock = 32, kHalf = 16;  // rows and columns of a tile; half of either
constexpr int64_t kStep = 32;               // positions of a step
constexpr int64_t kPositions = 4096;        // at a time, for each lane; half as many of split values
constexpr int64_t kFewParts = 8, kMostParts = 16, kPartPositions = 3072, kPartSums = 2 << 20;  // part_count()
// Many weights of few positions are packed (512 channels, 8 x 7 x 7 positions: 6.8 ms, so 8.7).
constexpr int64_t kFewPositions = 1024, kManyWeights = 512 * 1024;
// Of one tap, turning x takes a good part of the time: only many positions of few channels pay.
constexpr int64_t kManyPositions = 4096;
constexpr int64_t kBlockBytes = kBlock * kBlock * static_cast<int64_t>(sizeof(float));

int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }
int64_t blocks_of(int64_t channels) { return (channels + kBlock - 1) / kBlock; }

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

// Where x's pixels go: rows by residues of the stride along y, columns by those along x, or once for each tap. A slot
// has some output lines of an image, at `pitch` positions from each other.
struct TurnedLines {
  // Slots are summed in parts, by so many lanes each.
  TurnedLines(const ConvCall& c, const Window& w, int64_t lanes = 1, int64_t parts_of_sums = 1)
      : window(w), by_tap(c.groups == 1 && c.c_in < kHalf) {
    int64_t reach[2];  // from the first tap to the last one
    for (int d = 0; d < 2; ++d) {
      residues[d] = std::min(w.step[d + 1], (w.taps[d + 1] - 1) * w.tap_step[d + 1] + 1);
      reach[d] = (w.taps[d + 1] - 1) * w.tap_step[d + 1] / w.step[d + 1];
    }
    if (by_tap) residues[1] = w.taps[2], reach[1] = 0;
    // The padding behind a line is that before the next one: columns [least, most) of some residue are not padding.
    int64_t least = INT64_MAX, most = w.count[2];
    for (int64_t r = 0; r < residues[1]; ++r) {
      least = std::min(least, first_inside(r)), most = std::max(most, end_inside(r));
    }
    pitch = round_up(std::max(most, w.count[2] + reach[1] - least), 2);
    const int64_t positions = c.dtype == DType::f32 ? kPositions / 2 : kPositions;
    lines = std::clamp<int64_t>(positions / pitch, 1, w.count[1]);
    parts = (w.count[1] + lines - 1) / lines;
    rows = lines + reach[0];
    depth = round_up(lines * pitch, kStep);
    all = c.n * w.count[0] * parts;
    slots = std::clamp<int64_t>(positions * lanes / depth, 1, (all + parts_of_sums - 1) / parts_of_sums);
    slot = rows * pitch;
    plane = slots * slot;
    // Rows of tiles at powers of two from each other would share few lines of the first cache level.
    const int64_t planes = residues[0] * (by_tap ? 1 : residues[1]);
    channel = (round_up(planes * plane, kStep) / kStep | 1) * kStep;
    unused = channel - planes * plane;
    copy = by_tap ? c.c_in * channel : plane;
  }
  // The first column of residue r; those that lie inside.
  int64_t column(int64_t r) const { return window.base[2] + (by_tap ? r * window.tap_step[2] : r); }
  int64_t first_inside(int64_t r) const {
    const int64_t first = (std::max<int64_t>(0, -column(r)) + window.step[2] - 1) / window.step[2];
    return by_tap ? std::min(first, window.count[2]) : first;
  }
  int64_t end_inside(int64_t r) const {
    const int64_t inside = std::max<int64_t>(0, window.size[2] - column(r));
    const int64_t end = (inside + window.step[2] - 1) / window.step[2];
    return std::max(first_inside(r), by_tap ? std::min(end, window.count[2]) : end);
  }
  // Where tap t, or row t of taps that have copies, begins to read.
  int64_t tap(int64_t t) const {
    const int64_t sy = window.step[1], sx = window.step[2];
    if (by_tap) return t * window.tap_step[1] % sy * plane + t * window.tap_step[1] / sy * pitch;
    const int64_t y = t / window.taps[2] * window.tap_step[1], x = t % window.taps[2] * window.tap_step[2];
    return (y % sy * residues[1] + x % sx) * plane + y / sy * pitch + x / sx;
  }
  const Window& window;
  bool by_tap;
  int64_t residues[2];           // along y and x, that are read
  int64_t pitch, lines, parts;   // positions of a line; lines of a slot; slots of an image
  int64_t rows, depth;           // of a slot: rows of x; positions as whole steps
  int64_t all, slots;            // slots; those at a time
  int64_t slot, plane, channel;  // values from one slot, residue and channel to the next,
  int64_t unused;                // at the end of a channel
  int64_t copy;                  // from one residue along x to the next
};

// Sums are [panel of output channels][block of input channels][tap][input channel][output channel]: panels and blocks
// of 32, channels of a group only. Taps along x that have copies count as input channels.
struct SumsForm {
  SumsForm(const ConvCall& c, const Window& w, bool by_tap)
      : groups(c.groups),
        cg(c.c_in / c.groups * (by_tap ? w.taps[2] : 1)),
        og(c.c_out / c.groups),
        taps(by_tap ? w.taps[1] : w.tap_count()),
        panels(c.groups * blocks_of(og)),
        panel(blocks_of(cg) * taps * kBlock * kBlock) {}
  int64_t group(int64_t p) const { return p / blocks_of(og); }
  int64_t first_out(int64_t p) const { return p % blocks_of(og) * kBlock; }
  int64_t outs(int64_t p) const { return std::min(kBlock, og - first_out(p)); }
  int64_t groups, cg, og, taps;
  int64_t panels, panel;  // how many; values of one
};

Panel tiles_for(const ConvCall& c, const Window& w) {
  return panel_for(c.dtype, c.c_out / c.groups, c.c_in / c.groups * w.tap_count(), c.n * w.positions());
}

// Sums over some slots.
class WeightGradient {
 public:
  WeightGradient(const ConvCall& c, const Window& w, const TurnedLines& lines, const SumsForm& form, const void* dy,
                 float* sums)
      : c_(c),
        w_(w),
        t_(lines),
        f_(form),
        x_(c.x),
        dy_(dy),
        tiles_(tiles_for(c, w)),
        parts_(tiles_ == Panel::split ? 3 : 1),
        panel_(parts_ * t_.slots * t_.depth * kBlock),
        whole_(parts_ > 1 ? turned_size() : 0),
        turned_(parts_ * turned_size()),
        pairs_(f_.panels * panel_),
        sums_(sums),
        pieces_(t_.slots) {
    // Beyond the slots of a channel tiles meet dy's zeros, too.
    for (int64_t part = 0; part < parts_; ++part) {
      Word* turned = turned_.data() + part * turned_size();
      for (int64_t i = 1; i <= f_.groups * f_.cg; ++i) clear(turned + i * t_.channel - t_.unused, t_.unused);
      clear(turned + f_.groups * f_.cg * t_.channel, t_.depth + t_.tap(f_.taps - 1));
    }
    for (int64_t s = 0; s < t_.slots; ++s) {
      pieces_[s] = {t_.depth / kStep, (t_.slot - t_.depth) * static_cast<int64_t>(sizeof(Word))};
    }
  }

  // Slots [begin, end). done(panel): its sums are made.
  void run(int64_t begin, int64_t end, FunctionRef<void(int64_t panel)> done) const {
    const int64_t lanes = in_parallel_region() ? 1 : num_threads();
    const bool by_panel = f_.panels >= 2 * lanes || lanes == 1;
    for (int64_t first = begin; first < end; first += t_.slots) {
      const int64_t count = std::min(t_.slots, end - first);
      // Tiles read a little beyond a slot: also of one that is not used.
      parallel_for(0, first == begin ? t_.slots : count, 1, [&](int64_t s0, int64_t s1) {
        for (int64_t s = s0; s < s1; ++s) {
          if (first == begin) clear_slot(s);
          if (s < count) enter(first + s, s);
        }
      });
      const bool last = first + count == end, add = first > begin;
      const int64_t tasks = by_panel ? f_.panels : f_.panels * blocks_of(f_.cg) * f_.taps;
      parallel_balanced(0, tasks, 1, [&](int64_t t0, int64_t t1) {
        const TileSeries series(gemm_tiles(tiles_)[0]);
        for (int64_t task = t0; task < t1; ++task) {
          by_panel ? sum_panel(task, count, add) : sum_block(task, count, add);
          if (by_panel && last) done(task);
        }
      });
    }
    if (by_panel) return;
    parallel_for(0, f_.panels, 1, [&](int64_t p0, int64_t p1) {
      for (int64_t p = p0; p < p1; ++p) done(p);
    });
  }

 private:
  // Tiles read beyond the last channel and the last position.
  int64_t turned_size() const { return (f_.groups * f_.cg + kBlock) * t_.channel + t_.depth + t_.tap(f_.taps - 1); }

  // ---- Copies.

  template <class T>
  static void clear(T* from, int64_t count) {
    std::memset(static_cast<void*>(from), 0, static_cast<size_t>(count) * sizeof(T));
  }
  Word* pairs(int64_t panel, int64_t s) const {
    return pairs_.data() + panel * panel_ + parts_ * s * t_.depth * kBlock;
  }
  // Calls f(where) for what a slot has of each channel and residue.
  template <class F>
  void for_each_plane(int64_t s, F f) const {
    const int64_t planes = (t_.channel - t_.unused) / t_.plane;
    for (int64_t i = 0; i < f_.groups * f_.cg * planes; ++i) {
      f(i / planes * t_.channel + i % planes * t_.plane + s * t_.slot);
    }
  }
  // The padding, which copies leave alone.
  void clear_slot(int64_t s) const {
    for_each_plane(s, [&](int64_t at) {
      if (parts_ > 1) clear(whole_.data() + at, t_.slot);
      for (int64_t part = 0; part < parts_; ++part) clear(turned_.data() + part * turned_size() + at, t_.slot);
    });
    for (int64_t panel = 0; panel < f_.panels; ++panel) clear(pairs(panel, s), parts_ * t_.depth * kBlock);
  }

  // Slot s gets what output lines [y0, y1) of an image read, and their dy.
  void enter(int64_t which, int64_t s) const {
    const int64_t image = which / t_.parts, y0 = which % t_.parts * t_.lines, y1 = std::min(y0 + t_.lines, w_.count[1]);
    const int64_t z = image % w_.count[0] * w_.step[0] + w_.base[0];
    const bool inside = z >= 0 && z < w_.size[0];
    const int64_t plane = (image / w_.count[0] * w_.size[0] + z) * w_.size[1] * w_.size[2] * c_.c_in;
    const int64_t pixels = (image * w_.count[1] + y0) * w_.count[2];
    if (parts_ > 1) {
      turn_planes(inside ? static_cast<const float*>(x_) + plane : nullptr, y0, whole_.data() + s * t_.slot);
      for_each_plane(s,
                     [&](int64_t at) { split_apart(whole_.data() + at, t_.slot, turned_.data() + at, turned_size()); });
      enter_pairs(static_cast<const float*>(dy_) + pixels * c_.c_out, s, y1 - y0);
    } else {
      turn_planes(inside ? static_cast<const Word*>(x_) + plane : nullptr, y0, turned_.data() + s * t_.slot);
      enter_pairs(static_cast<const Word*>(dy_) + pixels * c_.c_out, s, y1 - y0);
    }
  }

  // plane: null outside.
  template <class T>
  void turn_planes(const T* plane, int64_t y0, T* to) const {
    for (int64_t ry = 0; ry < t_.residues[0]; ++ry) {
      for (int64_t rx = 0; rx < t_.residues[1]; ++rx) {
        turn(plane, y0 * w_.step[1] + w_.base[1] + ry, rx,
             to + ry * (t_.by_tap ? 1 : t_.residues[1]) * t_.plane + rx * t_.copy);
      }
    }
  }
  // Lines of dy, of which so many are inside the image.
  template <class T>
  void enter_pairs(const T* dy, int64_t s, int64_t lines) const {
    for (int64_t panel = 0; panel < f_.panels; ++panel) {
      const T* from = dy + f_.group(panel) * f_.og + f_.first_out(panel);
      for (int64_t y = 0; y < t_.lines; ++y, from += w_.count[2] * c_.c_out) {
        pair(y < lines ? from : nullptr, f_.outs(panel), y * t_.pitch, pairs(panel, s));
      }
    }
  }

  // Rows from `row` on, at the stride's distance, and of them the columns of a residue. plane: null outside.
  template <class T>
  void turn(const T* plane, int64_t row, int64_t rx, T* to) const {
    const int64_t step = w_.step[1];
    const int64_t lo = plane ? std::min((std::max<int64_t>(0, -row) + step - 1) / step, t_.rows) : t_.rows;
    const int64_t hi = std::clamp((w_.size[1] - row + step - 1) / step, lo, t_.rows);
    for (int64_t c = 0; c < c_.c_in; ++c) {
      clear(to + c * t_.channel, lo * t_.pitch);
      clear(to + c * t_.channel + hi * t_.pitch, (t_.rows - hi) * t_.pitch);
    }
    const int64_t first = t_.first_inside(rx), columns = t_.end_inside(rx) - first;
    if (lo == hi || columns == 0) return;
    const int64_t sizes[3] = {hi - lo, c_.c_in, columns}, line = w_.size[2] * c_.c_in;
    const T* from = plane + (row + lo * step) * line + (t_.column(rx) + first * w_.step[2]) * c_.c_in;
    copy_strided({const_cast<T*>(from), c_.dtype, {step * line, 1, w_.step[2] * c_.c_in}},
                 {to + lo * t_.pitch + first, c_.dtype, {t_.pitch, t_.channel, 1}}, 3, sizes);
  }

  // A line of dy, which begins at some position of the slot: [pair of positions][channel][position of the pair]. from:
  // null for zeros.
  [[gnu::target("avx512bw")]] void pair(const Word* from, int64_t count, int64_t position, Word* slot) const {
    Word* to = slot + position * kBlock;
    if (!from) return clear(to, t_.pitch * kBlock);
    alignas(64) Word order[2][kBlock];
    for (Word i = 0; i < kBlock; ++i) {
      order[0][i] = static_cast<Word>(i / 2 + i % 2 * kBlock), order[1][i] = static_cast<Word>(order[0][i] + kHalf);
    }
    const __m512i low = _mm512_load_si512(order[0]), high = _mm512_load_si512(order[1]);
    const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
    for (int64_t x = 0; x < w_.count[2]; x += 2, from += 2 * c_.c_out, to += 2 * kBlock) {
      const __m512i a = _mm512_maskz_loadu_epi16(mask, from);
      const __m512i b = _mm512_maskz_loadu_epi16(x + 1 < w_.count[2] ? mask : 0, from + c_.c_out);
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
      _mm512_storeu_si512(to + kBlock, _mm512_permutex2var_epi16(a, high, b));
    }
  }

  // The same in steps of 32 positions, three parts each.
  void pair(const float* from, int64_t count, int64_t position, Word* slot) const {
    for (int64_t x = 0; x < w_.count[2]; x += 2) {
      const int64_t at = position + x;
      const float* first = from ? from + x * c_.c_out : nullptr;
      const float* second = from && x + 1 < w_.count[2] ? first + c_.c_out : nullptr;
      split_pair(first, second, count, slot + at / kStep * kStep * 3 * kBlock + at % kStep * kBlock);
    }
  }

  // ---- Sums.

  float* block(int64_t panel, int64_t i) const { return sums_ + panel * f_.panel + i * f_.taps * kBlock * kBlock; }
  void sum_panel(int64_t panel, int64_t slots, bool add) const {
    for (int64_t i = 0; i < blocks_of(f_.cg); ++i) {
      for (int64_t t = 0; t < f_.taps; ++t) sum_tile(panel, i, t, slots, add);
    }
  }
  void sum_block(int64_t task, int64_t slots, bool add) const {
    const int64_t t = task % f_.taps, block = task / f_.taps;
    sum_tile(block / blocks_of(f_.cg), block % blocks_of(f_.cg), t, slots, add);
  }
  void sum_tile(int64_t panel, int64_t i, int64_t tap, int64_t slots, bool add) const {
    const int64_t channel = f_.group(panel) * f_.cg + i * kBlock;
    const LinesTile tile{turned_.data() + channel * t_.channel + t_.tap(tap),
                         pairs(panel, 0),
                         block(panel, i) + tap * kBlock * kBlock,
                         kBlockBytes / kBlock,
                         add,
                         t_.channel * static_cast<int64_t>(sizeof(Word)),
                         pieces_.data(),
                         slots,
                         kStep * static_cast<int64_t>(sizeof(Word)),
                         nullptr,
                         turned_size() * static_cast<int64_t>(sizeof(Word))};
    amx_lines_tile(tiles_, f_.cg - i * kBlock > kHalf, f_.outs(panel) > kHalf)(&tile);
  }

  const ConvCall& c_;
  const Window& w_;
  const TurnedLines& t_;
  const SumsForm& f_;
  const void *x_, *dy_;
  Panel tiles_;
  int64_t parts_;           // of a value
  int64_t panel_;           // words of dy's copies for a panel
  Workspace<float> whole_;  // what is turned, before its values are split
  Workspace<Word> turned_, pairs_;
  float* sums_;
  Workspace<Piece> pieces_;
};

// The sums of a panel, of all parts, as [output channel][tap][input channel]. False: some are not finite.
bool finish_panel(const SumsForm& f, int64_t parts, float* sums, int64_t panel, WeightSums finish) {
  float* own = sums + panel * f.panel;
  for (int64_t part = 1; part < parts; ++part) {
    const float* other = own + part * f.panels * f.panel;
    for (int64_t i = 0; i < f.panel; ++i) own[i] += other[i];
  }
  const int64_t depth = f.taps * f.cg, count = f.outs(panel);
  const Workspace<float> lines(count * depth);
  for (int64_t i = 0; i < f.cg; i += kBlock) {
    const int64_t sizes[3] = {f.taps, std::min(kBlock, f.cg - i), count};
    copy_strided({own + i * f.taps * kBlock, DType::f32, {kBlock * kBlock, kBlock, 1}},
                 {lines.data() + i, DType::f32, {f.cg, 1, depth}}, 3, sizes);
  }
  finish(f.group(panel), f.first_out(panel), count, lines.data());
  return all_finite(lines.data(), count * depth);
}

// Few sums of many positions: parts of fixed size, each by one lane from copies of its own (16 threads, 16 images of 64
// channels on 56 x 56 positions: 1.0 ms, from shared copies 1.8). A few parts would leave lanes idle.
int64_t part_count(const TurnedLines& t, const SumsForm& f, int64_t positions) {
  const int64_t parts = std::min({kMostParts, positions / kPartPositions, kPartSums / (f.panels * f.panel), t.all});
  return parts >= kFewParts ? parts : 1;
}

}  // namespace

bool amx_weight_pays(const ConvCall& c, const Window& w) {
  if (size_of(c.dtype) > 4 || !c.channels_last || !has_amx(tiles_for(c, w))) return false;
  if (w.taps[0] != 1) return false;
  // Rows of f32 that begin anywhere load slowly, for six products: nothing is left of the gain where they are copied
  // for strides or few channels. (Of few steps at a time, which all taps read from the first cache level, it is
  // slower.)
  const bool strided = w.step[1] * w.step[2] > 1, few = c.c_in / c.groups < kBlock;
  if (c.dtype == DType::f32 && (!splits_fast() || w.tap_count() == 1 || strided || few)) return false;
  if (w.tap_count() == 1) return c.groups == 1 && 2 * c.c_in <= c.c_out && c.n * w.positions() >= kManyPositions;
  return c.n * w.positions() >= kFewPositions || c.c_out * (c.c_in / c.groups) * w.tap_count() <= kManyWeights;
}

bool sum_amx(const ConvCall& c, const Window& w, const void* dy, WeightSums finish) {
  const TurnedLines whole(c, w);
  const SumsForm form(c, w, whole.by_tap);
  const int64_t parts = part_count(whole, form, c.n * w.positions()), size = form.panels * form.panel;
  const Workspace<float> sums(parts * size);
  std::atomic<bool> finite = true;
  const auto end_panel = [&](int64_t panel) {
    if (!finish_panel(form, parts, sums.data(), panel, finish)) finite = false;
  };
  if (parts == 1) {
    const TurnedLines lines(c, w, num_threads());
    WeightGradient(c, w, lines, form, dy, sums.data()).run(0, lines.all, end_panel);
    return finite;
  }
  const TurnedLines lines(c, w, 1, parts);
  parallel_balanced(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const WeightGradient gradient(c, w, lines, form, dy, sums.data() + part * size);
      gradient.run(lines.all * part / parts, lines.all * (part + 1) / parts, [](int64_t) {});
    }
  });
  parallel_for(0, form.panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) end_panel(panel);
  });
  return finite;
}

#else

bool amx_weight_pays(const ConvCall&, const Window&) { return false; }
bool sum_amx(const ConvCall&, const Window&, const void*, WeightSums) { return false; }

#endif

}  // namespace deft::cpu::detail
