#include "ops/copy.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "core/describe.h"
#include "kernels/cpu/copy/copy.h"
#include "ops/cuda_ops.h"
#include "ops/operand.h"

namespace deft {

Meta Clone::infer(const Meta& x, const Params& p) {
  Meta m = Meta::dense(x.sizes, x.dtype, x.device);
  if (p.format == MemoryFormat::channels_last) m.set_strides(channels_last_strides(x.sizes));
  if (p.format == MemoryFormat::preserve && !x.contiguous && x.is_dense()) m.set_strides(x.strides);
  return m;
}
void Clone::cpu(KernelCall& c) { copy_values(c.in(), c.out()); }

Meta Cast::infer(const Meta& x, const Params& p) {
  Meta m = Meta::dense(x.sizes, p.dtype, x.device);
  if (!x.contiguous && x.is_dense()) m.set_strides(x.strides);
  return m;
}
void Cast::cpu(KernelCall& c) { copy_values(c.in(), c.out()); }

Meta CopyInto::infer(const Meta& x, const Meta& source, NoParams&) {
  DEFT_CHECK(source.defined, ValueError, "copy_: the source is an undefined tensor");
  Shape both = broadcast_shapes(x.sizes, source.sizes, "copy_");
  DEFT_CHECK(both == x.sizes, ShapeError, "copy_: a source of shape {} does not fit into {}", to_string(source.sizes),
             to_string(x.sizes));
  return x;
}
void CopyInto::cpu(KernelCall& c) { copy_values(c.in(1), c.out()); }

Meta Fill::infer(const Meta& x, const Params&) { return x; }
void Fill::cpu(KernelCall& c) {
  const Params& p = c.params<Fill>();
  fill_values(c.out(), p.is_integer ? Scalar(p.integer) : Scalar(p.number));
}

// As in PyTorch: floats are cut to whole numbers, -1 is the largest u8, and infinities are values of every float.
void check_fits(Scalar value, DType dtype, const char* op) {
  if (dtype == DType::boolean) return;
  bool fits = true;
  double number = value.to_double();
  dispatch_all(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
      fits = !std::isfinite(number) || std::abs(number) <= (std::is_same_v<T, Half> ? 65504.0 : 0x1.FEp127);
    } else if constexpr (std::is_floating_point_v<T>) {
      fits = !std::isfinite(number) || std::abs(number) <= std::numeric_limits<T>::max();
    } else if (value.is_floating()) {
      double beyond = std::ldexp(1.0, std::numeric_limits<T>::digits);
      fits = number < beyond && number >= static_cast<double>(std::numeric_limits<T>::lowest());
    } else {
      constexpr auto kLow = std::is_same_v<T, uint8_t> ? -255 : static_cast<int64_t>(std::numeric_limits<T>::lowest());
      fits = value.to_int64() >= kLow && value.to_int64() <= static_cast<int64_t>(std::numeric_limits<T>::max());
    }
  });
  DEFT_CHECK(fits, ValueError, "{}: {} does not fit into {}; use a value within its range or a wider type", op, number,
             name_of(dtype));
}

void fill_values(const Tensor& out, Scalar value) {
  const Meta& m = out.meta();
  check_fits(value, m.dtype, "fill");
  dispatch_all(m.dtype, [&]<class T>() {
    T v;
    if constexpr (std::is_same_v<T, bool>)
      v = value.to_bool();
    else if constexpr (std::is_integral_v<T>)
      v = static_cast<T>(value.to_int64());
    else if constexpr (std::is_same_v<T, double>)
      v = value.to_double();
    else
      v = static_cast<T>(static_cast<float>(value.to_double()));
    if (!m.device.is_cpu()) return cuda_ops.fill(out, &v);
    if (m.contiguous)
      cpu::fill(out.data_ptr(), m.dtype, m.numel, &v);
    else
      cpu::fill_strided(operand(out), m.rank(), m.sizes.data(), &v);
  });
}

void copy_values(const Tensor& from, const Tensor& to) {
  const Meta& m = to.meta();
  if (m.numel == 0) return;
  if (!m.device.is_cpu()) return cuda_ops.copy(from, to);
  cpu::copy_strided(operand_as(from, m.sizes), operand(to), m.rank(), m.sizes.data());
}

Tensor clone(const Tensor& x, MemoryFormat format, Site site) { return call<Clone>(site, {format}, x); }

Tensor Tensor::clone(MemoryFormat format, Site site) const { return call<Clone>(site, {format}, *this); }

Tensor Tensor::contiguous(MemoryFormat format, Site site) const {
  detail::check_defined(*this, "contiguous");
  if (format == MemoryFormat::preserve || is_contiguous(format)) return *this;
  return call<Clone>(site, {format}, *this);
}

Tensor Tensor::to(DType dtype, Site site) const {
  detail::check_defined(*this, "to");
  if (dtype == this->dtype()) return *this;
  return call<Cast>(site, {dtype}, *this);
}

Tensor& Tensor::copy_(const Tensor& source, Site site) {
  bool elsewhere = defined() && source.defined() && source.device() != device() && !source.meta().wrapped_number;
  return call_inplace<CopyInto>(site, {}, *this, elsewhere ? source.to(device(), site) : source);
}

Tensor& Tensor::fill_(Scalar value, Site site) {
  return call_inplace<Fill>(site, {value.to_double(), value.to_int64(), !value.is_floating()}, *this);
}
Tensor Tensor::type_as(const Tensor& other, Site site) const {
  detail::check_defined(*this, "type_as");
  detail::check_defined(other, "type_as");
  return to(other.device(), site).to(other.dtype(), site);
}
Tensor& Tensor::zero_(Site site) { return fill_(0, site); }

}  // namespace deft
