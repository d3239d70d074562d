// Tile by tile: the tile of a transposed input is copied to a buffer that the formula reads as it reads other inputs.
// Element by element every read would touch another cache line (1024 x 1024 of f32: 11.8 ms, by tiles 1.3).
#include "kernels/cpu/elementwise/elementwise_transposed.h"

#include <algorithm>

#include "kernels/cpu/copy/transpose.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kRows = 32, kColumns = 128;  // of a tile
constexpr int64_t kLine = 64;                  // bytes
constexpr int64_t kLeast = 8, kLeastTotal = 4096;
constexpr int64_t kSlack = 64;  // transpose_block() may write a little beyond

class Transposed {
 public:
  Transposed(const ElementwiseCall& call, const Iteration& it) : call_(call), it_(it), inner_(it.ndim - 1) {
    if (it.total < kLeastTotal || it.ndim < 2 || it.inner() < kLeast) return;
    for (int i = 0; i < call.inputs; ++i) {
      const int64_t apart = it.strides[i + 1][inner_] * static_cast<int64_t>(size_of(call.in[i].dtype));
      for (int d = 0; d < inner_ && std::abs(apart) >= kLine; ++d) {
        if (it.strides[i + 1][d] != 1 || it.sizes[d] < kLeast || (found() && d != rows_)) continue;
        rows_ = d;
        transposed_[i] = true;
        bytes_ += tile_bytes(i);
      }
    }
  }
  bool found() const { return rows_ >= 0; }

  void run() const {
    const int64_t tiles = down() * across(), outer = it_.total / (it_.sizes[rows_] * it_.inner());
    parallel_for(0, outer * tiles, kElementGrain / (kRows * kColumns), [&](int64_t begin, int64_t end) {
      const Workspace<char> buffer(bytes_);
      for (int64_t task = begin; task < end; ++task) run_tile(task / tiles, task % tiles, buffer.data());
    });
  }

 private:
  int64_t down() const { return (it_.sizes[rows_] + kRows - 1) / kRows; }
  int64_t across() const { return (it_.inner() + kColumns - 1) / kColumns; }
  int64_t tile_bytes(int i) const {
    return kRows * kColumns * static_cast<int64_t>(size_of(call_.in[i].dtype)) + kSlack;
  }

  // Where a tile begins in an operand, in elements.
  int64_t offset(int operand, int64_t outer, int64_t row, int64_t column) const {
    const int64_t* strides = it_.strides[operand];
    int64_t at = row * strides[rows_] + column * strides[inner_];
    for (int d = inner_ - 1; d >= 0; --d) {
      if (d == rows_) continue;
      at += outer % it_.sizes[d] * strides[d];
      outer /= it_.sizes[d];
    }
    return at;
  }
  void place(Operand& o, int operand, int64_t outer, int64_t row, int64_t column) const {
    const int64_t bytes = offset(operand, outer, row, column) * static_cast<int64_t>(size_of(o.dtype));
    o.data = static_cast<char*>(o.data) + bytes;
    o.strides[0] = it_.strides[operand][rows_], o.strides[1] = it_.strides[operand][inner_];
  }

  void run_tile(int64_t outer, int64_t tile, char* buffer) const {
    const int64_t row = tile / across() * kRows, column = tile % across() * kColumns;
    ElementwiseCall part = call_;
    part.ndim = 2;
    part.sizes[0] = std::min(kRows, it_.sizes[rows_] - row);
    part.sizes[1] = std::min(kColumns, it_.inner() - column);
    place(part.out, 0, outer, row, column);
    for (int i = 0; i < call_.inputs; ++i) {
      Operand& in = part.in[i];
      place(in, i + 1, outer, row, column);
      if (!transposed_[i]) continue;
      const auto size = static_cast<int64_t>(size_of(in.dtype));
      transpose_block({static_cast<size_t>(size), static_cast<const char*>(in.data), size, in.strides[1] * size, buffer,
                       part.sizes[1] * size, part.sizes[0], part.sizes[1]});
      in.data = buffer;
      in.strides[0] = part.sizes[1], in.strides[1] = 1;
      buffer += tile_bytes(i);
    }
    elementwise(part);
  }

  const ElementwiseCall& call_;
  const Iteration& it_;
  const int inner_;
  int rows_ = -1;  // the dim along which transposed inputs are contiguous
  bool transposed_[kMaxInputs] = {};
  int64_t bytes_ = 0;
};

}  // namespace

bool run_transposed(const ElementwiseCall& call, const Iteration& it) {
  const Transposed transposed(call, it);
  if (transposed.found()) transposed.run();
  return transposed.found();
}

}  // namespace deft::cpu
