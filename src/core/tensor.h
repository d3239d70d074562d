// Tensor: a handle to shared data. Copies share; clone() copies.
#pragma once

#include <array>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/scalar.h"
#include "core/shape.h"
#include "core/tensor_impl.h"
#include "runtime/context.h"
#include "runtime/memory.h"

namespace deft {

class Tensor;

// Element type, device and whether gradients are wanted. `requires_grad` given here holds also under no_grad.
struct TensorOptions {
  TensorOptions(DType dtype_ = DType::f32, Device device_ = kCPU, bool requires_grad_ = false)
      : dtype(dtype_), device(device_), requires_grad(requires_grad_) {}
  DType dtype;
  Device device;
  bool requires_grad;
};
inline TensorOptions with_grad(DType dtype = DType::f32, Device device = kCPU) { return {dtype, device, true}; }

enum class MemoryFormat : uint8_t { contiguous, channels_last, preserve };

// start:stop:step with Python's meaning; missing ends are open.
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step = 1;
  Slice(std::optional<int64_t> start_ = {}, std::optional<int64_t> stop_ = {}, int64_t step_ = 1)
      : start(start_), stop(stop_), step(step_) {}
};
struct Ellipsis {};
struct NewAxis {};

// A list of indices passed to index() and index_put_(): `{Slice(0, 2), 3, mask}`. Does not own its elements.
struct TensorIndex;
class IndexList {
 public:
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
  IndexList(std::initializer_list<TensorIndex> l) : p_(l.begin()), n_(l.size()) {}
#pragma GCC diagnostic pop
  inline IndexList(const std::vector<TensorIndex>& v);
  IndexList(const TensorIndex* p, size_t n) : p_(p), n_(n) {}
  size_t size() const { return n_; }
  const TensorIndex* begin() const { return p_; }
  inline const TensorIndex* end() const;

 private:
  const TensorIndex* p_;
  size_t n_;
};

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;
};

enum class ScatterReduce : uint8_t { assign, add, mul, amin, amax, mean };

using TensorHook = std::function<Tensor(const Tensor&)>;
struct HookHandle {
  uint64_t id = 0;
};

// Elementwise ops of one tensor that also have a method and an in-place method. Their functions are in ops/unary.h.
// clang-format off
#define DEFT_UNARY_METHODS(X)                                                                                  \
  X(abs) X(neg) X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sqrt) X(rsqrt) X(square)            \
  X(reciprocal) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh)         \
  X(atanh) X(erf) X(erfc) X(sigmoid) X(relu) X(silu) X(floor) X(ceil) X(trunc) X(round) X(frac) X(sign)
// clang-format on
// Elementwise ops of two tensors, or a tensor and a number. Their functions are in ops/binary.h.
#define DEFT_BINARY_METHODS(X) \
  X(add) X(sub) X(mul) X(div) X(pow) X(fmod) X(remainder) X(floor_divide) X(maximum) X(minimum) X(atan2)
