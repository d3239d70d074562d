// Shared by the parts of convolution: windows, which say what source values an output position reads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/conv/conv.h"
#include "kernels/cpu/workspace.h"

namespace deft::cpu::detail {

// Position j (per dim: j < count) reads, for tap t < taps, the source at j * step + base + t * tap_step where that lies
// in [0, size); else zero. The forward reads x this way; the input gradient reads dy this way, one residue class of
// input positions modulo the stride at a time, so that nothing is scattered and k is summed in one go.
struct Window {
  int64_t count[3], step[3], base[3], taps[3], tap_step[3], size[3];
  int64_t positions() const { return count[0] * count[1] * count[2]; }
  int64_t tap_count() const { return taps[0] * taps[1] * taps[2]; }
  int64_t source() const { return size[0] * size[1] * size[2]; }
  // Each position reads its own pixel and nothing else.
  bool pointwise() const {
    bool same = tap_count() == 1;
    for (int d = 0; d < 3; ++d) same = same && step[d] == 1 && base[d] == 0 && count[d] == size[d];
    return same;
  }
};

inline int64_t volume(const int64_t size[3]) { return size[0] * size[1] * size[2]; }

// The call with three spatial dims, ones in front, checked.
ConvCall normalized(const ConvCall& call, const char* op);
Window forward_window(const ConvCall& c);
Window pointwise_window(const int64_t size[3]);

// A residue class of input positions: input = start + j * step for the window's position j. Tap t of the window is
// kernel tap first + t * tap_skip.
struct Phase {
  Window window;
  int64_t start[3], step[3], first[3], tap_skip[3];
  bool dense() const { return step[0] == 1 && step[1] == 1 && step[2] == 1; }
};
// There are stride[d] residue classes per dim; r[d] selects one. Returns false when it holds no position.
bool input_phase(const ConvCall& c, const int64_t r[3], Phase& phase);

inline Phase whole_phase(const Window& w) { return {w, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}}; }

inline bool is_depthwise(const ConvCall& c) { return c.groups > 1 && c.groups == c.c_in && c.groups == c.c_out; }

// Calls f(n, z, y, x0, x1) for the rows that make up positions [q0, q1) of (n, position).
template <class F>
void for_each_run(const Window& w, int64_t q0, int64_t q1, F f) {
  int64_t x = q0 % w.count[2], rest = q0 / w.count[2];
  int64_t y = rest % w.count[1];
  rest /= w.count[1];
  int64_t z = rest % w.count[0], n = rest / w.count[0];
  for (int64_t q = q0; q < q1;) {
    const int64_t end = std::min(w.count[2], x + (q1 - q));
    f(n, z, y, x, end);
    q += end - x;
    x = 0;
    if (++y == w.count[1]) {
      y = 0;
      if (++z == w.count[0]) z = 0, ++n;
    }
  }
}

// Offset of each of positions [q0, q0 + count) of (n, position), in pixels of an image of `size`.
void place_positions(const Phase& p, const int64_t size[3], int64_t q0, int64_t count, int64_t* offsets);

struct Source {
  int64_t channels, all_channels;  // gathered; between two pixels (NHWC) or samples
  bool channels_last;
};

// im2col in NCHW: copies what positions [q0, q1) of the flattened (n, position) range read through rows [row0, row1) of
// (c, tap): out[(row - row0) * (q1 - q0) + q - q0]. `zero` is the padding's value. T: bits of the element's size.
template <class T>
void gather_rows(const Window& w, const Source& s, const T* x, int64_t q0, int64_t q1, int64_t row0, int64_t row1,
                 T* out, T zero = T());

