#include "ops/packed_linear.h"

#include "base/check.h"
#include "core/derived_cache.h"
#include "core/describe.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/gemm_few_rows.h"
#include "kernels/cpu/gemm/gemv_panels.h"
#include "ops/activation.h"
#include "ops/binary.h"
#include "ops/dense.h"
#include "ops/matmul.h"
#include "ops/matmul_common.h"
#include "ops/unary.h"

namespace deft {

namespace {

// The same order in both.
static_assert(static_cast<int>(FusedActivation::tanh) == static_cast<int>(cpu::Activation::tanh));
static_assert(static_cast<int>(FusedActivation::gelu_tanh) == static_cast<int>(cpu::Activation::gelu_tanh));

cpu::Panel panel_of(const Tensor& weight, DType compute, int64_t rows) {
  const bool rounds = weight.dtype() == DType::f32 && compute == DType::bf16;
  return cpu::panel_for(rounds ? DType::bf16 : weight.dtype(), rows, weight.sizes()[0], weight.sizes()[1]);
}

Tensor apply(FusedActivation a, const Tensor& x) {
  switch (a) {
    case FusedActivation::none:
      return x;
    case FusedActivation::relu:
      return x.relu();
    case FusedActivation::gelu:
      return gelu(x);
    case FusedActivation::gelu_tanh:
      return gelu(x, GeluApproximation::tanh);
    case FusedActivation::silu:
      return silu(x);
    case FusedActivation::sigmoid:
      return x.sigmoid();
    case FusedActivation::tanh:
      return x.tanh();
  }
  return x;
}

void check_residual(const Meta& residual, const Meta& out) {
  DEFT_CHECK(residual.sizes == out.sizes && residual.dtype == out.dtype, ShapeError,
             "fused_linear: the residual is {}, expected the result's {}", describe(residual), describe(out));
}

}  // namespace

Meta FusedLinear::infer(const Meta& x, const Meta& weight, const Meta& bias, const Meta& residual, Params& p) {
  NoParams none;
  Meta out = Linear::infer(x, weight, bias, none);
  if (p.wide_result) {
    DEFT_CHECK(size_of(x.dtype) == 2, DTypeError,
               "fused_linear: found an input {}, expected a 16-bit one for a wider result", describe(x));
    DEFT_CHECK(x.device.is_cpu() || !residual.defined || p.activation == FusedActivation::none, ValueError,
               "fused_linear: found a residual and an activation of a wider result on {}, expected one of them there",
               to_string(x.device));
    out.dtype = DType::f32;
  }
  if (residual.defined) check_residual(residual, out);
  return out;
}

namespace {

std::shared_ptr<const cpu::PackedMatrix> kept_weight(const Tensor& x, const Tensor& weight, const Tensor& out) {
  Batches rows;
  auto g = linear_call<cpu::GemmCall>(x, weight, Tensor(), out, rows);
  fold(rows, g);
  return kept_right(weight, g);
}

std::shared_ptr<const cpu::GemvPanels> gemv_panels_of(const Tensor& weight) {
  const Meta& w = weight.meta();
  auto make = [&] {
    return std::make_shared<const cpu::GemvPanels>(static_cast<const float*>(weight.data_ptr()), w.sizes[0], w.sizes[1],
                                                   w.strides[0], w.strides[1]);
  };
  for (int sight = 0; sight < 2; ++sight) {
    auto found = find_derived(weight, {DerivedKind::gemv_panels}, [&] {
      auto made = make();
      return Derived{made, made->bytes()};
    });
    if (found) return std::static_pointer_cast<const cpu::GemvPanels>(found);
  }
  return make();  // no room is left: the same panels, so that the result is the same
}

void multiply_one_row(const KernelCall& c, const cpu::GemvPanels& panels) {
  auto values = [&](int i) { return c.has(i) ? static_cast<const float*>(c.in(i).data_ptr()) : nullptr; };
  cpu::multiply_row(values(0), panels, values(2), values(3),
                    static_cast<cpu::Activation>(c.params<FusedLinear>().activation),
                    static_cast<float*>(c.out().data_ptr()));
}
bool reads_panels(const KernelCall& c) {
  return c.params<FusedLinear>().one_row && FusedLinear::fits_one_row(c.in(0).meta(), c.in(1).meta()) &&
         (!c.has(2) || c.in(2).meta().contiguous) && (!c.has(3) || c.in(3).meta().contiguous) &&
         may_keep_derived(c.in(1));
}

}  // namespace

// Entries that the cache dropped are gone here too; those it still keeps may be of an older version.
PreparedKernel FusedLinear::prepare(const KernelCall& c) {
  if (!c.params<FusedLinear>().one_row || c.out().numel() == 0) return {};
  return [=, kept = std::weak_ptr<const cpu::GemvPanels>(), version = uint32_t{0}]() mutable {
    const uint32_t now = c.in(1).impl()->storage->current_version();
    auto panels = kept.lock();
    if (!panels || now != version) {
      KernelCall call = c;
      if (!reads_panels(c)) return FusedLinear::cpu(call);
      kept = panels = gemv_panels_of(c.in(1));
      version = now;
    }
    multiply_one_row(c, *panels);
  };
}

bool FusedLinear::fits_one_row(const Meta& x, const Meta& weight) {
  return x.dtype == DType::f32 && weight.dtype == DType::f32 && x.contiguous && x.numel == weight.sizes[1] &&
         x.numel > 0 && weight.numel <= cpu::kMostGemvValues;
}

void FusedLinear::cpu(KernelCall& c) {
  const Tensor &out = c.out(), &weight = c.in(1);
  if (out.meta().numel == 0) return;
  if (reads_panels(c)) return multiply_one_row(c, *gemv_panels_of(weight));
  const Params& params = c.params<FusedLinear>();
  const bool strided = params.wide_result && c.in(0).dim() == 2;  // gradients of weights read their inputs by columns
  const Tensor x = strided ? c.in(0) : as_dense(c.in(0)), bias = c.has(2) ? as_dense(c.in(2)) : Tensor();
  const Tensor residual = c.has(3) ? as_dense(c.in(3)) : Tensor();
  const cpu::StridedMatrix weight_matrix{weight.dtype(), weight.data_ptr(), weight.strides()[0], weight.strides()[1]};
  cpu::StridedMatrix rows{x.dtype(), x.data_ptr(), weight.sizes()[1], 1};
  if (strided) rows.line = x.strides()[0], rows.step = x.strides()[1];
  const cpu::StridedSource a(rows), b(weight_matrix);
  cpu::BlockedGemm p;
  p.n = weight.sizes()[0], p.k = weight.sizes()[1], p.m = out.meta().numel / p.n;
  const auto kept = params.packed ? nullptr : kept_weight(x, weight, out);
  p.packed_b = params.packed ? params.packed : kept.get();
  const cpu::Panel panel = p.packed_b ? p.packed_b->tile().panel : cpu::panel_for(weight.dtype(), p.m, p.n, p.k);
  p.tile = p.packed_b ? &cpu::tile_for_rows(p.packed_b->tile(), p.m) : &cpu::best_tile(panel, p.m, p.n);
  p.a = &a;
  if (!p.packed_b) p.b = &b;
  p.c = out.data_ptr(), p.c_dtype = out.dtype(), p.c_row = p.n;
  p.epilogue.activation = static_cast<cpu::Activation>(params.activation);
  if (bias.defined()) p.epilogue.bias = bias.data_ptr(), p.epilogue.bias_dtype = bias.dtype();
  if (residual.defined()) p.epilogue.residual = residual.data_ptr();
  // Few rows are bound by memory, which the weight as it lies is read from fastest; more than one of bf16 are not: 27
  // GB/s instead of 29 from panels.
  const bool rounds = size_of(panel) < static_cast<int64_t>(size_of(weight.dtype()));
  if (!rounds && !params.wide_result && p.m <= (weight.dtype() == DType::bf16 ? 1 : 3)) {
    if (cpu::run_dots(p, weight_matrix)) return;
    if (p.m == 1 && params.activation == FusedActivation::none && !residual.defined()) {
      Batches none;
      return cpu::gemm(linear_call<cpu::GemmCall>(x, weight, bias, out, none));
    }
  }
  cpu::run_blocked_gemm(p);
}

PackedLinear::PackedLinear(Tensor weight, Tensor bias, Site site)
    : PackedLinear(weight, std::move(bias), weight.defined() ? weight.dtype() : DType::f32, site) {}

PackedLinear::PackedLinear(Tensor weight, Tensor bias, DType compute, Site site)
    : weight_(std::move(weight)), bias_(std::move(bias)), compute_(compute) {
  SiteScope scope(site);
  detail::check_defined(weight_, "PackedLinear");
  DEFT_CHECK(weight_.dim() == 2, ShapeError, "PackedLinear: the weight must be [out, in], found shape {}",
             to_string(weight_.sizes()));
  DEFT_CHECK(is_floating(weight_.dtype()), DTypeError,
             "PackedLinear: does not take {} weights; convert the weight with to()", name_of(weight_.dtype()));
  DEFT_CHECK(compute == weight_.dtype() || (compute == DType::bf16 && weight_.dtype() == DType::f32), DTypeError,
             "PackedLinear: a {} weight cannot be computed in {}; give its own type, or bf16 for f32",
             name_of(weight_.dtype()), name_of(compute));
}
PackedLinear::~PackedLinear() = default;

std::shared_ptr<const cpu::PackedMatrix> PackedLinear::current(int64_t rows) const {
  const uint64_t stamp = weight_.is_inference() ? 0 : weight_.impl()->storage->stamp();
  const cpu::Panel panel = panel_of(weight_, compute_, rows);
  std::lock_guard lock(mutex_);
  Kept& kept = kept_[panel == cpu::Panel::split];
  if (kept.packed && stamp == kept.stamp) return kept.packed;
  const Shape& sizes = weight_.sizes();
  const cpu::GemmTile& tile = cpu::best_tile(panel, 0, sizes[0]);
  const cpu::StridedSource from({weight_.dtype(), weight_.data_ptr(), weight_.strides()[0], weight_.strides()[1]});
  kept = {std::make_shared<const cpu::PackedMatrix>(tile, cpu::Side::b, from, sizes[0], sizes[1]), stamp};
  return kept.packed;
}

int64_t PackedLinear::packed_bytes() const {
  std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const Kept& kept : kept_) sum += kept.packed ? kept.packed->bytes() : 0;
  return sum;
}

Tensor PackedLinear::operator()(const Tensor& x, FusedActivation activation, const Tensor& residual, Site site) const {
  if (!weight_.device().is_cpu()) {
    SiteScope scope(site);
    Tensor y = linear(x, weight_, bias_, site);
    if (residual.defined()) check_residual(residual.meta(), y.meta()), y = add(y, residual, site);
    return apply(activation, y);
  }
  if (context().bits & kCapture) {  // a plan may live longer than what is packed now
    const bool cast = context().bits & kAutocast && context().autocast_dtype != weight_.dtype();
    DEFT_CHECK(compute_ == weight_.dtype() && !cast, CaptureError,
               "capture: a PackedLinear of a {} weight that computes in another type ({}); call linear() instead",
               name_of(weight_.dtype()), to_string(site));
    return call<FusedLinear>(site, {activation}, x, weight_, bias_, residual);
  }
  const int64_t depth = std::max<int64_t>(1, weight_.sizes()[1]);
  const std::shared_ptr<const cpu::PackedMatrix> packed = current(x.defined() ? x.numel() / depth : 0);
  return call<FusedLinear>(site, {activation, packed.get()}, x, weight_, bias_, residual);
}

}  // namespace deft
