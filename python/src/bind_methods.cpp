// Methods of Tensor that are no ops of their own: what it is, copies and types, gradients.
#include "bind_op.h"
#include "core/engine.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

void bind_facts() {
  bind(
      "dim(input)", kMethod, [](const Tensor& x, Site) { return static_cast<int64_t>(x.dim()); }, "view");
  bind(
      "ndimension(input)", kMethod, [](const Tensor& x, Site) { return static_cast<int64_t>(x.dim()); }, "view");
  bind(
      "numel(input)", kEverywhere, [](const Tensor& x, Site) { return x.numel(); }, "view");
  bind(
      "nelement(input)", kMethod, [](const Tensor& x, Site) { return x.numel(); }, "view");
  bind(
      "element_size(input)", kMethod, [](const Tensor& x, Site) { return static_cast<int64_t>(x.element_size()); },
      "view");
  bind(
      "storage_offset(input)", kMethod, [](const Tensor& x, Site) { return x.storage_offset(); }, "view");
  bind(
      "data_ptr(input)", kMethod, [](const Tensor& x, Site) -> Returns { return {PyLong_FromVoidPtr(x.data_ptr())}; },
      "view");
  bind(
      "size(input, dim=None)", kMethod,
      [](const Tensor& x, Object dim, Site s) -> Returns {
        if (dim.p == Py_None) return {wrap_size(x.sizes())};
        return {PyLong_FromLongLong(x.size(to_int(dim.p), s))};
      },
      "view");
  bind(
      "stride(input, dim=None)", kMethod,
      [](const Tensor& x, Object dim, Site) -> Returns {
        if (dim.p != Py_None) return {PyLong_FromLongLong(x.stride(to_int(dim.p)))};
        Ref tuple = owned(PyTuple_New(x.dim()));
        for (int i = 0; i < x.dim(); ++i) PyTuple_SET_ITEM(tuple.get(), i, PyLong_FromLongLong(x.strides()[i]));
        return {tuple.release()};
      },
      "view");
  bind(
      "is_contiguous(input, memory_format=None)", kMethod,
      [](const Tensor& x, std::optional<MemoryFormat> format, Site) {
        return x.is_contiguous(format.value_or(MemoryFormat::contiguous));
      },
      "view");
  bind(
      "is_floating_point(input)", kEverywhere, [](const Tensor& x, Site) { return is_floating(x.dtype()); }, "view");
  bind(
      "is_complex(input)", kEverywhere, [](const Tensor&, Site) { return false; }, "view");
  bind(
      "is_inference(input)", kEverywhere, [](const Tensor& x, Site) { return x.is_inference(); }, "view");
  bind(
      "is_pinned(input)", kMethod, [](const Tensor& x, Site) { return x.is_pinned(); }, "view");
  bind(
      "is_same_size(input, other)", kMethod,
      [](const Tensor& x, const Tensor& y, Site) { return x.sizes() == y.sizes(); }, "view");
  bind(
      "_shares_storage(input, other)", kMethod,
      [](const Tensor& x, const Tensor& y, Site) { return x.shares_storage_with(y); }, "view");
  bind(
      "_is_view(input)", kMethod, [](const Tensor& x, Site) { return x.is_view(); }, "view");
  bind(
      "item(input)", kMethod, [](const Tensor& x, Site) -> Returns { return {item_of(x)}; }, "clone",
      "The only element, as a number.");
  bind(
      "_text(input)", kMethod,
      [](const Tensor& x, Site s) -> Returns {
        std::string text = x.to_string(s);
        return {PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()))};
      },
      "clone");
}

// to(dtype), to(device), to(other), to(device, dtype): what the arguments are says which.
Tensor to_any(const Tensor& x, Object first, Object second, Object dtype, Object device, bool non_blocking, bool copy,
              const std::optional<MemoryFormat>& format, const Site& s) {
  DType t = x.dtype();
  Device d = x.device();
  auto take = [&](PyObject* p) {
    if (p == Py_None || is_bool(p)) return;
    if (is_tensor(p)) {
      t = tensor_of(p).dtype();
      d = tensor_of(p).device();
    } else if (is_dtype(p) || PyType_Check(p)) {
      t = to_dtype(p);
    } else {
      d = to_device(p);
    }
  };
  for (PyObject* p : {first.p, second.p, dtype.p, device.p}) take(p);
  Tensor r = x;
  if (!(d == x.device())) r = r.to(d, non_blocking, s);
  if (t != x.dtype()) r = r.to(t, s);
  if (format && *format != MemoryFormat::preserve) r = r.contiguous(*format, s);
  return copy && r.is_same(x) ? x.clone(MemoryFormat::preserve, s) : r;
}