#define DEFT_COMPARE_METHODS(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(ImplPtr impl) : impl_(std::move(impl)) {}

  // --- What it is
  bool defined() const { return static_cast<bool>(impl_); }
  // ValueError for an undefined tensor, as for everything below.
  const Meta& meta() const { return held().meta; }
  const Shape& sizes() const { return meta().sizes; }
  const Shape& strides() const { return meta().strides; }  // in elements, as in DLPack
  int64_t size(int64_t dim, Site site = Site::current()) const;
  int64_t stride(int64_t dim) const;
  int dim() const { return meta().rank(); }
  int64_t numel() const { return meta().numel; }
  DType dtype() const { return meta().dtype; }
  Device device() const { return meta().device; }
  size_t element_size() const { return size_of(dtype()); }
  int64_t storage_offset() const;  // in elements
  bool is_contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  bool is_view() const { return held().base != nullptr; }
  bool is_inference() const { return held().has(kInferenceTensor); }
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }
  bool shares_storage_with(const Tensor& o) const { return held().storage == o.held().storage; }
  uint32_t version() const;  // InferenceError on an inference tensor: it has none

  // --- Data. Pinned memory that a copy is still reading or writing is waited for.
  // A capture refuses to give a pointer to what a replay will make elsewhere.
  [[gnu::always_inline]] void* data_ptr() const {
    if (detail::exec_context.bits & kCapture) [[unlikely]]  // a fresh thread captures nothing
      note_pointer();
    return host_data();
  }
  // Checks the type (DTypeError). What was made from the bytes - packed weights, constants of a plan - is made again
  // afterwards, since they may be written; data<const float>() only reads.
  template <class T>
  T* data() const {
    check_dtype(dtype_of<std::remove_const_t<T>>, !std::is_const_v<T>);
    return static_cast<T*>(host_data());
  }
  // The only element of a one-element tensor, converted to T.
  template <class T = double>
  T item(Site site = Site::current()) const {
    Scalar s = item_scalar(site);
    return s.is_floating() ? static_cast<T>(s.to_double()) : static_cast<T>(s.to_int64());
  }
  Scalar item_scalar(Site site = Site::current()) const;
  std::string to_string(Site site = Site::current()) const;
  template <class T>
  std::vector<T> to_vector(Site site = Site::current()) const;  // row-major; converts the type

  // --- Gradients
  bool requires_grad() const;
  Tensor& requires_grad_(bool on = true, Site site = Site::current());
  const Tensor& requires_grad_(bool on = true, Site site = Site::current()) const;
  bool is_leaf() const;
  Tensor grad() const;  // undefined when there is none
  void set_grad(const Tensor& grad, Site site = Site::current()) const;
  // Forgets the gradient; with set_to_none = false fills it with zeros instead.
  void zero_grad(bool set_to_none = true) const;
  void backward(BackwardOptions options = {}, Site site = Site::current()) const;
  void backward(const Tensor& gradient, BackwardOptions options = {}, Site site = Site::current()) const;
  Tensor detach(Site site = Site::current()) const;
  Tensor& detach_();
  // Calls `hook` with the gradient of this tensor whenever it is computed; a defined result replaces it.
  HookHandle register_hook(TensorHook hook) const;
  void remove_hook(HookHandle handle) const;
  // Keeps .grad of a tensor that is not a leaf.
  void retain_grad() const;
  NodePtr grad_fn() const;
  const char* grad_fn_name() const;  // "" for leaves

  // --- Memory accounting
  void set_memory_category(MemoryCategory category) const { held().storage->set_category(category); }
  MemoryCategory memory_category() const { return held().storage->category.load(std::memory_order_relaxed); }

  // --- Elementwise methods
#define DEFT_DECLARE(name)                        \
  Tensor name(Site site = Site::current()) const; \
  Tensor& name##_(Site site = Site::current());
  DEFT_UNARY_METHODS(DEFT_DECLARE)
#undef DEFT_DECLARE
#define DEFT_DECLARE(name)                                             \
  Tensor name(const Tensor& other, Site site = Site::current()) const; \
  Tensor name(Scalar other, Site site = Site::current()) const;        \
  Tensor& name##_(const Tensor& other, Site site = Site::current());   \
  Tensor& name##_(Scalar other, Site site = Site::current());
  DEFT_BINARY_METHODS(DEFT_DECLARE)
#undef DEFT_DECLARE
#define DEFT_DECLARE(name)                                             \
  Tensor name(const Tensor& other, Site site = Site::current()) const; \
  Tensor name(Scalar other, Site site = Site::current()) const;
  DEFT_COMPARE_METHODS(DEFT_DECLARE)
