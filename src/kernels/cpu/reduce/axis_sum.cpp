#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce/axis_sum.cpp"
#include "hwy/foreach_target.h"
//
#include <optional>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/image/axis_map.h"
#include "kernels/cpu/norm/row-inl.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using detail::AxisSum;

constexpr int64_t kGrain = 16 * 1024;

template <class T>
struct Term {
  int64_t at;  // its first element
  T weight;
};

// to[i] = the sum of weight * from[at + i] over the terms.
template <class From, class To>
void sum_few(const From* from, const Term<accumulate_t<To>>* terms, int64_t count, int64_t n, To* to) {
  using T = accumulate_t<To>;
  for (int64_t i = 0; i < n; ++i) {
    T sum = 0;
    for (int64_t t = 0; t < count; ++t) sum += terms[t].weight * static_cast<T>(from[terms[t].at + i]);
    to[i] = static_cast<To>(sum);
  }
}
template <class From, class To>
DEFT_FLATTEN HWY_NOINLINE void sum_terms(const From* from, const Term<accumulate_t<To>>* terms, int64_t count,
                                         int64_t n, bool stream, To* to) {
  using V = RowVec<To>;
  constexpr int64_t kLanes = V::kLanes;
  auto step = [&]<int kVectors>(std::integral_constant<int, kVectors>, int64_t i) HWY_ATTR {
    V sums[kVectors];
    for (V& s : sums) s = V(0);
    for (int64_t t = 0; t < count; ++t) {
      const From* x = from + terms[t].at + i;
      const V weight(terms[t].weight);
      for (int k = 0; k < kVectors; ++k) sums[k] = fma(load_vec(x + k * kLanes), weight, sums[k]);
    }
    for (int k = 0; k < kVectors; ++k) {
      To* at = to + i + k * kLanes;
      stream ? stream_vec(sums[k], at) : store_vec(sums[k], at);
    }
  };
  if (n < kLanes) return sum_few(from, terms, count, n, to);
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) step(std::integral_constant<int, 4>(), i);
  for (; i + kLanes <= n; i += kLanes) step(std::integral_constant<int, 1>(), i);
  if (i < n) step(std::integral_constant<int, 1>(), n - kLanes);  // some elements twice
}

// Sums along x of cells that are smaller than a vector. A vector of results takes what it can of its terms from one
// vector of the line at a time.
template <class T>
class Lookups {
 public:
  static constexpr int64_t kLanes = Vec<T>::kLanes;
  Lookups(const AxisSum& x, int64_t inner) : x_(x), inner_(inner), n_(x.out() * inner) {
    for (int64_t i = 0; i < n_; i += kLanes) {
      add_terms(i, std::min(kLanes, n_ - i));
      ends_.push_back(terms_.size());
    }
  }
  // Reads up to a vector behind the line.
  template <class To>
  DEFT_FLATTEN HWY_NOINLINE void sum(const T* line, bool stream, To* to) const {
    const typename Vec<T>::D d;
    const Lanes* t = terms_.data();
    for (int64_t i = 0; i < n_; i += kLanes) {
      Vec<T> sum(0);
      for (const Lanes* end = terms_.data() + ends_[static_cast<size_t>(i / kLanes)]; t < end; ++t) {
        const auto found = hn::TableLookupLanes(hn::LoadU(d, line + t->at), hn::SetTableIndices(d, t->lane));
        const auto kept = hn::And(found, hn::BitCast(d, hn::LoadU(hn::RebindToSigned<decltype(d)>(), t->keep)));
        sum = fma(Vec<T>(kept), Vec<T>::load(t->weight), sum);
      }
      stream ? stream_vec(sum, to + i) : store_some(sum, to + i, n_ - i);
    }
  }

 private:
  using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  struct alignas(sizeof(T) * Vec<T>::kLanes) Lanes {
    T weight[kLanes];
    Index lane[kLanes], keep[kLanes];  // no lane is kept that has no term: a weight of zero makes NaN of infinity
    int64_t at;
  };

  void add_terms(int64_t first, int64_t count) {
    int64_t next[kLanes], end[kLanes], left = 0;
    for (int64_t l = 0; l < count; ++l) {
      next[l] = x_.begin((first + l) / inner_), end[l] = x_.end((first + l) / inner_);
      left += end[l] - next[l];
    }
    const auto source = [&](int64_t l) { return x_.index(next[l]) * inner_ + (first + l) % inner_; };
    while (left > 0) {
      Lanes& t = terms_.emplace_back();
      t.at = INT64_MAX;
      for (int64_t l = 0; l < count; ++l) {
        if (next[l] < end[l]) t.at = std::min(t.at, source(l));
      }
      for (int64_t l = 0; l < count; ++l) {
        if (next[l] == end[l] || source(l) - t.at >= kLanes) continue;
        t.lane[l] = static_cast<Index>(source(l) - t.at);
        t.keep[l] = -1;
        t.weight[l] = static_cast<T>(x_.weight(next[l]++));
        --left;
      }
    }
  }