void bind_conversions() {
  bind(
      "to(input, other=None, second=None, *, dtype=None, device=None, non_blocking=False, copy=False, "
      "memory_format=None)",
      kMethod,
      [](Object x, Object first, Object second, Object dtype, Object device, bool non_blocking, bool copy,
         std::optional<MemoryFormat> format, Site s) -> Returns {
        const Tensor& t = tensor_of(x.p);
        Tensor r = to_any(t, first, second, dtype, device, non_blocking, copy, format, s);
        return {r.is_same(t) ? Py_NewRef(x.p) : wrap(std::move(r))};
      },
      "to");
#define DEFT_AS(name, type)                   \
  bind(                                       \
      name "(input)", kMethod,                \
      [](const Tensor& x, Site s) -> OrSame { \
        if (x.dtype() == type) return {};     \
        return {x.to(type, s)};               \
      },                                      \
      "to");
  DEFT_AS("float", DType::f32)
  DEFT_AS("double", DType::f64)
  DEFT_AS("half", DType::f16)
  DEFT_AS("bfloat16", DType::bf16)
  DEFT_AS("int", DType::i32)
  DEFT_AS("long", DType::i64)
  DEFT_AS("char", DType::i8)
  DEFT_AS("byte", DType::u8)
  DEFT_AS("bool", DType::boolean)
#undef DEFT_AS
  bind(
      "type_as(input, other)", kMethod,
      [](const Tensor& x, const Tensor& other, Site s) { return x.type_as(other, s); }, "to");
  bind(
      "cpu(input)", kMethod,
      [](const Tensor& x, Site s) -> OrSame {
        if (x.device().is_cpu()) return {};
        return {x.to(kCPU, false, s)};
      },
      "to_device");
  bind(
      "cuda(input, device=None, non_blocking=False)", kMethod,
      [](const Tensor& x, std::optional<Device> device, bool non_blocking, Site s) {
        return x.to(device.value_or(kCUDA), non_blocking, s);
      },
      "to_device");
  bind(
      "pin_memory(input)", kMethod, [](const Tensor& x, Site s) { return x.pin_memory(s); }, "to_device");
  bind(
      "contiguous(input, memory_format=None)", kMethod,
      [](const Tensor& x, std::optional<MemoryFormat> format, Site s) -> OrSame {
        MemoryFormat f = format.value_or(MemoryFormat::contiguous);
        if (x.is_contiguous(f)) return {};
        return {x.contiguous(f, s)};
      },
      "clone");
  bind("clone(input, *, memory_format=None)", kEverywhere,
       [](const Tensor& x, std::optional<MemoryFormat> format, Site s) {
         return x.clone(format.value_or(MemoryFormat::preserve), s);
       });
  bind(
      "copy_(input, src, non_blocking=False)", kMethod,
      [](Tensor& x, const Tensor& src, bool, Site s) {
        x.copy_(src, s);
        return Same();
      },
      op_def<CopyInto>.info.name);
  bind(
      "fill_(input, value)", kMethod,
      [](Tensor& x, Scalar value, Site s) {
        x.fill_(value, s);
        return Same();
      },
      op_def<Fill>.info.name);
  bind(
      "zero_(input)", kMethod,
      [](Tensor& x, Site s) {
        x.zero_(s);
        return Same();
      },
      op_def<Fill>.info.name);
}

void bind_gradients() {
  bind(
      "detach(input)", kEverywhere, [](const Tensor& x, Site s) { return x.detach(s); }, "view");
  bind(
      "detach_(input)", kMethod,
      [](Tensor& x, Site) {
        x.detach_();
        return Same();
      },
      "view");
  bind(
      "requires_grad_(input, requires_grad=True)", kMethod,
      [](Tensor& x, bool on, Site s) {
        x.requires_grad_(on, s);
        return Same();
      },
      "view");
  bind(
      "retain_grad(input)", kMethod,
      [](const Tensor& x, Site) -> Returns {
        x.retain_grad();
        return {Py_NewRef(Py_None)};
      },
      "view");
  bind(
      "_backward(input, gradient=None, retain_graph=False, create_graph=False)", kMethod,
      [](const Tensor& x, Tensor gradient, bool retain_graph, bool create_graph, Site s) -> Returns {
        Tensor root = x;
        {
          GilReleased released;
          root.backward(gradient, {retain_graph, create_graph}, s);
        }
        return {Py_NewRef(Py_None)};
      },
      "view");
  // In place under autograd, of values given as a tensor: used by x[...] += and friends.
  bind(
      "index_put_(input, indices, values, accumulate=False)", kMethod,
      [](Tensor& x, std::vector<Tensor> indices, const Tensor& values, bool accumulate, Site s) {
        std::vector<TensorIndex> list(indices.begin(), indices.end());
        x.index_put_(list, values, accumulate, s);
        return Same();
      },
      op_def<IndexPut>.info.name);
}

}  // namespace

void bind_tensor_methods() {
  bind_facts();
  bind_conversions();
  bind_gradients();
}

}  // namespace deft::python
