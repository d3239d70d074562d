#include "kernels/cpu/index/index.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "base/check.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/reduce/row_sum.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kGrain = 32 * 1024;

// "3", or "(0, 2, 1)" for a row-major position in an index of several dims.
std::string position_name(const Strided& s, int64_t position) {
  if (s.ndim <= 1) return std::to_string(position);
  int64_t at[kMaxDims];
  for (int d = s.ndim - 1; d >= 0; --d) {
    at[d] = position % s.sizes[d];
    position /= s.sizes[d];
  }
  std::string text = "(";
  for (int d = 0; d < s.ndim; ++d) text += (d ? ", " : "") + std::to_string(at[d]);
  return text + ")";
}

[[noreturn, gnu::cold]] void throw_first_bad(const char* op, const int64_t* index, const Strided& s, int64_t low,
                                             int64_t size) {
  const StridedWalk<1> walk(s.ndim, s.sizes, {s.strides});
  int64_t position = 0, bad = -1, value = 0;
  walk.runs(0, walk.count(), [&](const int64_t* at, int64_t length) {
    for (int64_t i = 0; i < length; ++i, ++position) {
      const int64_t v = index[at[0] + i * walk.step(0)];
      if (bad < 0 && (v < low || v >= size)) bad = position, value = v;
    }
  });
  DEFT_FAIL(IndexError, "{}: found index {} at position {}, expected {} <= index < {}", op, value,
            position_name(s, bad), low, size);
}

template <class T>
inline T combine(Scatter op, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return op == Scatter::add || op == Scatter::max ? a || b : a && b;
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    switch (op) {
      case Scatter::add:
        return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      case Scatter::mul:
        return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
      case Scatter::min:
        return std::min(a, b);
      default:
        return std::max(a, b);
    }
  } else {
    const accumulate_t<T> x = a, y = b;
    switch (op) {
      case Scatter::add:
        return static_cast<T>(x + y);
      case Scatter::mul:
        return static_cast<T>(x * y);
      case Scatter::min:
        return x < y || x != x ? a : b;
      default:
        return x > y || x != x ? a : b;
    }
  }
}

template <class T>
struct ScatterPlan {
  T* out;
  const int64_t* index;
  const T* src;
  int64_t dim_count, dim_size;
  bool negative;                        // there may be indices from the end
  int64_t out_dim, index_dim, src_dim;  // strides along dim
  int64_t out_run, index_run, src_run;  // strides along a run of slices
};

template <class T>
inline constexpr bool kIsShort = std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;
constexpr int64_t kWideRow = 4096;

// Rows of 16-bit floats along dim: sums in f32, where converting whole rows pays.
template <class T>
void add_along_rows(const ScatterPlan<T>& p, const int64_t* at, int64_t length) {
  constexpr int64_t kBlock = 512;
  alignas(64) float sums[kWideRow], values[kBlock];
  const auto size = static_cast<size_t>(p.dim_size);
  for (int64_t slice = 0; slice < length; ++slice) {
    T* const out = p.out + at[0] + slice * p.out_run;
    const int64_t* const index = p.index + at[1] + slice * p.index_run;
    const T* const src = p.src + at[2] + slice * p.src_run;
    convert(out, dtype_of<T>, sums, DType::f32, size);
    for (int64_t i = 0; i < p.dim_count; i += kBlock) {
      const int64_t n = std::min(kBlock, p.dim_count - i);
      convert(src + i, dtype_of<T>, values, DType::f32, static_cast<size_t>(n));
      for (int64_t k = 0; k < n; ++k) sums[index[i + k]] += values[k];
    }
    convert(sums, DType::f32, out, dtype_of<T>, size);
  }
}

template <class T, Scatter op>
void combine_rows(T* out, const T* src, int64_t n) {
  if constexpr (op == Scatter::add && kIsShort<T>) {
    const int64_t first = 0;
    row_sum(dtype_of<T>)(src, 0, n, &first, &first + 1, out, true);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = op == Scatter::assign ? src[i] : combine<T>(op, out[i], src[i]);
  }
}