  const AxisSum& x_;
  int64_t inner_, n_;
  std::vector<Lanes> terms_;
  std::vector<size_t> ends_;  // of the terms of each vector
};

// Lines of the result: rows combined along z and y first, then along x.
template <class S>
class LineSums {
 public:
  using T = accumulate_t<S>;
  LineSums(const AxisSum& z, const AxisSum& y, const AxisSum& x, int64_t inner, int64_t lines, S* to)
      : z_(z),
        y_(y),
        x_(x),
        inner_(inner),
        to_(to),
        width_(x.in() * inner),
        most_rows_(most_terms(z) * most_terms(y)),
        columns_(x.end(x.out() - 1)) {
    for (int64_t t = 0; t < x.end(x.out() - 1); ++t) columns_[t] = {x.index(t) * inner, static_cast<T>(x.weight(t))};
    const bool looks_up = inner < Lookups<T>::kLanes && lines >= kLeastLines;
    if (looks_up) lookups_.emplace(x, inner);
    stream_ = streams_rows(to, lines * (looks_up ? 1 : x.out()), (looks_up ? x.out() : 1) * inner);
  }
  void run(const S* from, int64_t begin, int64_t end) const {
    Workspace<T> line(width_ + Lookups<T>::kLanes);
    Workspace<Term<T>> rows(most_rows_);
    for (int64_t l = begin; l < end; ++l) {
      const int64_t y = l % y_.out(), z = l / y_.out() % z_.out(), plane = l / (y_.out() * z_.out());
      const int64_t count = fill_rows(z, y, rows.data());
      sum_terms(from + plane * z_.in() * y_.in() * width_, rows.data(), count, width_, false, line.data());
      sum_columns(line.data(), to_ + l * x_.out() * inner_);
    }
    if (stream_) end_stream();
  }

 private:
  static constexpr int64_t kLeastLines = 4;  // fewer are done before lookups are made

  static int64_t most_terms(const AxisSum& s) {
    int64_t most = 0;
    for (int64_t o = 0; o < s.out(); ++o) most = std::max(most, s.end(o) - s.begin(o));
    return most;
  }
  int64_t fill_rows(int64_t z, int64_t y, Term<T>* rows) const {
    int64_t count = 0;
    for (int64_t a = z_.begin(z); a < z_.end(z); ++a) {
      for (int64_t b = y_.begin(y); b < y_.end(y); ++b) {
        rows[count++] = {(z_.index(a) * y_.in() + y_.index(b)) * width_, static_cast<T>(z_.weight(a) * y_.weight(b))};
      }
    }
    return count;
  }
  void sum_columns(const T* line, S* to) const {
    if (lookups_) return lookups_->sum(line, stream_, to);
    for (int64_t o = 0; o < x_.out(); ++o) {
      const Term<T>* terms = columns_.data() + x_.begin(o);
      const int64_t count = x_.end(o) - x_.begin(o);
      S* cell = to + o * inner_;
      inner_ < Lookups<T>::kLanes ? sum_few(line, terms, count, inner_, cell)
                                  : sum_terms(line, terms, count, inner_, stream_, cell);
    }
  }

  const AxisSum &z_, &y_, &x_;
  int64_t inner_;
  S* to_;
  int64_t width_, most_rows_;
  Workspace<Term<T>> columns_;
  std::optional<Lookups<T>> lookups_;
  bool stream_;
};

void apply_sums_any(DType dtype, const AxisSum& z, const AxisSum& y, const AxisSum& x, int64_t outer, int64_t inner,
                    const void* from, void* to) {
  const int64_t lines = outer * z.out() * y.out();
  if (lines * x.out() * inner == 0) return;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, 2 * (x.in() + x.out()) * inner));
  dispatch_floating(dtype, [&]<class S>() {
    const LineSums<S> sums(z, y, x, inner, lines, static_cast<S*>(to));
    parallel_for(0, lines, grain,
                 [&](int64_t begin, int64_t end) { sums.run(static_cast<const S*>(from), begin, end); });
  });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {
HWY_EXPORT(apply_sums_any);

void apply_sums(DType dtype, const AxisSum& z, const AxisSum& y, const AxisSum& x, int64_t outer, int64_t inner,
                const void* from, void* to) {
  HWY_DYNAMIC_DISPATCH(apply_sums_any)(dtype, z, y, x, outer, inner, from, to);
}

}  // namespace deft::cpu::detail
#endif  // HWY_ONCE
