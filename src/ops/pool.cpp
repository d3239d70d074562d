#include "ops/pool.h"

#include "base/checked.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "kernels/cpu/pool/pool.h"
#include "ops/gather_scatter.h"
#include "ops/pool_common.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

using namespace pooling;

namespace {

Meta with_spatial(const Meta& x, const std::array<int64_t, 3>& spatial_sizes, DType dtype) {
  Shape sizes = x.sizes;
  for (int i = 2; i < x.rank(); ++i) sizes[i] = spatial_sizes[static_cast<size_t>(i - 2)];
  Meta m = Meta::dense(sizes, dtype, x.device);
  if (keeps_channels_last(x)) m.set_strides(channels_last_strides(sizes));
  return m;
}

// Fills p.in and p.out; x is N, C, spatial...
void complete(const char* op, const Meta& x, PoolParams& p) {
  DEFT_CHECK(p.spatial >= 1 && p.spatial <= 3, ValueError, "{}: found {} spatial dimensions, expected 1, 2 or 3", op,
             p.spatial);
  int n = static_cast<int>(p.spatial);
  Wide window = 1;  // elements of one
  DEFT_CHECK(x.rank() == n + 2, ShapeError, "{}{}d: needs {} or {} dimensions (N, C, spatial...), found shape {}", op,
             n, n + 1, n + 2, to_string(x.sizes));
  for (int i = 0; i < n; ++i) {
    auto d = static_cast<size_t>(i);
    int64_t in = p.in[d] = x.sizes[i + 2];
    if (p.adaptive) {
      DEFT_CHECK(p.out[d] >= 0, ValueError, "adaptive {}{}d: an output size must not be negative, found {}", op, n,
                 p.out[d]);
      DEFT_CHECK(in > 0 || p.out[d] == 0, ShapeError, "adaptive {}{}d: the spatial sizes of {} must not be empty", op,
                 n, to_string(x.sizes));
      continue;
    }
    auto sane = [](int64_t v) { return v > 0 && v <= INT32_MAX; };  // products of two still fit
    DEFT_CHECK(sane(p.kernel[d]) && sane(p.stride[d]) && sane(p.dilation[d]), ValueError,
               "{}{}d: kernel {}, stride {} and dilation {} must be positive (and below 2^31)", op, n, p.kernel[d],
               p.stride[d], p.dilation[d]);
    DEFT_CHECK(p.pad[d] >= 0 && p.pad[d] <= p.kernel[d] / 2, ValueError,
               "{}{}d: padding {} must be at most half the kernel {}", op, n, p.pad[d], p.kernel[d]);
    p.out[d] = cpu::pool_output_size(in, p.kernel[d], p.stride[d], p.pad[d], p.dilation[d], p.ceil_mode);
    DEFT_CHECK(p.out[d] > 0, ShapeError, "{}{}d: kernel {} does not fit into size {} of shape {}", op, n, p.kernel[d],
               in, to_string(x.sizes));
    window = checked_int64(window * p.kernel[d], op, "the number of elements of a window");
  }
}

}  // namespace

// --- max -------------------------------------------------------------------------------------------------------

std::array<Meta, 2> MaxPool::infer(const Meta& x, Params& p) {
  complete("max_pool", x, p);
  return {with_spatial(x, p.out, x.dtype),
          p.indices ? with_spatial(x, p.out, DType::i64) : Meta::dense({0}, DType::i64, x.device)};
}
void MaxPool::cpu(KernelCall& c) { max_forward<cpu::PoolCall>(c, c.params<MaxPool>(), cpu::max_pool_forward); }
void MaxPool::vjp(VjpContext& c) {
  if (c.grad().defined())
    c.grad_in(0) = call<MaxPoolBackward>(c.node.site, c.params<MaxPool>(), c.grad(), c.saved_output(1));
}

Meta MaxPoolBackward::infer(const Meta& g, const Meta& indices, const Params& p) {
  Meta like = g;
  like.set_strides(indices.strides);
  return with_spatial(like, p.in, g.dtype);
}
void MaxPoolBackward::cpu(KernelCall& c) {
  max_backward<cpu::PoolCall>(c, c.params<MaxPoolBackward>(), cpu::max_pool_backward);
}
void MaxPoolBackward::vjp(VjpContext& c) {
  Tensor indices = c.saved_input(1);
  Tensor flat = flatten(c.grad(), 2), at = flatten(indices, 2);
  Tensor nowhere = at < 0;  // windows without any input, between the taps of a dilated kernel
  Tensor g = masked_fill(gather(flat, 2, masked_fill(at, nowhere, 0)), nowhere, 0);
  c.grad_in(0) = g.reshape(indices.sizes());
}

// --- average ---------------------------------------------------------------------------------------------------

Meta AvgPool::infer(const Meta& x, Params& p) {
  DEFT_CHECK(p.divisor >= 0, ValueError, "avg_pool: divisor_override must be positive, found {}", p.divisor);
  complete("avg_pool", x, p);
  return with_spatial(x, p.out, x.dtype);
}
void AvgPool::cpu(KernelCall& c) { average<cpu::PoolCall>(c, c.params<AvgPool>(), cpu::avg_pool_forward); }
void AvgPool::vjp(VjpContext& c) { c.grad_in(0) = call<AvgPoolBackward>(c.node.site, c.params<AvgPool>(), c.grad()); }