#undef DEFT_DECLARE
  Tensor& clamp_(std::optional<Scalar> min, std::optional<Scalar> max = {}, Site site = Site::current());
  Tensor clamp(std::optional<Scalar> min, std::optional<Scalar> max = {}, Site site = Site::current()) const;
  Tensor clamp_min(Scalar min, Site site = Site::current()) const;
  Tensor clamp_min(const Tensor& min, Site site = Site::current()) const;
  Tensor clamp_max(Scalar max, Site site = Site::current()) const;
  Tensor clamp_max(const Tensor& max, Site site = Site::current()) const;
  Tensor& clamp_min_(Scalar min, Site site = Site::current());
  Tensor& clamp_max_(Scalar max, Site site = Site::current());
  // NaN and infinities replaced; a missing replacement of an infinity is the type's largest or lowest number.
  Tensor nan_to_num(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {},
                    Site site = Site::current()) const;
  Tensor& nan_to_num_(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {},
                      Site site = Site::current());
  Tensor& addcmul_(const Tensor& a, const Tensor& b, double value = 1, Site site = Site::current());
  Tensor& lerp_(const Tensor& end, double weight, Site site = Site::current());

  // --- Type, layout, copies
  Tensor to(DType dtype, Site site = Site::current()) const;
  // non_blocking: from or to pinned memory the host does not wait; touching the result on the host does.
  Tensor to(Device device, bool non_blocking = false, Site site = Site::current()) const;
  Tensor to(Device device, Site site) const { return to(device, false, site); }
  Tensor cpu(Site site = Site::current()) const { return to(kCPU, false, site); }
  Tensor cuda(int index = 0, Site site = Site::current()) const {
    return to(Device{DeviceType::cuda, static_cast<int8_t>(index)}, false, site);
  }
  Tensor pin_memory(Site site = Site::current()) const;  // a copy in pinned host memory; itself if it lies there
  bool is_pinned() const { return held().storage->memory && device().is_cpu(); }
  Tensor contiguous(MemoryFormat format = MemoryFormat::contiguous, Site site = Site::current()) const;
  Tensor type_as(const Tensor& other, Site site = Site::current()) const;  // other's type and device
  Tensor clone(MemoryFormat format = MemoryFormat::preserve, Site site = Site::current()) const;
  Tensor& copy_(const Tensor& source, Site site = Site::current());
  Tensor& fill_(Scalar value, Site site = Site::current());
  Tensor& zero_(Site site = Site::current());

  // --- New tensors with the type and the device of this one, unless others are given
  Tensor new_empty(IntList sizes, std::optional<TensorOptions> options = {}, Site site = Site::current()) const;
  Tensor new_zeros(IntList sizes, std::optional<TensorOptions> options = {}, Site site = Site::current()) const;
  Tensor new_ones(IntList sizes, std::optional<TensorOptions> options = {}, Site site = Site::current()) const;
  Tensor new_full(IntList sizes, Scalar value, std::optional<TensorOptions> options = {},
                  Site site = Site::current()) const;

  // --- Comparing whole tensors. Those that give a bool wait for the device.
  bool equal(const Tensor& other, Site site = Site::current()) const;
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
                Site site = Site::current()) const;
  Tensor isclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
                 Site site = Site::current()) const;

  // --- Views
  Tensor view(IntList sizes, Site site = Site::current()) const;     // ShapeError if it would need a copy
  Tensor reshape(IntList sizes, Site site = Site::current()) const;  // copies if it must
  Tensor flatten(int64_t start = 0, int64_t end = -1, Site site = Site::current()) const;
  Tensor permute(IntList dims, Site site = Site::current()) const;
  Tensor transpose(int64_t a, int64_t b, Site site = Site::current()) const;
  Tensor t(Site site = Site::current()) const;
  Tensor expand(IntList sizes, Site site = Site::current()) const;
  Tensor squeeze(Site site = Site::current()) const;
  Tensor squeeze(int64_t dim, Site site = Site::current()) const;
  Tensor unsqueeze(int64_t dim, Site site = Site::current()) const;
  Tensor select(int64_t dim, int64_t index, Site site = Site::current()) const;
  Tensor slice(int64_t dim, Slice range, Site site = Site::current()) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length, Site site = Site::current()) const;
  Tensor as_strided(IntList sizes, IntList strides, int64_t offset = 0, Site site = Site::current()) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1, Site site = Site::current()) const;
  Tensor expand_as(const Tensor& other, Site site = Site::current()) const;
  Tensor view_as(const Tensor& other, Site site = Site::current()) const;
  Tensor unflatten(int64_t dim, IntList sizes, Site site = Site::current()) const;
  // Windows of `size` elements, `step` apart, along one dim; they become the last dim.
  Tensor unfold(int64_t dim, int64_t size, int64_t step, Site site = Site::current()) const;
  std::vector<Tensor> split(int64_t size, int64_t dim = 0, Site site = Site::current()) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0, Site site = Site::current()) const;
  std::vector<Tensor> unbind(int64_t dim = 0, Site site = Site::current()) const;
  struct RowIndex {  // carries the caller's line through operator[]
    RowIndex(int64_t i, Site s = Site::current()) : index(i), site(s) {}
    int64_t index;
    Site site;
  };
  Tensor operator[](RowIndex row) const { return select(0, row.index, row.site); }

  // --- Reductions. An empty list of dims means all.
  Tensor sum(Site site = Site::current()) const;
  Tensor sum(IntList dims, bool keepdim = false, Site site = Site::current()) const;
  Tensor mean(Site site = Site::current()) const;
  Tensor mean(IntList dims, bool keepdim = false, Site site = Site::current()) const;
  Tensor amax(IntList dims = {}, bool keepdim = false, Site site = Site::current()) const;
  Tensor amin(IntList dims = {}, bool keepdim = false, Site site = Site::current()) const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false, Site site = Site::current()) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false, Site site = Site::current()) const;
  Tensor prod(IntList dims = {}, bool keepdim = false, Site site = Site::current()) const;
  Tensor var(IntList dims = {}, double correction = 1, bool keepdim = false, Site site = Site::current()) const;
  Tensor std(IntList dims = {}, double correction = 1, bool keepdim = false, Site site = Site::current()) const;
  Tensor norm(double p = 2, IntList dims = {}, bool keepdim = false, Site site = Site::current()) const;
  Tensor logsumexp(IntList dims, bool keepdim = false, Site site = Site::current()) const;
  Tensor any(IntList dims = {}, bool keepdim = false, Site site = Site::current()) const;
  Tensor all(IntList dims = {}, bool keepdim = false, Site site = Site::current()) const;
  Tensor cumsum(int64_t dim, Site site = Site::current()) const;
  Tensor cumprod(int64_t dim, Site site = Site::current()) const;
  // The lower of the two in the middle; along one dim (values, indices). NaN wins.
  Tensor median(Site site = Site::current()) const;
  std::array<Tensor, 2> median(int64_t dim, bool keepdim = false, Site site = Site::current()) const;
  // Interpolated between neighbours in order; without a dim over all elements.
  Tensor quantile(double q, std::optional<int64_t> dim = {}, bool keepdim = false, Site site = Site::current()) const;
  Tensor softmax(int64_t dim, Site site = Site::current()) const;
  Tensor log_softmax(int64_t dim, Site site = Site::current()) const;

  // --- Matmul and indexing
  Tensor matmul(const Tensor& other, Site site = Site::current()) const;
  Tensor gather(int64_t dim, const Tensor& index, Site site = Site::current()) const;
  Tensor index_select(int64_t dim, const Tensor& index, Site site = Site::current()) const;
  Tensor masked_fill(const Tensor& mask, Scalar value, Site site = Site::current()) const;
  Tensor& masked_fill_(const Tensor& mask, Scalar value, Site site = Site::current());
  Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& source, Site site = Site::current());
  Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& source, Site site = Site::current());
  Tensor& index_add_(int64_t dim, const Tensor& index, const Tensor& source, Site site = Site::current());
  Tensor scatter_reduce(int64_t dim, const Tensor& index, const Tensor& source, ScatterReduce reduce,
                        bool include_self = true, Site site = Site::current()) const;
  Tensor masked_select(const Tensor& mask, Site site = Site::current()) const;
  Tensor multinomial(int64_t count, bool replacement = false, Site site = Site::current()) const;

  // --- Order and repetition. sort() and topk() give (values, indices); unique() also gives counts.
  std::array<Tensor, 2> sort(int64_t dim = -1, bool descending = false, Site site = Site::current()) const;
  Tensor argsort(int64_t dim = -1, bool descending = false, Site site = Site::current()) const;
  std::array<Tensor, 2> topk(int64_t k, int64_t dim = -1, bool largest = true, Site site = Site::current()) const;
  std::array<Tensor, 3> unique(Site site = Site::current()) const;
  Tensor tile(IntList counts, Site site = Site::current()) const;
  Tensor diag(int64_t diagonal = 0, Site site = Site::current()) const;
  // x[i, j, ...]: a view for numbers, slices, Ellipsis and NewAxis; a copy as soon as an i64 or bool tensor is among
  // them.
  Tensor index(IndexList indices, Site site = Site::current()) const;
  // x[i, j, ...] = value, or += value with `accumulate`. Nothing is written if an index is out of range.
  Tensor& index_put_(IndexList indices, const Tensor& value, bool accumulate = false, Site site = Site::current());
  Tensor& index_put_(IndexList indices, Scalar value, bool accumulate = false, Site site = Site::current());

  TensorImpl* impl() const { return impl_.get(); }
  const ImplPtr& impl_ptr() const { return impl_; }

 private:
  // One branch that is never taken.
  TensorImpl& held() const {
    if (!impl_) [[unlikely]]
      throw_undefined();
    return *impl_;
  }
  [[noreturn, gnu::cold]] static void throw_undefined();
  [[gnu::always_inline]] void* host_data() const {
    if (held().storage->memory) [[unlikely]]
      wait_for_host_access();
    return impl_->data;
  }
  void check_dtype(DType wanted, bool writable) const;
  [[gnu::cold, gnu::noinline]] void note_pointer() const;
  [[gnu::cold, gnu::noinline]] void wait_for_host_access() const;
  ImplPtr impl_;
};

