#include "kernels/cpu/conv/line_tiles.h"

namespace deft::cpu::detail {

namespace {

int64_t size_in_bytes(const ConvPass& s) { return size_of(s.tile->panel); }

// The contiguous values of any window.
int64_t run_of(const ConvPass& s, const PaddedRows& lines, TapLayout form) {
  if (form != TapLayout::whole) return lines.pixel() / size_in_bytes(s);
  return s.chunk > 0 ? s.chunk : s.source.channels;
}
int64_t depth(const ConvPass& s, const PaddedRows& lines, TapLayout form) {
  const Window& w = s.phase.window;
  if (form == TapLayout::whole) return s.source.channels * w.tap_count();
  return run_of(s, lines, form) * w.taps[1] * (form == TapLayout::joined ? 1 : w.taps[2]);
}

}  // namespace

ConvBlocks::ConvBlocks(const ConvPass& s, const PaddedRows& lines, TapLayout form)
    : blocks_(depth(s, lines, form) / s.tile->block_k + 1),
      pieces_(depth(s, lines, form) / s.tile->block_k + 1 + depth(s, lines, form) / run_of(s, lines, form)) {
  const Window& w = s.phase.window;
  const int64_t length = run_of(s, lines, form), taps_x = form == TapLayout::joined ? 1 : w.taps[2];
  const int64_t taps = w.taps[1] * taps_x;
  const int64_t block_k = s.tile->block_k, step = s.tile->k_step, size = size_in_bytes(s);
  int64_t end = 0, pieces = 0;  // end of the previous piece; pieces so far
  for (int64_t k = 0, count = 0; k < depth(s, lines, form); k += count) {
    const int64_t run = k / length, tap = run % taps;
    const int64_t at = lines.tap(tap / taps_x, tap % taps_x) + (run / taps * length + k % length) * size;
    count = std::min(length - k % length, block_k - k % block_k);
    const bool begins = k % block_k == 0;
    if (begins) blocks_[count_++] = {k, at, pieces, 0};
    if (!begins && at == end) {
      pieces_[pieces - 1].count += count / step;
    } else {
      if (!begins) pieces_[pieces - 1].skip = at - end;
      pieces_[pieces++] = {count / step, 0};
      ++blocks_[count_ - 1].count;
    }
    end = at + count * size;
  }
}

}  // namespace deft::cpu::detail
