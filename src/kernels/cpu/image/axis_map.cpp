#include "kernels/cpu/image/axis_map.h"

#include <algorithm>
#include <cstring>

#include "runtime/limits.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kGrain = 16 * 1024;

// A map cut into neighbours that stay neighbours (from < 0: the fill), or element by element where there are few.
class LineMap {
 public:
  LineMap(const int64_t* map, int64_t n) : map_(map), n_(n), runs_(n / kLeastRun + 1) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++count) {
      if (count > n / kLeastRun) return;
      int64_t length = 1;
      while (i + length < n && map[i + length] == (map[i] < 0 ? -1 : map[i] + length)) ++length;
      runs_[count] = {i, map[i], length};
      i += length;
    }
    count_ = count;
  }
  template <class T>
  void copy(const T* x, T fill, T* y) const {
    if (count_ == 0) {
      for (int64_t i = 0; i < n_; ++i) y[i] = map_[i] < 0 ? fill : x[map_[i]];
      return;
    }
    for (int64_t r = 0; r < count_; ++r) {
      const Run& run = runs_[r];
      if (run.from < 0) {
        for (int64_t i = 0; i < run.length; ++i) y[run.at + i] = fill;
      } else {
        std::memcpy(y + run.at, x + run.from, static_cast<size_t>(run.length) * sizeof(T));
      }
    }
  }

 private:
  static constexpr int64_t kLeastRun = 4;  // on average
  struct Run {
    int64_t at, from, length;
  };
  const int64_t* map_;
  int64_t n_, count_ = 0;
  Workspace<Run> runs_;
};

}  // namespace

AxisSum::AxisSum(const AxisSum& of, bool transposed)
    : AxisSum(transposed ? of.out_ : of.in_, transposed ? of.in_ : of.out_, of.count_) {
  count_ = of.count_;
  if (!transposed) {
    std::copy_n(of.start_.data(), of.out_ + 1, start_.data());
    std::copy_n(of.index_.data(), count_, index_.data());
    std::copy_n(of.weight_.data(), count_, weight_.data());
    return;
  }
  std::fill_n(start_.data(), out_ + 1, int64_t{0});
  for (int64_t t = 0; t < count_; ++t) ++start_[of.index_[t] + 1];
  for (int64_t o = 0; o < out_; ++o) start_[o + 1] += start_[o];
  Workspace<int64_t> next(out_);
  std::copy_n(start_.data(), out_, next.data());
  for (int64_t o = 0; o < of.out_; ++o) {
    for (int64_t t = of.begin(o); t < of.end(o); ++t) {
      const int64_t at = next[of.index_[t]]++;
      index_[at] = o;
      weight_[at] = of.weight_[t];
    }
  }
}

void map_copy(DType dtype, int ndim, const int64_t* in, const int64_t* out, const int64_t* const* maps,
              const void* fill, const void* x, void* y) {
  if (ndim == 0) return std::memcpy(y, x, size_of(dtype)), void();
  const int64_t width = out[ndim - 1];
  int64_t lines = 1;
  for (int d = 0; d + 1 < ndim; ++d) lines *= out[d];
  if (lines * width == 0) return;
  const LineMap line(maps[ndim - 1], width);
  dispatch_bits(dtype, [&]<class T>() {
    T value = 0;
    if (fill) std::memcpy(&value, fill, sizeof(T));
    parallel_for(0, lines, std::max<int64_t>(1, kGrain / width), [&](int64_t begin, int64_t end) {
      int64_t at[kMaxDims], rest = begin;
      for (int d = ndim - 2; d >= 0; --d) at[d] = rest % out[d], rest /= out[d];
      for (int64_t l = begin; l < end; ++l) {
        int64_t from = 0;
        bool inside = true;
        for (int d = 0; d + 1 < ndim; ++d) {
          const int64_t i = maps[d][at[d]];
          inside = inside && i >= 0;
          from = from * in[d] + i;
        }
        T* to = static_cast<T*>(y) + l * width;
        if (inside) {
          line.copy(static_cast<const T*>(x) + from * in[ndim - 1], value, to);
        } else {
          std::fill_n(to, width, value);
        }
        for (int d = ndim - 2; d >= 0 && ++at[d] == out[d]; --d) at[d] = 0;
      }
    });
  });
}

}  // namespace deft::cpu::detail