// One index. A 0-d i64 tensor counts as a number; true and false add a dimension of size 1 or 0.
struct TensorIndex {
  template <class T>
  requires std::integral<T> TensorIndex(T i)
      : value(static_cast<std::conditional_t<std::is_same_v<T, bool>, bool, int64_t>>(i)) {}
  TensorIndex(Slice range) : value(range) {}
  TensorIndex(Ellipsis e) : value(e) {}
  TensorIndex(NewAxis n) : value(n) {}
  TensorIndex(const Tensor& t) : value(t) {}
  std::variant<int64_t, bool, Slice, Ellipsis, NewAxis, Tensor> value;
};
IndexList::IndexList(const std::vector<TensorIndex>& v) : IndexList(v.data(), v.size()) {}
const TensorIndex* IndexList::end() const { return p_ + n_; }

// Operators. The left operand carries the line of the expression, since operators cannot take a default argument.
struct SitedTensor {
  SitedTensor(const Tensor& t, Site s = Site::current()) : tensor(t), site(s) {}
  const Tensor& tensor;
  Site site;
};
struct SitedScalar {
  template <class T>
  requires std::integral<T> || std::floating_point<T> SitedScalar(T v, Site s = Site::current()) : scalar(v), site(s) {}
  Scalar scalar;
  Site site;
};
std::ostream& operator<<(std::ostream& out, SitedTensor tensor);
#define DEFT_DECLARE(op)                              \
  Tensor operator op(SitedTensor a, const Tensor& b); \
  Tensor operator op(SitedTensor a, Scalar b);        \
  Tensor operator op(SitedScalar a, const Tensor& b);
