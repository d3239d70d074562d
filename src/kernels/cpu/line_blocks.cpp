#include "kernels/cpu/line_blocks.h"

namespace deft::cpu::detail {

namespace {

int64_t size_in_bytes(const ConvPass& s) { return static_cast<int64_t>(size_of(s.x_dtype)); }

// Values that lie together whatever the window.
int64_t run_of(const ConvPass& s, const CopiedLines& lines, bool joined) {
  return joined ? lines.pixel() / size_in_bytes(s) : s.chunk > 0 ? s.chunk : s.source.channels;
}
int64_t depth(const ConvPass& s, const CopiedLines& lines, bool joined) {
  const Window& w = s.phase.window;
  return joined ? w.taps[1] * run_of(s, lines, true) : s.source.channels * w.tap_count();
}

}  // namespace

LineBlocks::LineBlocks(const ConvPass& s, const CopiedLines& lines, bool joined)
    : blocks_(depth(s, lines, joined) / s.tile->block_k + 1),
      pieces_(depth(s, lines, joined) / s.tile->block_k + 1 + depth(s, lines, joined) / run_of(s, lines, joined)) {
  const Window& w = s.phase.window;
  const int64_t length = run_of(s, lines, joined), taps_x = joined ? 1 : w.taps[2], taps = w.taps[1] * taps_x;
  const int64_t block_k = s.tile->block_k, step = s.tile->k_step, size = size_in_bytes(s);
  int64_t end = 0, pieces = 0;  // of the piece before; so far
  for (int64_t k = 0, count = 0; k < depth(s, lines, joined); k += count) {
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
