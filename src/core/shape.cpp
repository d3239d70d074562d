#include "core/shape.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace deft {

Shape::Shape(IntList l) {
  DEFT_CHECK(l.size() <= kMaxDims, ShapeError,
             "shape: a tensor has at most {} dimensions, found {}; merge some of them", kMaxDims, l.size());
  n_ = static_cast<int32_t>(l.size());
  std::copy(l.begin(), l.end(), d_);
}

void Shape::push_back(int64_t v) { insert(n_, v); }

void Shape::insert(int at, int64_t v) {
  DEFT_CHECK(n_ < kMaxDims, ShapeError, "shape: a tensor has at most {} dimensions; merge some of them", kMaxDims);
  std::copy_backward(d_ + at, d_ + n_, d_ + n_ + 1);
  d_[at] = v;
  ++n_;
}

void Shape::erase(int at) {
  std::copy(d_ + at + 1, d_ + n_, d_ + at);
  --n_;
}

void Shape::resize(int n, int64_t fill) {
  DEFT_ASSERT(n <= kMaxDims);
  if (n > n_) std::fill(d_ + n_, d_ + n, fill);
  n_ = n;
}

std::string to_string(const Shape& shape) {
  std::string s = "[";
  for (int i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

int64_t checked_numel(const Shape& sizes, DType dtype) {
  int64_t n = 1, nonzero = 1;
  bool overflow = false;
  for (int64_t s : sizes) {
    DEFT_CHECK(s >= 0, ShapeError, "shape: a size must not be negative, found {} in {}", s, to_string(sizes));
    n *= s ? 1 : 0;
    if (s) overflow |= __builtin_mul_overflow(nonzero, s, &nonzero);
  }
  int64_t bytes;
  overflow |= __builtin_mul_overflow(nonzero, static_cast<int64_t>(size_of(dtype)), &bytes);
  DEFT_CHECK(!overflow, ShapeError,
             "shape: a tensor of shape {} and type {} is larger than memory can be; use smaller sizes",
             to_string(sizes), name_of(dtype));
  return n ? nonzero : 0;
}

Shape contiguous_strides(const Shape& sizes) {
  Shape s = sizes;
  int64_t step = 1;
  for (int i = sizes.size() - 1; i >= 0; --i) {
    s[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  }
  return s;
}

Shape channels_last_strides(const Shape& sizes) {
  int rank = sizes.size();
  DEFT_CHECK(rank >= 3 && rank <= 5, ShapeError,
             "channels_last: needs 3 to 5 dimensions (N, C, spatial...), found shape {}", to_string(sizes));
  Shape s = sizes;
  s[1] = 1;
  int64_t step = std::max<int64_t>(sizes[1], 1);
  for (int i = rank - 1; i >= 2; --i) {
    s[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  }
  s[0] = step;
  return s;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  Shape r = a.size() >= b.size() ? a : b;
  int n = r.size();
  for (int i = 1; i <= std::min(a.size(), b.size()); ++i) {
    int64_t x = a[a.size() - i], y = b[b.size() - i];
    DEFT_CHECK(x == y || x == 1 || y == 1, ShapeError,
               "{}: shapes {} and {} do not broadcast: sizes {} and {} differ at dimension -{} and neither is 1", op,
               to_string(a), to_string(b), x, y, i);
    r[n - i] = x == 1 ? y : x;
  }
  return r;
}

int64_t normalize_dim(int64_t dim, int rank, const char* op) {
  int64_t n = std::max(rank, 1);
  DEFT_CHECK(dim >= -n && dim < n, IndexError, "{}: dimension {} is out of range for a tensor of rank {}; use {} to {}",
             op, dim, rank, -n, n - 1);
  return dim < 0 ? dim + n : dim;
}

Meta Meta::dense(const Shape& sizes, DType dtype, Device device) {
  Meta m;
  m.sizes = sizes;
  m.numel = checked_numel(sizes, dtype);
  m.strides = contiguous_strides(sizes);
  m.dtype = dtype;
  m.device = device;
  return m;
}

void Meta::set_strides(const Shape& s) {
  strides = s;
  contiguous = true;
  if (numel == 0) return;
  int64_t step = 1;
  for (int i = sizes.size() - 1; i >= 0; --i) {
    if (sizes[i] != 1 && strides[i] != step) {
      contiguous = false;
      return;
    }
    step *= sizes[i];
  }
}

bool Meta::is_channels_last() const {
  int r = rank();
  if (r < 3 || r > 5 || numel == 0) return false;
  Shape want = channels_last_strides(sizes);
  for (int i = 0; i < r; ++i)
    if (sizes[i] != 1 && strides[i] != want[i]) return false;
  return true;
}

namespace {
// Dims of size > 1 by increasing stride.
int sorted_dims(const Meta& m, int* order) {
  int n = 0;
  for (int i = 0; i < m.rank(); ++i)
    if (m.sizes[i] != 1) order[n++] = i;
  std::sort(order, order + n, [&](int a, int b) { return m.strides[a] < m.strides[b]; });
  return n;
}
}  // namespace

bool Meta::is_dense() const {
  if (contiguous || numel == 0) return true;
  int order[kMaxDims];
  int n = sorted_dims(*this, order);
  int64_t step = 1;
  for (int i = 0; i < n; ++i) {
    if (strides[order[i]] != step) return false;
    step *= sizes[order[i]];
  }
  return true;
}

bool Meta::overlaps_itself() const {
  if (contiguous || numel <= 1) return false;
  int order[kMaxDims];
  int n = sorted_dims(*this, order);
  int64_t reach = 0;  // last element reachable through the dims seen so far
  for (int i = 0; i < n; ++i) {
    int64_t stride = strides[order[i]];
    if (stride <= reach) return true;
    reach += stride * (sizes[order[i]] - 1);
  }
  return false;
}

int64_t Meta::span() const {
  if (numel == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < rank(); ++i) last += (sizes[i] - 1) * strides[i];
  return last + 1;
}

DType result_type(const Meta& a, const Meta& b) {
  if (a.dtype == b.dtype) return a.dtype;
  auto kind = [](DType t) { return is_floating(t) ? 2 : is_integral(t) ? 1 : 0; };
  auto weight = [](const Meta& m) { return m.wrapped_number ? 0 : m.rank() == 0 ? 1 : 2; };
  int ka = kind(a.dtype), kb = kind(b.dtype), wa = weight(a), wb = weight(b);
  if (wa == wb) return promote(a.dtype, b.dtype);
  const Meta& strong = wa > wb ? a : b;
  int ks = wa > wb ? ka : kb, kw = wa > wb ? kb : ka;
  if (ks >= kw) return strong.dtype;
  // The weak one is of a higher kind: its kind's default type, as in PyTorch (f32 for a scalar, its own type for a 0-d
  // tensor).
  const Meta& weak = wa > wb ? b : a;
  if (!weak.wrapped_number) return weak.dtype;
  return kw == 2 ? DType::f32 : weak.dtype;
}

}  // namespace deft
