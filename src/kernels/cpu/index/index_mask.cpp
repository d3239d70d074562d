// Elements chosen by a condition: counted in blocks first, so that every block knows where it writes.
#include <algorithm>

#include "kernels/cpu/index/index.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kBlock = 16 * 1024;

template <class T>
inline bool is_set(T x) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    return (x.bits & 0x7fff) != 0;
  } else {
    return x != T(0);
  }
}

template <class T>
int64_t count_range(const T* x, const StridedWalk<1>& walk, int64_t begin, int64_t end) {
  int64_t count = 0;
  const int64_t step = walk.step(0);
  walk.runs(begin, end, [&](const int64_t* at, int64_t length) {
    const T* p = x + at[0];
    if (step == 1) {  // a loop the compiler makes vectors of
      for (int64_t i = 0; i < length; ++i) count += is_set(p[i]);
    } else {
      for (int64_t i = 0; i < length; ++i) count += is_set(p[i * step]);
    }
  });
  return count;
}

// Set elements before each block; the last entry is their total.
template <class T>
class BlockStarts {
 public:
  BlockStarts(const T* x, const Strided& s)
      : walk_(s.ndim, s.sizes, {s.strides}),
        blocks_((walk_.count() + kBlock - 1) / kBlock),
        heap_(blocks_ > 1 ? blocks_ + 1 : 0) {
    starts_ = blocks_ > 1 ? heap_.data() : few_;
    starts_[0] = 0;
    parallel_for(0, blocks_, 2, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) starts_[b + 1] = count_range(x, walk_, b * kBlock, block_end(b));
    });
    for (int64_t b = 0; b < blocks_; ++b) starts_[b + 1] += starts_[b];
  }
  int64_t block_end(int64_t b) const { return std::min(walk_.count(), (b + 1) * kBlock); }
  int64_t total() const { return blocks_ > 0 ? starts_[blocks_] : 0; }
  // f(first element, last element, set elements before).
  template <class F>
  void for_each_block(F f) const {
    parallel_for(0, blocks_, 2, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) f(b * kBlock, block_end(b), starts_[b]);
    });
  }

 private:
  StridedWalk<1> walk_;
  int64_t blocks_;
  Workspace<int64_t> heap_;
  int64_t few_[2];
  int64_t* starts_;
};

// Writes coordinates of rising positions; divides once for a line of the last dim.
class Coordinates {
 public:
  explicit Coordinates(const Strided& s) : ndim_(s.ndim), sizes_(s.sizes) {}
  int64_t* put(const int64_t* positions, int64_t count, int64_t* to) {
    if (ndim_ == 0) return to;
    const int last = ndim_ - 1;
    for (int64_t i = 0; i < count; ++i, to += ndim_) {
      if (positions[i] >= line_ + sizes_[last]) start_line(positions[i]);
      for (int d = 0; d < last; ++d) to[d] = outer_[d];
      to[last] = positions[i] - line_;
    }
    return to;
  }

 private:
  void start_line(int64_t position) {
    int64_t rest = position / sizes_[ndim_ - 1];
    line_ = rest * sizes_[ndim_ - 1];
    for (int d = ndim_ - 2; d >= 0; --d) {
      outer_[d] = rest % sizes_[d];
      rest /= sizes_[d];
    }
  }
  int ndim_;
  const int64_t* sizes_;
  int64_t line_ = 0, outer_[kMaxDims] = {};
};

template <class T>
void nonzero_typed(const T* x, const Strided& s, int64_t* out) {
  constexpr int64_t kAtOnce = 512;
  const BlockStarts<T> blocks(x, s);
  const StridedWalk<1> walk(s.ndim, s.sizes, {s.strides});
  const int64_t step = walk.step(0);
  blocks.for_each_block([&](int64_t begin, int64_t end, int64_t before) {
    int64_t* to = out + before * s.ndim;
    int64_t position = begin, found[kAtOnce];
    Coordinates coordinates(s);
    walk.runs(begin, end, [&](const int64_t* at, int64_t length) {
      for (int64_t i = 0; i < length;) {
        const int64_t stop = std::min(length, i + kAtOnce);
        int64_t count = 0;
        for (; i < stop; ++i) {  // without a branch, which would be wrong as often as right
          found[count] = position++;
          count += is_set(x[at[0] + i * step]);
        }
        to = coordinates.put(found, count, to);
      }
    });
  });
}

// Moves between packed and strided where the mask is set.
template <class F>
void masked(const bool* mask, const Strided& mask_s, const Strided& s, F move) {
  const BlockStarts<bool> blocks(mask, mask_s);
  const StridedWalk<2> walk(s.ndim, s.sizes, {s.strides, mask_s.strides});
  blocks.for_each_block([&](int64_t begin, int64_t end, int64_t packed) {
    walk.runs(begin, end, [&](const int64_t* at, int64_t length) {
      for (int64_t i = 0; i < length; ++i) {
        if (mask[at[1] + i * walk.step(1)]) move(at[0] + i * walk.step(0), packed++);
      }
    });
  });
}

}  // namespace

int64_t count_nonzero(DType dtype, const void* x, const Strided& x_s) {
  return dispatch_all(dtype, [&]<class T>() { return BlockStarts<T>(static_cast<const T*>(x), x_s).total(); });
}

void nonzero(DType dtype, const void* x, const Strided& x_s, int64_t* out) {
  dispatch_all(dtype, [&]<class T>() { nonzero_typed(static_cast<const T*>(x), x_s, out); });
}

void masked_select(DType dtype, const void* x, const Strided& x_s, const bool* mask, const Strided& mask_s, void* out) {
  dispatch_bits(dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(out);
    masked(mask, mask_s, x_s, [&](int64_t strided, int64_t packed) { to[packed] = from[strided]; });
  });
}

void masked_scatter(DType dtype, const void* values, const bool* mask, const Strided& mask_s, void* out,
                    const Strided& out_s) {
  dispatch_bits(dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(values);
    T* to = static_cast<T*>(out);
    masked(mask, mask_s, out_s, [&](int64_t strided, int64_t packed) { to[strided] = from[packed]; });
  });
}

}  // namespace deft::cpu
