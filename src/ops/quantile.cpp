// median() and quantile(), made of sort().
#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "core/function.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/reduce.h"
#include "ops/sort.h"
#include "ops/ternary.h"
#include "ops/unary.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

namespace {

// Last in order where there is one: sort() puts NaN there.
Tensor last_of(const Tensor& sorted) { return sorted.narrow(-1, sorted.size(-1) - 1, 1); }

struct InOrder {
  Tensor values, indices;  // along the last dim
};
InOrder sorted_along(const Tensor& x, int64_t dim, const char* op) {
  int at = static_cast<int>(normalize_dim(dim, x.dim(), op));
  Tensor rows = x.dim() == 0 ? x.reshape({1}) : movedim(x, at, -1);
  DEFT_CHECK(rows.size(-1) > 0, ShapeError, "{}: dimension {} of {} is empty; there is nothing to choose from", op, at,
             describe(x.meta()));
  auto [values, indices] = sort(rows, -1);
  return {values, indices};
}

}  // namespace

std::array<Tensor, 2> median(const Tensor& x, int64_t dim, bool keepdim, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "median");
  DEFT_CHECK(x.dtype() != DType::boolean, DTypeError, "median: does not take bool; convert it with to()");
  auto [values, indices] = sorted_along(x, dim, "median");
  int64_t n = values.size(-1);
  Tensor places = full(Shape(values.narrow(-1, 0, 1).sizes()), (n - 1) / 2, {DType::i64, x.device()});
  if (is_floating(x.dtype())) {
    // The first NaN of each row.
    Tensor numbers = isnan(values.detach()).to(DType::i64).sum({-1}, true).neg().add(n);
    places = where(isnan(last_of(values.detach())), numbers, places);
  }
  auto chosen = [&](const Tensor& t) {
    Tensor one = gather(t, -1, places);
    if (x.dim() == 0) return one.reshape({});
    return keepdim ? movedim(one, -1, normalize_dim(dim, x.dim(), "median")) : one.squeeze(-1);
  };
  return {chosen(values), chosen(indices)};
}

namespace {

// The median of all elements. Equal ones share the gradient equally.
struct MedianOfAll : Function<MedianOfAll> {
  static Tensor forward(FunctionContext& ctx, const Tensor& flat) {
    Tensor middle = median(flat, 0)[0].clone();  // no view: those of no_grad cannot be written outside
    ctx.save_for_backward({where(isnan(middle), isnan(flat), eq(flat, middle))});
    return middle;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    Tensor chosen = ctx.saved()[0];
    return {where(chosen, grads[0] / chosen.to(grads[0].dtype()).sum(), 0)};
  }
};

}  // namespace

Tensor median(const Tensor& x, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "median");
  Tensor flat = x.reshape({-1});
  if (!is_floating(x.dtype())) return median(flat, 0)[0];
  if (flat.numel() == 0) return flat.sum() + NAN;  // part of the graph
  return MedianOfAll::apply(flat);
}

Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim, Interpolation interpolation,
                Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "quantile");
  detail::check_defined(q, "quantile");
  DEFT_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::f64, DTypeError,
             "quantile: needs an input of f32 or f64, found {}; convert it with to()", describe(x.meta()));
  DEFT_CHECK(q.dtype() == x.dtype(), DTypeError, "quantile: q is {}, the input {}; convert one of them with to()",
             name_of(q.dtype()), name_of(x.dtype()));
  DEFT_CHECK(q.dim() <= 1, ShapeError, "quantile: q must be a number or 1-d, found shape {}", to_string(q.sizes()));
  if (q.device().is_cpu() && !(context().bits & kCapture))
    DEFT_CHECK(all(logical_and(ge(q, 0), le(q, 1))).item<bool>(), ValueError, "quantile: q must lie in [0, 1]");
  Tensor values = sorted_along(dim ? x : x.reshape({-1}), dim.value_or(0), "quantile").values;

  Tensor places = q.detach().reshape({-1}) * (values.size(-1) - 1);
  if (interpolation == Interpolation::lower) places = floor(places);
  if (interpolation == Interpolation::higher) places = ceil(places);
  if (interpolation == Interpolation::nearest) places = round(places);
  Tensor below = floor(places);
  Tensor result = index_select(values, -1, below.to(DType::i64));
  if (interpolation == Interpolation::linear || interpolation == Interpolation::midpoint) {
    Tensor weight = interpolation == Interpolation::midpoint ? full_like(places, 0.5) : places - below;
    result = lerp(result, index_select(values, -1, ceil(places).to(DType::i64)), weight);
  }
  Tensor last = last_of(values);
  result = where(isnan(last.detach()), last, result);

  // [rows..., q] to [q, sizes with or without dim].
  result = movedim(result, -1, 0);
  Shape sizes;
  if (q.dim() == 1) sizes.push_back(q.numel());
  int at = dim ? static_cast<int>(normalize_dim(*dim, x.dim(), "quantile")) : -1;
  for (int i = 0; i < x.dim(); ++i) {
    bool reduced = !dim || i == at;
    if (!reduced || keepdim) sizes.push_back(reduced ? 1 : x.sizes()[i]);
  }
  return result.reshape(sizes);
}
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim, bool keepdim, Interpolation interpolation,
                Site site) {
  detail::check_defined(x, "quantile");
  DEFT_CHECK(q >= 0 && q <= 1, ValueError, "quantile: q must lie in [0, 1], found {}", q);
  return quantile(x, full({}, q, {is_floating(x.dtype()) ? x.dtype() : DType::f32, x.device()}), dim, keepdim,
                  interpolation, site);
}

// --- Tensor's methods ------------------------------------------------------------------------------------------

Tensor Tensor::median(Site site) const { return deft::median(*this, site); }
std::array<Tensor, 2> Tensor::median(int64_t dim, bool keepdim, Site site) const {
  return deft::median(*this, dim, keepdim, site);
}
Tensor Tensor::quantile(double q, std::optional<int64_t> dim, bool keepdim, Site site) const {
  return deft::quantile(*this, q, dim, keepdim, Interpolation::linear, site);
}
std::array<Tensor, 2> Tensor::sort(int64_t dim, bool descending, Site site) const {
  return deft::sort(*this, dim, descending, site);
}
Tensor Tensor::argsort(int64_t dim, bool descending, Site site) const {
  return deft::argsort(*this, dim, descending, site);
}
std::array<Tensor, 2> Tensor::topk(int64_t k, int64_t dim, bool largest, Site site) const {
  return deft::topk(*this, k, dim, largest, site);
}
std::array<Tensor, 3> Tensor::unique(Site site) const { return deft::unique(*this, site); }

}  // namespace deft
