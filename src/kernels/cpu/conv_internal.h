// Between the parts of convolution: one description of "which source values does an output position read".
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/conv.h"
#include "kernels/cpu/gemm_internal.h"

namespace deft::cpu::detail {

// Position j (per dim: j < count) reads, for tap t < taps, the source at j * step + base + t * tap_step where that lies
// in [0, size); else zero. The forward reads x this way; the input gradient reads dy this way, one residue class of
// input positions modulo the stride at a time, so that nothing is scattered and k is summed in one go.
struct Window {
  int64_t count[3], step[3], base[3], taps[3], tap_step[3], size[3];
  int64_t positions() const { return count[0] * count[1] * count[2]; }
  int64_t tap_count() const { return taps[0] * taps[1] * taps[2]; }
  int64_t source() const { return size[0] * size[1] * size[2]; }
};

// The call with three spatial dims, ones in front, checked.
ConvCall normalized(const ConvCall& call, const char* op);
Window forward_window(const ConvCall& c);

// A residue class of input positions: input = start + j * step for the window's position j. Tap t of the window is
// kernel tap first + t * tap_skip.
struct Phase {
  Window window;
  int64_t start[3], step[3], first[3], tap_skip[3];
};
// Residue classes per dim are stride[d] many; r[d] chooses one. False when it holds no position.
bool input_phase(const ConvCall& c, const int64_t r[3], Phase& phase);

struct Source {
  int64_t channels, all_channels;  // gathered ones; those between two samples
  bool channels_last;
};

// Copies what positions [q0, q1) of the flattened (n, position) range read.
// Channels first: out[(c * taps + t) * (q1 - q0) + q - q0]; rows [row0, row1) of c * taps only.
template <class T, class Out>
void gather_rows(const Window& w, const Source& s, const T* x, int64_t q0, int64_t q1, int64_t row0, int64_t row1,
                 Out* out);
// Channels last: out[(q - q0) * taps * channels + t * channels + c].
template <class T, class Out>
void gather_pixels(const Window& w, const Source& s, const T* x, int64_t q0, int64_t q1, Out* out);
// Either, in parallel.
template <class T, class Out>
void gather(const Window& w, const Source& s, const T* x, int64_t q0, int64_t q1, Out* out);

// How many positions a tile holds so that `row` gathered values each stay within the workspace bound.
int64_t tile_positions(int64_t row, size_t value_size, int64_t positions);

// One filter per channel, no sum over channels. y[start + j * step] = sum_t x * w[t] + bias.
template <class T>
void depthwise(const Phase& p, const ConvCall& c, int64_t c_out, const T* x, int64_t c_src, const T* w, const T* bias,
               T* y, const int64_t y_size[3]);
template <class T>
void depthwise_weight(const ConvCall& c, const T* x, const T* dy, T* dw);

inline Phase whole_phase(const Window& w) { return {w, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}}; }

}  // namespace deft::cpu::detail
