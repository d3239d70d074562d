#include "ops/creation.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "core/op.h"
#include "kernels/cpu/copy/copy.h"
#include "ops/cuda_ops.h"
#include "ops/operand.h"
#include "runtime/backend.h"
#include "runtime/context.h"

namespace deft {

namespace {

// Asking for gradients at creation is explicit: it holds under no_grad, and the tensor is a normal one.
Tensor finish(Tensor t, const TensorOptions& options, const Site& site) {
  if (options.requires_grad) {
    t.impl()->flags &= static_cast<uint8_t>(~kInferenceTensor);
    t.requires_grad_(true, site);
  }
  return t;
}

Tensor allocate(IntList sizes, const TensorOptions& options, const Site& site) {
  Tensor t(make_tensor(Meta::dense(Shape(sizes), options.dtype, options.device)));
  t.impl()->storage->name_maker("created", site);
  return t;
}

// A capture need not know of pointers to new memory.
class Uncaptured {
 public:
  Uncaptured() : bits_(context().bits & kCapture) { context().bits &= ~bits_; }
  ~Uncaptured() { context().bits |= bits_; }
  Uncaptured(const Uncaptured&) = delete;
  Uncaptured& operator=(const Uncaptured&) = delete;

 private:
  uint32_t bits_;
};

void fill_zeros(const Tensor& t) {
  if (!t.device().is_cpu()) {
    Uncaptured quiet;
    return cuda_ops.zero(t);
  }
  __builtin_memset(t.impl()->data, 0, static_cast<size_t>(t.numel()) * t.element_size());
}

void fill_new(const Tensor& t, Scalar value) {
  Uncaptured quiet;
  fill_values(t, value);
}

// Writes one value per element, given as double or int64.
template <class F>
void fill_with(Tensor& t, F&& value) {
  dispatch_all(t.dtype(), [&]<class T>() {
    T* p = static_cast<T*>(t.impl()->data);
    for (int64_t i = 0; i < t.numel(); ++i) {
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
        p[i] = T(static_cast<float>(value(i)));
      else
        p[i] = static_cast<T>(value(i));
    }
  });
}

}  // namespace

Tensor empty(IntList sizes, TensorOptions options, Site site) {
  return finish(allocate(sizes, options, site), options, site);
}

Tensor zeros(IntList sizes, TensorOptions options, Site site) {
  Tensor t = allocate(sizes, options, site);
  fill_zeros(t);
  return finish(t, options, site);
}

Tensor full(IntList sizes, Scalar value, TensorOptions options, Site site) {
  Tensor t = allocate(sizes, options, site);
  fill_new(t, value);
  return finish(t, options, site);
}

Tensor ones(IntList sizes, TensorOptions options, Site site) { return full(sizes, 1, options, site); }
Tensor scalar_tensor(Scalar value, TensorOptions options, Site site) { return full({}, value, options, site); }

Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options, Site site) {
  double a = start.to_double(), b = end.to_double(), s = step.to_double();
  DEFT_CHECK(s != 0 && std::isfinite(a) && std::isfinite(b) && std::isfinite(s), ValueError,
             "arange: start {}, end {} and step {} must be finite and the step not zero", a, b, s);
  DEFT_CHECK((b - a) * s >= 0, ValueError, "arange: a step of {} does not lead from {} to {}", s, a, b);
  bool integers = !start.is_floating() && !end.is_floating() && !step.is_floating();
  double count = std::ceil((b - a) / s);
  DEFT_CHECK(count < 0x1p53, ShapeError, "arange: {} elements are more than memory can hold", count);
  auto n = static_cast<int64_t>(count);
  if (integers) {  // a double does not count beyond 2^53
    __int128 span = static_cast<__int128>(end.to_int64()) - start.to_int64(), by = step.to_int64();
    n = static_cast<int64_t>((span + by + (by > 0 ? -1 : 1)) / by);
  }
  Tensor t = allocate({n}, options, site);
  if (!options.device.is_cpu()) {
    Uncaptured quiet;
    if (integers)
      cuda_ops.arange_whole(t, start.to_int64(), step.to_int64());
    else
      cuda_ops.arange(t, a, s);
    return finish(t, options, site);
  }
  constexpr double kExact = 0x1p53;
  if (integers && !(is_floating(t.dtype()) && std::abs(a) < kExact && std::abs(b) < kExact))
    fill_with(t, [first = static_cast<uint64_t>(start.to_int64()), by = static_cast<uint64_t>(step.to_int64())](
                     int64_t i) { return static_cast<int64_t>(first + static_cast<uint64_t>(i) * by); });
  else
    cpu::fill_sequence(t.impl()->data, t.dtype(), n, a, s, 0);
  return finish(t, options, site);
}
Tensor arange(Scalar start, Scalar end, Scalar step, Site site) {
  bool floating = start.is_floating() || end.is_floating() || step.is_floating();
  return arange(start, end, step, TensorOptions(floating ? DType::f32 : DType::i64), site);
}
Tensor arange(Scalar end, Site site) { return arange(0, end, 1, site); }