// The im2col matrix of a window as a GEMM operand. It is (n, position) by (tap, channel) for NHWC, by (channel, tap)
// for NCHW; `lines` says which dim of it gives the operand's lines. With chunks, values are (chunk of channels, tap,
// channel of the chunk).
enum class Lines : uint8_t { positions, values };
class NhwcOperand final : public PanelSource {
 public:
  // zero: the value of the padding (the zero point of bytes). chunk: divides the channels; 0: all of them.
  NhwcOperand(const Window& w, const Source& s, DType dtype, const void* x, Lines lines, int zero = 0,
              int64_t chunk = 0);
  void pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
            int32_t* sums) const override;

 private:
  struct Pixel;
  void locate(int64_t q, int64_t count, Pixel* out) const;
  bool inside(const Pixel* pixels, int64_t count) const;
  void run_rows(int64_t run, const Pixel* pixels, int64_t count, bool all_inside, const char** rows, char* edges) const;
  void pack_positions(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k,
                      char* out) const;
  void pack_values(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, char* out) const;

  Window window_;
  DType dtype_;
  const char* x_;
  Lines lines_;
  int zero_;
  int64_t size_, pixel_bytes_;  // of a value; from one pixel to the next
  bool together_;               // taps along x are contiguous
  int64_t run_, run_taps_;      // contiguous values of a run; runs along x
  int64_t low_[3], high_[3];    // reach of the taps
  Workspace<char> outside_;     // a run of zeros
};

class NchwOperand final : public PanelSource {
 public:
  NchwOperand(const Window& w, const Source& s, DType dtype, const void* x, Lines lines, int zero = 0)
      : window_(w), source_(s), dtype_(dtype), x_(x), lines_(lines), zero_(zero) {}
  void pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
            int32_t* sums) const override;

 private:
  Window window_;
  Source source_;
  DType dtype_;
  const void* x_;
  Lines lines_;
  int zero_;
};

// The weight for the input gradient with stride 1, read in memory order: lines are input channels, k is (chunk of
// output channels, tap, output channel). What one panel reads of a chunk stays in L1.
class TapWeight final : public PanelSource {
 public:
  // w: of the group.
  TapWeight(DType dtype, const void* w, int64_t channels, int64_t taps, int64_t chunk)
      : dtype_(dtype), w_(w), channels_(channels), taps_(taps), chunk_(chunk) {}
  // Whether it is the fastest way; otherwise order_weight() is.
  static bool fits(const ConvCall& c, const GemmTile& tile);
  void pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
            int32_t* sums) const override;

 private:
  template <class T>
  void pack_panel(const T* w, int64_t width, int64_t live, int64_t k0, int64_t k, T* out) const;
  DType dtype_;
  const void* w_;
  int64_t channels_, taps_, chunk_;
};

// Whether panels of that side hold values of this type unchanged.
bool same_values(DType dtype, Panel panel, Side side);
// Whether the tile can run on padded rows of such values, or of such values split.
bool reads_copies(const GemmTile& tile, DType dtype);

// A weight whose k is (tap, channel), with zeros after each row of taps, or each tap, up to whole steps of the tile, as
// conv_amx.cpp reads it where channels are not whole steps.
class JoinedWeight final : public PanelSource {
 public:
  // The taps between zeros: those of a kernel row, or one. 0: the convolutions of this tile do not read this form.
  static int64_t taps_joined(const GemmTile& tile, DType dtype, int64_t channels, const int64_t taps[3]);
  // run: the values between zeros.
  JoinedWeight(const PanelSource& weight, const GemmTile& tile, int64_t run)
      : weight_(weight), run_(run), step_(tile.padded_k(run)) {}
  int64_t step() const { return step_; }  // from run to run
  void pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
            int32_t* sums) const override;

 private:
  const PanelSource& weight_;
  int64_t run_, step_;
};

// The weight with input channels innermost: out[place(g, o, tap) * cg + i].
using WeightPlace = FunctionRef<int64_t(int64_t g, int64_t o, int64_t t)>;
void order_weight(const ConvCall& c, DType dtype, const void* w, void* out, WeightPlace place);
// The inverse, for one output channel: to[i * taps + t] = from[t * channels + i]. T: bits of the element's size.
template <class T>
void join_taps(const T* from, int64_t taps, int64_t channels, T* to);