Meta AvgPoolBackward::infer(const Meta& g, const Params& p) { return with_spatial(g, p.in, g.dtype); }
void AvgPoolBackward::cpu(KernelCall& c) {
  average<cpu::PoolCall>(c, c.params<AvgPoolBackward>(), cpu::avg_pool_backward);
}
void AvgPoolBackward::vjp(VjpContext& c) {
  c.grad_in(0) = call<AvgPool>(c.node.site, c.params<AvgPoolBackward>(), c.grad());
}

// --- functions -------------------------------------------------------------------------------------------------

namespace {

std::array<int64_t, 3> per_dim(IntList list, int n, int64_t fallback, const char* what) {
  std::array<int64_t, 3> r{fallback, fallback, fallback};
  DEFT_CHECK(list.size() == 1 || static_cast<int>(list.size()) == n, ValueError,
             "pooling: {} needs 1 or {} numbers, found {}", what, n, list.size());
  for (int i = 0; i < n; ++i) r[static_cast<size_t>(i)] = list[list.size() == 1 ? 0 : static_cast<size_t>(i)];
  return r;
}

PoolParams window(int n, IntList kernel, IntList stride, IntList padding, IntList dilation, bool ceil_mode) {
  PoolParams p;
  p.spatial = n;
  p.kernel = per_dim(kernel, n, 1, "the kernel");
  p.stride = stride.empty() ? p.kernel : per_dim(stride, n, 1, "the stride");
  p.pad = per_dim(padding, n, 0, "the padding");
  p.dilation = per_dim(dilation, n, 1, "the dilation");
  p.ceil_mode = ceil_mode;
  return p;
}

PoolParams adaptive(int n, IntList output) {
  PoolParams p;
  p.spatial = n;
  p.adaptive = true;
  p.out = per_dim(output, n, 1, "the output size");
  return p;
}

std::array<Tensor, 2> run_max(const Tensor& x, const PoolParams& p, const Site& site) {
  detail::check_defined(x, "max_pool");
  if (x.dim() != p.spatial + 1) return call<MaxPool>(site, p, x);
  SiteScope scope(site);
  auto [y, indices] = call<MaxPool>(site, p, unsqueeze(x, 0));
  return {squeeze(y, 0), p.indices ? squeeze(indices, 0) : indices};
}
// Only backward reads the indices.
Tensor run_max_values(const Tensor& x, PoolParams p, const Site& site) {
  detail::check_defined(x, "max_pool");
  p.indices = is_grad_enabled() && x.requires_grad();
  return run_max(x, p, site)[0];
}

Tensor run_avg(const Tensor& x, const PoolParams& p, const Site& site) {
  detail::check_defined(x, "avg_pool");
  if (x.dim() != p.spatial + 1) return call<AvgPool>(site, p, x);
  SiteScope scope(site);
  return squeeze(call<AvgPool>(site, p, unsqueeze(x, 0)), 0);
}

}  // namespace

#define DEFT_POOL(n)                                                                                                  \
  Tensor max_pool##n##d(const Tensor& x, IntList kernel, IntList stride, IntList padding, IntList dilation,           \
                        bool ceil_mode, Site site) {                                                                  \
    return run_max_values(x, window(n, kernel, stride, padding, dilation, ceil_mode), site);                          \
  }                                                                                                                   \
  std::array<Tensor, 2> max_pool##n##d_with_indices(const Tensor& x, IntList kernel, IntList stride, IntList padding, \
                                                    IntList dilation, bool ceil_mode, Site site) {                    \
    return run_max(x, window(n, kernel, stride, padding, dilation, ceil_mode), site);                                 \
  }                                                                                                                   \
  Tensor avg_pool##n##d(const Tensor& x, IntList kernel, IntList stride, IntList padding, bool ceil_mode,             \
                        bool count_include_pad, int64_t divisor_override, Site site) {                                \
    PoolParams p = window(n, kernel, stride, padding, {1}, ceil_mode);                                                \
    p.count_include_pad = count_include_pad;                                                                          \
    p.divisor = divisor_override;                                                                                     \
    return run_avg(x, p, site);                                                                                       \
  }                                                                                                                   \
  Tensor adaptive_avg_pool##n##d(const Tensor& x, IntList output, Site site) {                                        \
    return run_avg(x, adaptive(n, output), site);                                                                     \
  }                                                                                                                   \
  Tensor adaptive_max_pool##n##d(const Tensor& x, IntList output, Site site) {                                        \
    return run_max_values(x, adaptive(n, output), site);                                                              \
  }                                                                                                                   \
  std::array<Tensor, 2> adaptive_max_pool##n##d_with_indices(const Tensor& x, IntList output, Site site) {            \
    return run_max(x, adaptive(n, output), site);                                                                     \
  }
DEFT_POOL(1)
DEFT_POOL(2)
DEFT_POOL(3)
#undef DEFT_POOL

}  // namespace deft