Tensor linspace(double start, double end, int64_t steps, TensorOptions options, Site site) {
  DEFT_CHECK(steps >= 0, ValueError, "linspace: the number of steps must not be negative, found {}", steps);
  Tensor t = allocate({steps}, options, site);
  double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  if (!options.device.is_cpu()) {
    Uncaptured quiet;
    cuda_ops.linspace(t, start, end, step);
    return finish(t, options, site);
  }
  // From both ends, so that the last value is exact.
  const int64_t middle = (steps + 1) / 2;
  char* second = static_cast<char*>(t.impl()->data) + static_cast<size_t>(middle) * t.element_size();
  cpu::fill_sequence(t.impl()->data, t.dtype(), middle, start, step, 0);
  cpu::fill_sequence(second, t.dtype(), steps - middle, end, step, middle - (steps - 1));
  return finish(t, options, site);
}

Tensor eye(int64_t n, int64_t m, TensorOptions options, Site site) {
  DEFT_CHECK(m >= -1, ShapeError, "eye: the number of columns must not be negative, found {}; -1 is as many as rows",
             m);
  if (m == -1) m = n;
  Tensor t = allocate({n, m}, options, site);
  if (!options.device.is_cpu()) {
    Uncaptured quiet;
    cuda_ops.eye(t);
    return finish(t, options, site);
  }
  fill_with(t, [&](int64_t i) { return i / m == i % m ? 1 : 0; });
  return finish(t, options, site);
}

Tensor empty_like(const Tensor& x, Site site) {
  detail::check_defined(x, "empty_like");
  Meta m = Meta::dense(x.sizes(), x.dtype(), x.device());
  if (!x.meta().contiguous && x.meta().is_dense()) m.set_strides(x.strides());
  Tensor t(make_tensor(m));
  t.impl()->storage->name_maker("created", site);
  return t;
}
Tensor full_like(const Tensor& x, Scalar value, Site site) {
  Tensor t = empty_like(x, site);
  fill_new(t, value);
  return t;
}
Tensor zeros_like(const Tensor& x, Site site) {
  Tensor t = empty_like(x, site);
  fill_zeros(t);
  return t;
}
Tensor ones_like(const Tensor& x, Site site) { return full_like(x, 1, site); }

namespace {
TensorOptions like(const Tensor& t, const std::optional<TensorOptions>& options, const char* op) {
  detail::check_defined(t, op);
  return options.value_or(TensorOptions(t.dtype(), t.device()));
}
}  // namespace
Tensor Tensor::new_empty(IntList sizes, std::optional<TensorOptions> options, Site site) const {
  return deft::empty(sizes, like(*this, options, "new_empty"), site);
}
Tensor Tensor::new_zeros(IntList sizes, std::optional<TensorOptions> options, Site site) const {
  return deft::zeros(sizes, like(*this, options, "new_zeros"), site);
}
Tensor Tensor::new_ones(IntList sizes, std::optional<TensorOptions> options, Site site) const {
  return deft::ones(sizes, like(*this, options, "new_ones"), site);
}
Tensor Tensor::new_full(IntList sizes, Scalar value, std::optional<TensorOptions> options, Site site) const {
  return deft::full(sizes, value, like(*this, options, "new_full"), site);
}

template <class T>
Tensor tensor(const std::vector<T>& values, TensorOptions options, Site site) {
  if (!options.device.is_cpu()) require_backend(options.device, "tensor");
  Tensor t = allocate({static_cast<int64_t>(values.size())}, TensorOptions(options.dtype), site);
  fill_with(t, [&](int64_t i) { return values[static_cast<size_t>(i)]; });
  if (!options.device.is_cpu()) t = t.to(options.device, site);
  return finish(t, options, site);
}
template Tensor tensor(const std::vector<float>&, TensorOptions, Site);
template Tensor tensor(const std::vector<double>&, TensorOptions, Site);
template Tensor tensor(const std::vector<int32_t>&, TensorOptions, Site);
template Tensor tensor(const std::vector<int64_t>&, TensorOptions, Site);
template Tensor tensor(const std::vector<int8_t>&, TensorOptions, Site);
template Tensor tensor(const std::vector<uint8_t>&, TensorOptions, Site);
template Tensor tensor(const std::vector<bool>&, TensorOptions, Site);

Tensor from_blob(void* data, IntList sizes, TensorOptions options, IntList strides, std::function<void()> on_free,
                 Site site) {
  if (!options.device.is_cpu()) require_backend(options.device, "from_blob");
  Meta m = Meta::dense(Shape(sizes), options.dtype, options.device);
  DEFT_CHECK(data || m.numel == 0, ValueError, "from_blob: the data pointer is null but shape {} has {} elements",
             to_string(m.sizes), m.numel);
  if (!strides.empty()) {
    DEFT_CHECK(strides.size() == sizes.size(), ShapeError, "from_blob: {} sizes but {} strides", sizes.size(),
               strides.size());
    constexpr int64_t kMost = int64_t{1} << 47;  // more elements than memory holds
    Wide last = 0;
    for (size_t i = 0; i < strides.size(); ++i) {
      DEFT_CHECK(strides[i] >= 0, ShapeError, "from_blob: a stride must not be negative, found {}", strides[i]);
      last = std::max(last, Wide(strides[i])) + Wide(std::max<int64_t>(0, sizes[i] - 1)) * strides[i];
      DEFT_CHECK(last <= kMost, ShapeError, "from_blob: strides {} for shape {} reach further than memory",
                 to_string(Shape(strides)), to_string(m.sizes));
    }
    m.set_strides(Shape(strides));
  }
  return finish(Tensor(make_external(data, m, std::move(on_free))), options, site);
}

}  // namespace deft
