#include "amp/autocast.h"

#include <array>

#include "base/check.h"
#include "core/core_ops.h"
#include "core/derived_cache.h"
#include "core/grad_mode.h"
#include "core/op.h"
#include "ops/binary.h"
#include "ops/copy.h"
#include "runtime/backend.h"
#include "runtime/cpu_isa.h"

namespace deft {

namespace {

constexpr bool is_low(DType t) { return t == DType::bf16 || t == DType::f16; }

AutocastChoice choose_for_cpu() {
  for (std::string_view feature : {"amx_bf16", "avx512_bf16", "bf16"})
    if (cpu_has(feature)) return {DType::bf16, fmt::format("this CPU multiplies bf16 ({})", feature)};
  return {DType::f32, "this CPU has no bf16 instructions (amx_bf16, avx512_bf16 or Arm's bf16), so f32 is the fastest"};
}

constinit thread_local AutocastReport* active_report = nullptr;

}  // namespace

AutocastChoice choose_autocast(Device device) {
  if (device.is_cpu()) return choose_for_cpu();
  DeviceProperties p = device_properties(device);
  return {p.major >= 8 ? DType::bf16 : DType::f16,
          fmt::format("{} has compute capability {}.{}, and bf16 matmuls start with 8.0", p.name, p.major, p.minor)};
}

AutocastGuard::AutocastGuard(DType dtype) : outer_bits_(context().bits & kAutocast), outer_dtype_(autocast_dtype()) {
  DEFT_CHECK(is_low(dtype) || dtype == DType::f32, DTypeError,
             "autocast: computes in bf16 or f16, or in f32 to turn it off; found {}", name_of(dtype));
  ExecContext& c = context();
  c.bits = (c.bits & ~kAutocast) | (is_low(dtype) ? uint32_t{kAutocast} : 0u);
  c.autocast_dtype = dtype;
}
AutocastGuard::AutocastGuard(Device device) : AutocastGuard(choose_autocast(device).dtype) {}
AutocastGuard::~AutocastGuard() {
  ExecContext& c = context();
  c.bits = (c.bits & ~kAutocast) | outer_bits_;
  c.autocast_dtype = outer_dtype_;
}

AutocastReport::AutocastReport() : outer_(active_report) { active_report = this; }
AutocastReport::~AutocastReport() { active_report = outer_; }

std::string AutocastReport::to_string() const {
  constexpr const char* kRow = "{:<28} {:>5} {:>8} {:>8} {:>12} {:>8}  {}\n";
  std::string text = fmt::format(fmt::runtime(kRow), "op", "type", "calls", "casts", "cast bytes", "cached", "why");
  for (const Row& r : rows_)
    text += fmt::format(fmt::runtime(kRow), r.op, name_of(r.dtype), r.calls, r.casts, r.cast_bytes, r.cached, r.why);
  return text;
}

namespace detail {

struct CastCounts {
  int64_t casts = 0, bytes = 0, cached = 0;
};

struct ReportAccess {
  static void add(AutocastReport* report, const OpInfo& info, Autocast policy, DType dtype, const CastCounts& counts) {
    for (; report; report = report->outer_) {
      AutocastReport::Row& row = find(report->rows_, info.name, dtype, why(policy));
      ++row.calls;
      row.casts += counts.casts;
      row.cast_bytes += counts.bytes;
      row.cached += counts.cached;
    }
  }