// Memory that is prefetched while tiles are summed, a part with each of `tiles` tiles.
struct ReadAhead {
  ReadAhead(const void* first, int64_t bytes, int64_t tiles)
      : at(static_cast<const char*>(first)), end(at + bytes), some(bytes / std::max<int64_t>(1, tiles) + 64) {}
  template <int kWrite>
  void fetch() {
    for (const char* to = std::min(end, at + some); at < to; at += 64) __builtin_prefetch(at, kWrite);
  }
  const char *at, *end;
  int64_t some;
};

inline const char* at(const void* p, int64_t count, DType dtype) {
  return static_cast<const char*>(p) + count * static_cast<int64_t>(size_of(dtype));
}
inline char* at(void* p, int64_t count, DType dtype) {
  return static_cast<char*>(p) + count * static_cast<int64_t>(size_of(dtype));
}

// A convolution as a GEMM: (positions x (taps * source channels)) * ((taps * source channels) x out channels). One
// group.
struct ConvPass {
  Phase phase;
  Source source;
  int64_t n;
  DType x_dtype = DType::f32, y_dtype = DType::f32;
  int64_t out_channels = 0, all_out_channels = 0;  // of the group; between two pixels (NHWC) or samples
  const void* x = nullptr;
  int x_zero = 0;
  // Lines: out channels; k: in the order of the source. Either in memory, or as an operand that packs itself, or
  // packed.
  StridedMatrix w{};
  const PanelSource* weight = nullptr;
  const PackedMatrix* packed = nullptr;
  int64_t chunk = 0;               // of source channels, see NhwcOperand
  const GemmTile* tile = nullptr;  // null: the best one
  void* y = nullptr;
  int64_t y_size[3] = {};
  Epilogue epilogue{};
};
void run_pass(const ConvPass& pass);
// The panel type of a pass with this many channels and taps, for an m x n result.
Panel pass_panel(DType dtype, int64_t m, int64_t n, int64_t channels, int64_t taps);
// The same on padded rows, for few output channels and long rows, see conv_lines.cpp. First ask whether it pays. p: the
// GEMM without a.
bool padded_rows_pay(const ConvPass& s);
void run_padded_rows(const ConvPass& s, const BlockedGemm& p);
// The same for 16-bit floats and bytes, see conv_amx.cpp.
bool has_amx(Panel panel);
bool amx_pays(const ConvPass& s);
void run_amx(const ConvPass& s, const BlockedGemm& p);
// Calls run(i) for i < count (groups, samples), in parallel if there are many.
void run_each(int64_t count, FunctionRef<void(int64_t)> run);

// The gradient of an input of few channels, see conv_scatter.cpp.
bool scatter_pays(const ConvCall& c);
void scatter_input(const ConvCall& c, const void* dy, void* dx);

// The gradient of narrow weights of several taps, see conv_weight_tn.cpp: sums of `parts` ranges of positions, [output
// channel][tap][input channel] each. First ask whether it pays.
bool weight_tn_pays(const ConvCall& c, const Window& w);
void sum_weight_tn(const ConvCall& c, const Window& w, int64_t parts, const float* dy, float* sums);

// The weight gradient on AMX tiles, see conv_amx_weight.cpp. finish(group, first, count, sums) gets the sums of some
// output channels of a group, [output channel][tap][input channel]; called from several threads. Returns false if some
// sums are not finite and must be computed in another way. First ask whether it pays.
using WeightSums = FunctionRef<void(int64_t group, int64_t first, int64_t count, const float* sums)>;
bool amx_weight_pays(const ConvCall& c, const Window& w);
bool sum_amx(const ConvCall& c, const Window& w, const void* dy, WeightSums finish);

