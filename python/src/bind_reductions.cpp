// Reductions and cumulative ops.
#include <cmath>

#include "bind_op.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

void bind_sums() {
#define DEFT_REDUCE(name)                                                                \
  bind(#name "(input, dim=None, keepdim=False, *, dtype=None)", kEverywhere,             \
       [](const Tensor& x, Dims dim, bool keepdim, std::optional<DType> dtype, Site s) { \
         if (dtype) return name(x, dim, keepdim, *dtype, s);                             \
         return dim.all && !keepdim ? name(x, s) : name(x, dim, keepdim, s);             \
       });
  DEFT_REDUCE(sum)
  DEFT_REDUCE(mean)
  DEFT_REDUCE(prod)
#undef DEFT_REDUCE
#define DEFT_REDUCE(name)                                     \
  bind(#name "(input, dim=None, keepdim=False)", kEverywhere, \
       [](const Tensor& x, Dims dim, bool keepdim, Site s) { return name(x, dim, keepdim, s); });
  DEFT_REDUCE(amax)
  DEFT_REDUCE(amin)
  DEFT_REDUCE(any)
  DEFT_REDUCE(all)
  DEFT_REDUCE(count_nonzero)
  DEFT_REDUCE(nansum)
#undef DEFT_REDUCE
  bind("logsumexp(input, dim, keepdim=False)", kEverywhere,
       [](const Tensor& x, Dims dim, bool keepdim, Site s) { return logsumexp(x, dim, keepdim, s); });
  bind("aminmax(input, *, dim=None, keepdim=False)", kEverywhere,
       [](const Tensor& x, Dims dim, bool keepdim, Site s) { return aminmax(x, dim, keepdim, s); });
}

// max(x) is a number, max(x, dim) is (values, indices), max(x, other) is elementwise.
template <class F, class G, class H>
Returns extreme(const Tensor& x, Object dim, bool keepdim, F&& whole, G&& along, H&& pairwise) {
  if (dim.p == Py_None) return {wrap(whole(x))};
  if (is_tensor(dim.p)) return {wrap(pairwise(x, tensor_of(dim.p)))};
  return {binding::give({}, Pair{along(x, to_int(dim.p), keepdim)})};
}

void bind_extremes() {
#define DEFT_EXTREME(name, pairwise)                                                                                  \
  bind(#name "(input, dim=None, keepdim=False)", kEverywhere, [](const Tensor& x, Object dim, bool keepdim, Site s) { \
    return extreme(                                                                                                   \
        x, dim, keepdim, [&](const Tensor& t) { return name(t, s); },                                                 \
        [&](const Tensor& t, int64_t d, bool k) { return name(t, d, k, s); },                                         \
        [&](const Tensor& t, const Tensor& o) { return pairwise(t, o, s); });                                         \
  });                                                                                                                 \
  bind("arg" #name "(input, dim=None, keepdim=False)", kEverywhere,                                                   \
       [](const Tensor& x, std::optional<int64_t> dim, bool keepdim, Site s) {                                        \
         return arg##name(x, dim, keepdim, s);                                                                        \
       });
  DEFT_EXTREME(max, maximum)
  DEFT_EXTREME(min, minimum)
#undef DEFT_EXTREME
  bind(
      "median(input, dim=None, keepdim=False)", kEverywhere,
      [](const Tensor& x, Object dim, bool keepdim, Site s) -> Returns {
        if (dim.p == Py_None) return {wrap(median(x, s))};
        return {binding::give({}, Pair{median(x, to_int(dim.p), keepdim, s)})};
      },
      "sort");
  bind(
      "quantile(input, q, dim=None, keepdim=False, *, interpolation='linear')", kEverywhere,
      [](const Tensor& x, Operand q, std::optional<int64_t> dim, bool keepdim, std::string interpolation, Site s) {
        static constexpr Choice<Interpolation> kKinds[] = {{"linear", Interpolation::linear},
                                                           {"lower", Interpolation::lower},
                                                           {"higher", Interpolation::higher},
                                                           {"midpoint", Interpolation::midpoint},
                                                           {"nearest", Interpolation::nearest}};
        Interpolation kind = choose(interpolation, kKinds);
        return q.tensor ? quantile(x, *q.tensor, dim, keepdim, kind, s)
                        : quantile(x, q.scalar.to_double(), dim, keepdim, kind, s);
      },
      "sort");
}

double correction_of(std::optional<bool> unbiased, std::optional<double> correction) {
  if (correction) return *correction;
  return unbiased.value_or(true) ? 1 : 0;
}

void bind_spread() {
#define DEFT_SPREAD(name)                                                                                          \
  bind(#name "(input, dim=None, unbiased=None, keepdim=False, *, correction=None)", kEverywhere,                   \
       [](const Tensor& x, Dims dim, std::optional<bool> unbiased, bool keepdim, std::optional<double> correction, \
          Site s) { return name(x, dim, correction_of(unbiased, correction), keepdim, s); });
  DEFT_SPREAD(var)
  DEFT_SPREAD(std)
  DEFT_SPREAD(var_mean)
#undef DEFT_SPREAD
  bind("norm(input, p='fro', dim=None, keepdim=False, dtype=None)", kEverywhere,
       [](const Tensor& x, Object p, Dims dim, bool keepdim, std::optional<DType> dtype, Site s) {
         double order = 2;
         if (!PyUnicode_Check(p.p) && p.p != Py_None) order = to_double(p.p);
         if (PyUnicode_Check(p.p) && to_text(p.p) != "fro")
           DEFT_FAIL(UnsupportedError, "norm: p='{}' is not supported; 'fro' and numbers are", to_text(p.p));
         return norm(dtype ? x.to(*dtype, s) : x, order, dim, keepdim, s);
       });
}

void bind_cumulative() {
  bind("cumsum(input, dim, *, dtype=None)", kEverywhere,
       [](const Tensor& x, int64_t dim, std::optional<DType> dtype, Site s) {
         return cumsum(dtype ? x.to(*dtype, s) : x, dim, s);
       });
  bind("cumprod(input, dim, *, dtype=None)", kEverywhere,
       [](const Tensor& x, int64_t dim, std::optional<DType> dtype, Site s) {
         return cumprod(dtype ? x.to(*dtype, s) : x, dim, s);
       });
  bind("diff(input, n=1, dim=-1)", kEverywhere,
       [](const Tensor& x, int64_t n, int64_t dim, Site s) { return diff(x, n, dim, s); });
#define DEFT_SOFT(name)                                                       \
  bind(#name "(input, dim, dtype=None)", kEverywhere | kFunctional,           \
       [](const Tensor& x, int64_t dim, std::optional<DType> dtype, Site s) { \
         return dtype ? name(x, dim, *dtype, s) : name(x, dim, s);            \
       });
  DEFT_SOFT(softmax)
  DEFT_SOFT(log_softmax)
#undef DEFT_SOFT
  bind("softmin(input, dim)", kFunctional, [](const Tensor& x, int64_t dim, Site s) { return softmin(x, dim, s); });
}

}  // namespace

void bind_reductions() {
  bind_sums();
  bind_extremes();
  bind_spread();
  bind_cumulative();
}

}  // namespace deft::python