 private:
  static AutocastReport::Row& find(std::vector<AutocastReport::Row>& rows, const char* op, DType dtype,
                                   const char* why) {
    for (AutocastReport::Row& r : rows)
      if (r.op == op && r.dtype == dtype) return r;
    return rows.emplace_back(AutocastReport::Row{op, dtype, why});
  }
  static const char* why(Autocast policy) {
    switch (policy) {
      case Autocast::low:
        return "computes in low precision";
      case Autocast::fp32:
        return "needs the range of f32";
      case Autocast::promote:
        return "widest type of its inputs";
      case Autocast::none:
        break;
    }
    return "takes its inputs as they are";
  }
};

}  // namespace detail

namespace {

// Conversions and the op itself run with autocast off.
class AutocastOff {
 public:
  AutocastOff() { context().bits &= ~static_cast<uint32_t>(kAutocast); }
  ~AutocastOff() { context().bits |= kAutocast; }
};

// The type this op wants for a floating input of type t.
DType wanted(Autocast policy, DType t, DType low) {
  if (policy == Autocast::low && (t == DType::f32 || is_low(t))) return low;
  if (policy == Autocast::fp32 && is_low(t)) return DType::f32;
  return t;
}

Tensor convert(const Tensor& x, DType to, detail::CastCounts& counts, const Site& site) {
  ++counts.casts;
  counts.bytes += x.numel() * static_cast<int64_t>(size_of(to));
  return x.to(to, site);
}

// A right-hand side, which may be a weight: converted once while it stands and no gradients are wanted, so through all
// steps of an evaluation. With gradients on every use has a conversion of its own in the graph.
Tensor convert_weight(const Tensor& x, DType to, detail::CastCounts& counts, const Site& site) {
  if (context().bits & kCapture) return convert(x, to, counts, site);  // a capture wants to see it
  bool made_now = false;
  auto make = [&] {
    made_now = true;
    InferenceModeGuard normal(false);  // kept for calls in other modes
    NoGradGuard no_grad;
    auto kept = std::make_shared<const Tensor>(convert(x, to, counts, site));
    return Derived{kept, kept->numel() * static_cast<int64_t>(kept->element_size())};
  };
  DerivedForm form{DerivedKind::cast, {static_cast<int64_t>(to)}};
  std::shared_ptr<const void> kept = find_derived(x, form, make);
  if (!kept) return convert(x, to, counts, site);
  if (!made_now) ++counts.cached;
  return *static_cast<const Tensor*>(kept.get());
}

DType first_floating(const Tensor* const* inputs, int count) {
  for (int i = 0; i < count; ++i)
    if (inputs[i]->defined() && is_floating(inputs[i]->dtype())) return inputs[i]->dtype();
  return count && inputs[0]->defined() ? inputs[0]->dtype() : DType::f32;
}

}  // namespace

namespace {

// What 1 / x makes of a reciprocal needs the same range.
Autocast policy_of(const OpDef& def, const Tensor* const* inputs) {
  const bool of_number = &def == &op_def<Div> && inputs[0]->defined() && inputs[0]->meta().wrapped_number;
  return of_number ? Autocast::fp32 : def.info.autocast;
}

}  // namespace

void dispatch_autocast(const OpDef& def, const Tensor* const* inputs, int count, Tensor* outputs, void* params,
                       const Site& site) {
  DType low = autocast_dtype();
  Autocast policy = policy_of(def, inputs);
  AutocastOff off;
  detail::CastCounts counts;
  std::array<Tensor, kMaxUses> converted;
  std::array<const Tensor*, kMaxUses> used;
  // Ops that are cast have few inputs; lists of tensors are taken as they are.
  bool cast = (policy == Autocast::low || policy == Autocast::fp32) && count <= kMaxUses;
  for (int i = 0; cast && i < count; ++i) {
    size_t at = static_cast<size_t>(i);
    const Tensor& x = *inputs[i];
    used[at] = &x;
    if (!x.defined() || !is_floating(x.dtype()) || x.meta().wrapped_number) continue;
    DType to = wanted(policy, x.dtype(), low);
    if (to == x.dtype()) continue;
    converted[at] =
        i > 0 && policy == Autocast::low ? convert_weight(x, to, counts, site) : convert(x, to, counts, site);
    used[at] = &converted[at];
  }
  const Tensor* const* ready = cast ? used.data() : inputs;
  if (active_report) [[unlikely]]
    detail::ReportAccess::add(active_report, def.info, policy, first_floating(ready, count), counts);
  dispatch(def, ready, count, outputs, params, site);
}

}  // namespace deft