// 1-d slices along dim never meet in out, so they may run in parallel and in any order; within a slice order is kept.
template <class T, Scatter op>
void scatter_slices(const ScatterPlan<T>& p, const int64_t* at, int64_t length) {
  const auto one = [&](int64_t slice, int64_t i) {
    int64_t to = p.index[at[1] + slice * p.index_run + i * p.index_dim];
    if (to < 0) to += p.dim_size;
    T& out = p.out[at[0] + slice * p.out_run + to * p.out_dim];
    const T value = p.src[at[2] + slice * p.src_run + i * p.src_dim];
    out = op == Scatter::assign ? value : combine<T>(op, out, value);
  };
  if (p.index_run == 0 && p.out_run == 1 && p.src_run == 1) {  // whole rows
    for (int64_t i = 0; i < p.dim_count; ++i) {
      int64_t to = p.index[at[1] + i * p.index_dim];
      if (to < 0) to += p.dim_size;
      combine_rows<T, op>(p.out + at[0] + to * p.out_dim, p.src + at[2] + i * p.src_dim, length);
    }
  } else if (!p.negative && p.out_dim == 1 && p.index_dim == 1 && p.src_dim == 1) {  // along rows
    if constexpr (op == Scatter::add && kIsShort<T>) {
      if (p.dim_size <= std::min(kWideRow, 4 * p.dim_count)) return add_along_rows(p, at, length);
    }
    // Prefetches the next row of out: its writes are scattered, which no hardware prefetcher foresees.
    const int64_t row_bytes = p.dim_size * static_cast<int64_t>(sizeof(T));
    const bool ahead = row_bytes <= 16 * 1024 && p.dim_size <= 4 * p.dim_count;
    for (int64_t slice = 0; slice < length; ++slice) {
      T* const out = p.out + at[0] + slice * p.out_run;
      const int64_t* const index = p.index + at[1] + slice * p.index_run;
      const T* const src = p.src + at[2] + slice * p.src_run;
      if (ahead) prefetch_range(out + p.out_run, row_bytes);
      for (int64_t i = 0, count = p.dim_count; i < count; ++i) {
        out[index[i]] = op == Scatter::assign ? src[i] : combine<T>(op, out[index[i]], src[i]);
      }
    }
  } else if (std::abs(p.src_dim) < std::abs(p.src_run)) {
    for (int64_t slice = 0; slice < length; ++slice) {
      for (int64_t i = 0; i < p.dim_count; ++i) one(slice, i);
    }
  } else {
    for (int64_t i = 0; i < p.dim_count; ++i) {
      for (int64_t slice = 0; slice < length; ++slice) one(slice, i);
    }
  }
}

template <class T>
void scatter_typed(Scatter op, T* out, const Strided& out_s, int dim, const int64_t* index, const Strided& index_s,
                   bool negative, const T* src, const Strided& src_s) {
  if (index_s.ndim == 0) {  // scalars: one element, index 0
    *out = op == Scatter::assign ? *src : combine<T>(op, *out, *src);
    return;
  }
  int64_t sizes[kMaxDims];
  std::copy_n(index_s.sizes, index_s.ndim, sizes);
  sizes[dim] = 1;
  const StridedWalk<3> walk(index_s.ndim, sizes, {out_s.strides, index_s.strides, src_s.strides});
  const ScatterPlan<T> p{out,
                         index,
                         src,
                         index_s.sizes[dim],
                         out_s.sizes[dim],
                         negative,
                         out_s.strides[dim],
                         index_s.strides[dim],
                         src_s.strides[dim],
                         walk.step(0),
                         walk.step(1),
                         walk.step(2)};
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, p.dim_count));
  parallel_for(0, walk.count(), grain, [&](int64_t begin, int64_t end) {
    walk.runs(begin, end, [&](const int64_t* at, int64_t length) {
      switch (op) {
        case Scatter::assign:
          return scatter_slices<T, Scatter::assign>(p, at, length);
        case Scatter::add:
          return scatter_slices<T, Scatter::add>(p, at, length);
        case Scatter::mul:
          return scatter_slices<T, Scatter::mul>(p, at, length);
        case Scatter::min:
          return scatter_slices<T, Scatter::min>(p, at, length);
        case Scatter::max:
          return scatter_slices<T, Scatter::max>(p, at, length);
      }
    });
  });
}

