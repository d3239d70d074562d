// multinomial(): indices drawn by weight.
#include <algorithm>

#include "base/check.h"
#include "core/describe.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/cumulative.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/sort.h"
#include "ops/unary.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

namespace {

// Each weight divided by an exponential number of its own: the largest win. A weight of 0 stays 0.
Tensor draw_apart(const Tensor& weights, int64_t count) {
  constexpr double kLeast = 1e-300;
  Tensor waits = clamp(-log1p(-rand_like(weights)), kLeast);
  return topk(weights / waits, count)[1];
}

// How many of the running sums a uniform number has passed.
Tensor draw_again(const Tensor& weights, int64_t count) {
  constexpr int64_t kAtOnce = 1 << 22;
  Tensor sums = cumsum(weights, -1);
  Tensor marks = (sums / sums.narrow(1, sums.size(1) - 1, 1)).unsqueeze(1);
  int64_t most = std::max<int64_t>(1, kAtOnce / std::max<int64_t>(1, weights.numel()));
  const auto draw = [&](int64_t n) {
    Tensor u = rand({weights.size(0), n, 1}, {weights.dtype(), weights.device()});
    return le(marks, u).sum({-1});
  };
  if (count <= most) return draw(count);
  Tensor drawn = empty({weights.size(0), count}, {DType::i64, weights.device()});  // or no memory, before any work
  for (int64_t at = 0; at < count && drawn.numel() > 0; at += most) {
    const int64_t n = std::min(most, count - at);
    drawn.narrow(1, at, n).copy_(draw(n));
  }
  return drawn;
}

}  // namespace

Tensor multinomial(const Tensor& weights, int64_t count, bool replacement, Site site) {
  SiteScope scope(site);
  detail::check_defined(weights, "multinomial");
  DEFT_CHECK(is_floating(weights.dtype()), DTypeError, "multinomial: needs floating weights, found {}",
             describe(weights.meta()));
  DEFT_CHECK((weights.dim() == 1 || weights.dim() == 2) && weights.size(-1) > 0, ShapeError,
             "multinomial: takes one row of weights or a matrix of them, found shape {}", to_string(weights.sizes()));
  int64_t choices = weights.size(-1);
  DEFT_CHECK(count > 0 && (replacement || count <= choices), ValueError,
             "multinomial: cannot draw {} of {} without replacement; draw at least 1, and at most all", count, choices);
  Tensor rows = weights.detach().to(DType::f64);
  if (weights.dim() == 1) rows = rows.unsqueeze(0);
  if (!(context().bits & kCapture)) {
    DEFT_CHECK(all(logical_and(isfinite(rows), ge(rows, 0))).item<bool>(), ValueError,
               "multinomial: the weights must be finite and not negative");
    DEFT_CHECK(all(gt(amax(rows, {1}), 0)).item<bool>(), ValueError,
               "multinomial: a row has no weight above 0; give at least one");
  }
  Tensor drawn = replacement ? draw_again(rows, count) : draw_apart(rows, count);
  return weights.dim() == 1 ? drawn.squeeze(0) : drawn;
}

Tensor Tensor::multinomial(int64_t count, bool replacement, Site site) const {
  return deft::multinomial(*this, count, replacement, site);
}

}  // namespace deft