DEFT_DECLARE(+)
DEFT_DECLARE(-)
DEFT_DECLARE(*)
DEFT_DECLARE(/)
DEFT_DECLARE(<)
DEFT_DECLARE(<=)
DEFT_DECLARE(>)
DEFT_DECLARE(>=)
DEFT_DECLARE(&)
DEFT_DECLARE(|)
#undef DEFT_DECLARE
// Symmetric, so that C++20's reversed == candidates are never better.
Tensor operator==(SitedTensor a, SitedTensor b);
Tensor operator==(SitedTensor a, Scalar b);
Tensor operator==(Scalar a, SitedTensor b);
Tensor operator!=(SitedTensor a, SitedTensor b);
Tensor operator!=(SitedTensor a, Scalar b);
Tensor operator!=(Scalar a, SitedTensor b);
Tensor operator-(SitedTensor a);
Tensor operator!(SitedTensor a);
Tensor& operator+=(Tensor& a, SitedTensor b);
Tensor& operator-=(Tensor& a, SitedTensor b);
Tensor& operator*=(Tensor& a, SitedTensor b);
Tensor& operator/=(Tensor& a, SitedTensor b);
Tensor& operator+=(Tensor& a, SitedScalar b);
Tensor& operator-=(Tensor& a, SitedScalar b);
Tensor& operator*=(Tensor& a, SitedScalar b);
Tensor& operator/=(Tensor& a, SitedScalar b);

}  // namespace deft