// to[i] = from[i * from_step + which[i] * step], all in elements.
struct GatherSteps {
  int64_t from, which, to, step, size;
};
template <class T>
inline void gather_run(const T* from, const int64_t* which, T* to, int64_t length, const GatherSteps& steps) {
  const GatherSteps s = steps;
  const auto wrapped = [&](int64_t v) { return v < 0 ? v + s.size : v; };
  if (s.from == 0 && s.which == 1 && s.to == 1 && s.step == 1) {  // along rows, with half the instructions
    for (int64_t i = 0; i < length; ++i) to[i] = from[wrapped(which[i])];
  } else {
    for (int64_t i = 0; i < length; ++i) to[i * s.to] = from[i * s.from + wrapped(which[i * s.which]) * s.step];
  }
}

template <class T>
void gather_typed(const T* src, const Strided& src_s, int dim, const int64_t* index, const Strided& index_s, T* out,
                  const Strided& out_s) {
  int64_t strides[kMaxDims];
  std::copy_n(src_s.strides, src_s.ndim, strides);
  const int64_t step = src_s.ndim ? src_s.strides[dim] : 0, size = src_s.ndim ? src_s.sizes[dim] : 1;
  if (src_s.ndim) strides[dim] = 0;
  const StridedWalk<3> walk(index_s.ndim, index_s.sizes, {strides, index_s.strides, out_s.strides});
  const GatherSteps steps{walk.step(0), walk.step(1), walk.step(2), step, size};
  parallel_for(0, walk.count(), kGrain, [&](int64_t begin, int64_t end) {
    walk.runs(begin, end, [&](const int64_t* at, int64_t length) {
      gather_run(src + at[0], index + at[1], out + at[2], length, steps);
    });
  });
}

// The index of index_select and index_add as one of gather and scatter: the same along every other dim.
Strided spread(const Strided& like, int dim, int64_t step) {
  Strided s = like;
  std::fill_n(s.strides, s.ndim, int64_t{0});
  if (s.ndim) s.strides[dim] = step;
  return s;
}
Strided list_of(const Strided& like, int dim, int64_t step) {
  Strided s;
  s.ndim = 1;
  s.sizes[0] = like.ndim ? like.sizes[dim] : 1;
  s.strides[0] = step;
  return s;
}

// Whether dims after `dim` are one contiguous block.
bool block_after(const Strided& s, int dim, int64_t& block) {
  block = 1;
  for (int d = s.ndim - 1; d > dim; --d) {
    if (s.sizes[d] != 1 && s.strides[d] != block) return false;
    block *= s.sizes[d];
  }
  return true;
}

// index_select over whole blocks. Dims before `dim` are walked, one copy per index.
void select_blocks(DType dtype, const char* src, const Strided& src_s, int dim, const int64_t* index,
                   int64_t index_step, char* out, const Strided& out_s, int64_t block) {
  const int64_t size = static_cast<int64_t>(size_of(dtype)), count = out_s.sizes[dim];
  const StridedWalk<2> walk(dim, out_s.sizes, {src_s.strides, out_s.strides});
  parallel_for(0, walk.count() * count, std::max<int64_t>(1, kGrain / block), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end;) {
      const int64_t outer = p / count, i0 = p % count, i1 = std::min(count, i0 + end - p);
      walk.runs(outer, outer + 1, [&](const int64_t* at, int64_t) {
        for (int64_t i = i0; i < i1; ++i) {
          int64_t v = index[i * index_step];
          if (v < 0) v += src_s.sizes[dim];
          std::memcpy(out + (at[1] + i * out_s.strides[dim]) * size, src + (at[0] + v * src_s.strides[dim]) * size,
                      static_cast<size_t>(block * size));
        }
      });
      p += i1 - i0;
    }
  });
}

}  // namespace

void check_indices(const char* op, const int64_t* index, const Strided& index_s, int64_t size, bool allow_negative) {
  const StridedWalk<1> walk(index_s.ndim, index_s.sizes, {index_s.strides});
  const int64_t low = allow_negative ? -size : 0, step = walk.step(0);
  std::atomic<bool> bad{false};
  parallel_for(0, walk.count(), kGrain, [&](int64_t begin, int64_t end) {
    walk.runs(begin, end, [&](const int64_t* at, int64_t length) {
      const int64_t* p = index + at[0];
      bool wrong = false;
      if (step == 1) {
        wrong = any_outside(p, length, low, size);
      } else {
        for (int64_t i = 0; i < length; ++i) wrong |= p[i * step] < low || p[i * step] >= size;
      }
      if (wrong) bad.store(true, std::memory_order_relaxed);
    });
  });
  if (bad.load(std::memory_order_relaxed)) throw_first_bad(op, index, index_s, low, size);
}