// One filter per channel, no sum over channels. y[start + j * step] = sum_t x * w[t], then bias, residual, activation.
void depthwise(const Phase& p, const ConvCall& c, int64_t channels, const void* x, const void* w, void* y,
               const int64_t y_size[3]);
void depthwise_weight(const ConvCall& c, const void* dy, void* dw);
// The filters in the form of depthwise(), widened; NHWC: [tap][channel]. 0 bytes: used in place.
inline int64_t filter_row(int64_t channels) { return (channels + 15) / 16 * 16; }  // from tap to tap
int64_t filter_bytes(const ConvCall& c, int64_t channels, int64_t taps);
void arrange_filters(const ConvCall& c, int64_t channels, int64_t taps, const void* w, void* out);

// NCHW, see conv_depthwise_nchw.cpp. filters: of the accumulation type.
void depthwise_nchw(const Phase& p, const ConvCall& c, int64_t channels, const void* x, const void* filters, void* y,
                    const int64_t y_size[3]);
void depthwise_nchw_weight(const ConvCall& c, const void* dy, void* dw);

// Calls run(first sample, samples) for parts of a batch of n, which depend on sizes only: in parallel if there are
// many.
void for_each_part(int64_t n, int64_t part, FunctionRef<void(int64_t, int64_t)> run);

// Merging groups of few channels, see conv_merged.cpp: how many groups make one. 1: none are merged.
int64_t merged_groups(const ConvCall& c);
class MergedWeight {  // with zeros between groups; c.w itself where nothing is merged
 public:
  MergedWeight(const ConvCall& c, DType dtype);
  ConvCall call(const ConvCall& c) const;  // the call with merged groups

 private:
  int64_t together_;
  Workspace<char> own_;
  const void* data_;
};
void forward_merged(const ConvCall& c);
void input_merged(const ConvCall& c, const void* dy, void* dx);
void weight_merged(const ConvCall& c, const void* dy, void* dw);

// Copies in another layout or type, see conv_relayout.cpp. First ask. as_run() is the call in the fastest layout and
// type, which depend on dtype, channels, groups, kernel and layout only, as a packed weight does.
ConvCall as_run(const ConvCall& c);
class RunValues {  // n values converted to the type of the run
 public:
  RunValues(const void* given, DType dtype, DType run, int64_t n);  // null stays null
  const void* data() const { return data_; }

 private:
  Workspace<char> own_;
  const void* data_;
};
bool runs_copied(const ConvCall& c);
bool runs_copied_weight(const ConvCall& c);
void forward_copied(const ConvCall& c);
void input_copied(const ConvCall& c, const void* dy, void* dx);
void weight_copied(const ConvCall& c, const void* dy, void* dw);

// Groups of few channels, NHWC, see conv_groups.cpp. First ask whether it pays.
bool groups_pay(const ConvCall& c);
void run_groups(const ConvCall& c);
void run_groups_input(const ConvCall& c, const std::vector<Phase>& phases, const void* dy, void* dx);
void run_groups_weight(const ConvCall& c, const float* dy, float* dw);
int64_t group_filter_bytes(const ConvCall& c);
void arrange_group_filters(const ConvCall& c, const void* w, void* out);

// Winograd F(4 x 4, 3 x 3), see conv_winograd.cpp.
// A tile of the image: rows and columns [0, 6) of which [y0, y1) x [x0, x1) lie inside, rows `line` values apart.
struct InputTile {
  const float* at;  // of (0, 0); may lie outside
  int64_t y0, y1, x0, x1, line, pixel;
};
// Up to 4 x 4 output pixels.
struct OutputTile {
  float* at;
  const float* residual;
  int64_t rows, columns, line, pixel;
};
bool winograd_applies(const ConvCall& c);
const GemmTile& winograd_tile(const ConvCall& c);
void pack_winograd(const ConvCall& c, ConvWeight& out, const GemmTile& tile);
void winograd_forward(const ConvCall& c, const ConvWeight& w);

}  // namespace deft::cpu::detail