void gather(DType dtype, const void* src, const Strided& src_s, int dim, const int64_t* index, const Strided& index_s,
            void* out, const Strided& out_s) {
  if (index_s.numel() == 0) return;
  check_indices("gather", index, index_s, src_s.ndim ? src_s.sizes[dim] : 1, false);
  dispatch_bits(dtype, [&]<class T>() {
    gather_typed(static_cast<const T*>(src), src_s, dim, index, index_s, static_cast<T*>(out), out_s);
  });
}

void scatter(const char* name, DType dtype, Scatter op, void* out, const Strided& out_s, int dim, const int64_t* index,
             const Strided& index_s, const void* src, const Strided& src_s) {
  if (index_s.numel() == 0) return;
  check_indices(name, index, index_s, out_s.ndim ? out_s.sizes[dim] : 1, false);
  dispatch_all(dtype, [&]<class T>() {
    scatter_typed(op, static_cast<T*>(out), out_s, dim, index, index_s, false, static_cast<const T*>(src), src_s);
  });
}

void index_select(DType dtype, const void* src, const Strided& src_s, int dim, const int64_t* index, int64_t index_step,
                  bool allow_negative, void* out, const Strided& out_s) {
  check_indices("index_select", index, list_of(out_s, dim, index_step), src_s.ndim ? src_s.sizes[dim] : 1,
                allow_negative);
  if (out_s.numel() == 0) return;
  int64_t block = 1, out_block = 1;
  if (src_s.ndim && block_after(src_s, dim, block) && block_after(out_s, dim, out_block) && block >= 8) {
    return select_blocks(dtype, static_cast<const char*>(src), src_s, dim, index, index_step, static_cast<char*>(out),
                         out_s, block);
  }
  dispatch_bits(dtype, [&]<class T>() {
    gather_typed(static_cast<const T*>(src), src_s, dim, index, spread(out_s, dim, index_step), static_cast<T*>(out),
                 out_s);
  });
}

void index_add(DType dtype, void* out, const Strided& out_s, int dim, const int64_t* index, int64_t index_step,
               bool allow_negative, const void* src, const Strided& src_s) {
  check_indices("index_add", index, list_of(src_s, dim, index_step), out_s.ndim ? out_s.sizes[dim] : 1, allow_negative);
  if (src_s.numel() == 0) return;
  dispatch_all(dtype, [&]<class T>() {
    scatter_typed(Scatter::add, static_cast<T*>(out), out_s, dim, index, spread(src_s, dim, index_step), allow_negative,
                  static_cast<const T*>(src), src_s);
  });
}

void index_copy(DType dtype, void* out, const Strided& out_s, int dim, const int64_t* index, int64_t index_step,
                bool allow_negative, const void* src, const Strided& src_s) {
  check_indices("index_copy", index, list_of(src_s, dim, index_step), out_s.ndim ? out_s.sizes[dim] : 1,
                allow_negative);
  if (src_s.numel() == 0) return;
  dispatch_bits(dtype, [&]<class T>() {
    scatter_typed(Scatter::assign, static_cast<T*>(out), out_s, dim, index, spread(src_s, dim, index_step),
                  allow_negative, static_cast<const T*>(src), src_s);
  });
}

void fold_index(int64_t* linear, const int64_t* index, const Strided& index_s, int64_t size) {
  const StridedWalk<1> walk(index_s.ndim, index_s.sizes, {index_s.strides});
  const int64_t step = walk.step(0);
  parallel_for(0, walk.count(), kGrain, [&](int64_t begin, int64_t end) {
    int64_t* to = linear + begin;
    walk.runs(begin, end, [&](const int64_t* at, int64_t length) {
      for (int64_t i = 0; i < length; ++i, ++to) {
        const int64_t v = index[at[0] + i * step];
        *to = *to * size + (v < 0 ? v + size : v);
      }
    });
  });
}

void index_offsets(const int64_t* linear, int64_t count, int ndim, const int64_t* sizes, const int64_t* strides,
                   int64_t* out) {
  parallel_for(0, count, kGrain / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = linear[i], at = 0;
      for (int d = ndim - 1; d >= 0; --d) {
        at += rest % sizes[d] * strides[d];
        rest /= sizes[d];
      }
      out[i] = at;
    }
  });
}

}  // namespace deft::cpu
