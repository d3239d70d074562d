#include "exchange.h"

#include <cstring>
#include <memory>

#include "bind_op.h"
#include "core/dlpack.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

// --- DLPack. The versioned form carries flags before the tensor.
struct Versioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(Versioned*);
  uint64_t flags;
  DeftDLTensor tensor;
};
static_assert(sizeof(Versioned) == 80);
constexpr uint64_t kReadOnly = 1, kCopied = 2;
constexpr const char *kLegacyName = "dltensor", *kVersionedName = "dltensor_versioned";

void drop_legacy(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kLegacyName)) return;  // already consumed
  auto* m = static_cast<DeftDLManagedTensor*>(PyCapsule_GetPointer(capsule, kLegacyName));
  if (m->deleter) m->deleter(m);
}
void drop_versioned(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kVersionedName)) return;
  auto* m = static_cast<Versioned*>(PyCapsule_GetPointer(capsule, kVersionedName));
  if (m->deleter) m->deleter(m);
}

PyObject* export_tensor(const Tensor& t, bool versioned, bool copied, const Site& site) {
  DeftDLManagedTensor* m = to_dlpack(t, site);
  if (!versioned) return PyCapsule_New(m, kLegacyName, drop_legacy);
  auto* v = new Versioned{1, 0, m, nullptr, copied ? kCopied : 0, m->dl_tensor};
  v->deleter = [](Versioned* self) {
    auto* inner = static_cast<DeftDLManagedTensor*>(self->context);
    inner->deleter(inner);
    delete self;
  };
  return PyCapsule_New(v, kVersionedName, drop_versioned);
}

// A legacy header around a versioned one, for the library's importer.
Tensor import_versioned(Versioned* v, const Site& site) {
  if (v->major != 1) {
    const uint32_t found = v->major;
    if (v->deleter) v->deleter(v);
    fail(PyExc_BufferError, "from_dlpack: found DLPack version %u, expected 1", found);
  }
  auto* m = new DeftDLManagedTensor{v->tensor, v, [](DeftDLManagedTensor* self) {
                                      auto* inner = static_cast<Versioned*>(self->manager_ctx);
                                      if (inner->deleter) inner->deleter(inner);
                                      delete self;
                                    }};
  const bool read_only = v->flags & kReadOnly;
  try {
    Tensor t = from_dlpack(m, site);
    return read_only ? t.clone(MemoryFormat::preserve, site) : t;
  } catch (...) {
    m->deleter(m);
    throw;
  }
}

Tensor import_capsule(PyObject* capsule, const Site& site) {
  if (PyCapsule_IsValid(capsule, kVersionedName)) {
    auto* v = static_cast<Versioned*>(PyCapsule_GetPointer(capsule, kVersionedName));
    check_status(PyCapsule_SetName(capsule, "used_dltensor_versioned"));
    return import_versioned(v, site);
  }
  if (!PyCapsule_IsValid(capsule, kLegacyName))
    fail(PyExc_ValueError, "from_dlpack: found %s, expected an unused capsule 'dltensor'", Py_TYPE(capsule)->tp_name);
  auto* m = static_cast<DeftDLManagedTensor*>(PyCapsule_GetPointer(capsule, kLegacyName));
  Tensor t = from_dlpack(m, site);  // on error the capsule keeps it
  check_status(PyCapsule_SetName(capsule, "used_dltensor"));
  return t;
}

// The deleter of a foreign tensor may run on any thread, or after Python's end: deleters acquire the GIL themselves.
Tensor import_object(PyObject* object, const Site& site) {
  if (PyCapsule_CheckExact(object)) return import_capsule(object, site);
  Ref method = Ref::steal(PyObject_GetAttrString(object, "__dlpack__"));
  if (!method) {
    PyErr_Clear();
    fail(PyExc_TypeError, "from_dlpack: %s has no __dlpack__()", Py_TYPE(object)->tp_name);
  }
  Ref empty = owned(PyTuple_New(0));
  Ref keywords = owned(Py_BuildValue("{s:(ii)}", "max_version", 1, 0));
  Ref capsule = Ref::steal(PyObject_Call(method.get(), empty.get(), keywords.get()));
  if (!capsule) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
    PyErr_Clear();  // a producer from before version 1
    capsule = owned(PyObject_CallNoArgs(method.get()));
  }
  return import_capsule(capsule.get(), site);
}

bool wants_versioned(PyObject* max_version) {
  if (max_version == Py_None) return false;
  Ref first = owned(PySequence_GetItem(max_version, 0));
  return to_int(first.get()) >= 1;
}

void bind_dlpack() {
  bind(
      "__dlpack__(input, *, stream=None, max_version=None, dl_device=None, copy=None)", kMethod,
      [](const Tensor& t, Object stream, Object max_version, Object dl_device, Object copy, Site s) -> Returns {
        if (t.device().is_cpu() && stream.p != Py_None && !(PyLong_Check(stream.p) && to_int(stream.p) == -1))
          fail(PyExc_BufferError, "__dlpack__: a tensor on the CPU has no stream");
        if (dl_device.p != Py_None) {
          Ref type = owned(PySequence_GetItem(dl_device.p, 0));
          if (to_int(type.get()) != (t.device().is_cpu() ? 1 : 2))
            fail(PyExc_BufferError, "__dlpack__: the tensor lies on another device; move it with to()");
        }
        if (t.requires_grad())
          fail(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
        const bool copied = copy.p == Py_True;
        return {
            export_tensor(copied ? t.clone(MemoryFormat::preserve, s) : t, wants_versioned(max_version.p), copied, s)};
      },
      "view");
  bind(
      "__dlpack_device__(input)", kMethod,
      [](const Tensor& t, Site) -> Returns {
        return {Py_BuildValue("(ii)", t.device().is_cpu() ? 1 : 2, static_cast<int>(t.device().index))};
      },
      "view");
  bind(
      "from_dlpack(ext_tensor)", kFunction,
      [](Object object, Site s) -> Returns { return {wrap(import_object(object.p, s))}; }, "view",
      "Shares the memory of a tensor of another library.");
}

// --- The buffer protocol
struct BufferFormat {
  DType dtype;
  const char* format;
};
constexpr BufferFormat kFormats[] = {{DType::f32, "f"}, {DType::f64, "d"}, {DType::f16, "e"}, {DType::i8, "b"},
                                     {DType::u8, "B"},  {DType::i32, "i"}, {DType::i64, "q"}, {DType::boolean, "?"}};

const char* format_of(DType t) {
  for (const BufferFormat& f : kFormats)
    if (f.dtype == t) return f.format;
  return nullptr;
}

std::optional<DType> type_of_format(const char* format, Py_ssize_t bytes) {
  if (!format) return DType::u8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == 0 || format[1] != 0) return {};
  switch (*format) {
    case 'f':
      return DType::f32;
    case 'd':
      return DType::f64;
    case 'e':
      return DType::f16;
    case '?':
      return DType::boolean;
    case 'b':
      return DType::i8;
    case 'B':
    case 'c':
      return DType::u8;
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      if (bytes == 4) return DType::i32;
      if (bytes == 8) return DType::i64;
      return {};
    default:
      return {};
  }
}

// State of an exported Py_buffer until it is released.
struct Exported {
  DeftDLManagedTensor* managed;
  Py_ssize_t shape[kMaxDims], strides[kMaxDims];
};

// NumPy as the base of an array: keeps the buffer until the last tensor on it is gone.
struct HeldBuffer {
  Py_buffer view{};
  ~HeldBuffer() {
    if (!interpreter_lives()) return;
    GilHeld lock;
    PyBuffer_Release(&view);
  }
};

}  // namespace

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    const Tensor& t = tensor_of(self);
    const char* format = format_of(t.dtype());
    if (!format || !t.device().is_cpu() || t.requires_grad())
      fail(PyExc_BufferError, !format             ? "a bfloat16 tensor has no buffer that others can read; convert it"
                              : t.requires_grad() ? "Can't export tensors that require gradient, use tensor.detach()"
                                                  : "the tensor is not in host memory; use cpu()");
    if (!t.is_contiguous() && (flags & PyBUF_STRIDES) != PyBUF_STRIDES)
      fail(PyExc_BufferError, "the tensor is not contiguous; use contiguous()");
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && t.dim() > 1)
      fail(PyExc_BufferError, "the tensor is not in Fortran's order");
    auto e = std::make_unique<Exported>();
    e->managed = to_dlpack(t, here());
    const auto size = static_cast<Py_ssize_t>(t.element_size());
    for (int i = 0; i < t.dim(); ++i) {
      e->shape[i] = t.sizes()[i];
      e->strides[i] = t.strides()[i] * size;
    }
    static char nothing;
    view->buf = t.numel() == 0 ? &nothing : e->managed->dl_tensor.data;
    view->len = t.numel() * size;
    view->itemsize = size;
    view->readonly = 0;
    view->ndim = t.dim();
    view->format = flags & PyBUF_FORMAT ? const_cast<char*>(format) : nullptr;
    view->shape = flags & PyBUF_ND ? e->shape : nullptr;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? e->strides : nullptr;
    view->suboffsets = nullptr;
    view->internal = e.release();
    view->obj = Py_NewRef(self);
    return 0;
  } catch (...) {
    translate_exception();
    if (!PyErr_ExceptionMatches(PyExc_BufferError)) {  // consumers expect this one
      PyObject *type, *value, *trace;
      PyErr_Fetch(&type, &value, &trace);
      PyErr_Format(PyExc_BufferError, "%S", value ? value : Py_None);
      Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
    }
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* view) {
  std::unique_ptr<Exported> e(static_cast<Exported*>(view->internal));
  e->managed->deleter(e->managed);
}

Tensor from_buffer(PyObject* object) {
  auto held = std::make_shared<HeldBuffer>();
  if (PyObject_GetBuffer(object, &held->view, PyBUF_FORMAT | PyBUF_STRIDES) < 0) throw PythonError();
  const Py_buffer& v = held->view;
  std::optional<DType> dtype = type_of_format(v.format, v.itemsize);
  if (!dtype)
    fail(PyExc_TypeError,
         "can't convert an array with elements of format '%s'; supported are float64, float32, float16, "
         "int64, int32, int8, uint8 and bool",
         v.format ? v.format : "?");
  if (v.ndim > static_cast<int>(kMaxDims)) fail(PyExc_ValueError, "found an array of %d dimensions", v.ndim);
  Shape sizes, strides;
  for (int i = 0; i < v.ndim; ++i) {
    if (v.strides[i] < 0)
      fail(PyExc_ValueError,
           "At least one stride in the given numpy array is negative, and tensors with negative "
           "strides are not supported; make a copy with array.copy()");
    if (v.strides[i] % v.itemsize != 0)
      fail(PyExc_ValueError, "found a stride of %zd bytes, expected a multiple of the element size, %zd", v.strides[i],
           v.itemsize);
    sizes.push_back(v.shape[i]);
    strides.push_back(v.strides[i] / v.itemsize);
  }
  Tensor t = from_blob(v.buf, sizes, *dtype, strides, [held] {});
  return v.readonly ? t.clone() : t;
}

void add_exchange(PyObject*) {
  bind_dlpack();
  bind(
      "from_numpy(ndarray)", kFunction,
      [](Object array, Site) -> Returns {
        if (!PyObject_CheckBuffer(array.p) || is_tensor(array.p))
          fail(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(array.p)->tp_name);
        return {wrap(from_buffer(array.p))};
      },
      "view", "Shares the memory of a NumPy array.");
  bind(
      "frombuffer(buffer, *, dtype, count=-1, offset=0)", kFunction,
      [](Object buffer, DType dtype, int64_t count, int64_t offset, Site s) -> Returns {
        auto held = std::make_shared<HeldBuffer>();
        if (PyObject_GetBuffer(buffer.p, &held->view, PyBUF_SIMPLE) < 0) throw PythonError();
        const auto item = static_cast<int64_t>(size_of(dtype));
        const int64_t bytes = held->view.len - offset;
        if (offset < 0 || bytes < 0) fail(PyExc_ValueError, "frombuffer: the offset is beyond the buffer");
        if (count < 0) count = bytes / item;
        if (count * item > bytes) fail(PyExc_ValueError, "frombuffer: the buffer is smaller than asked for");
        Tensor t = from_blob(static_cast<char*>(held->view.buf) + offset, {count}, dtype, {}, [held] {});
        return {wrap(held->view.readonly ? t.clone(MemoryFormat::preserve, s) : t)};
      },
      "view", "The bytes of a buffer as numbers; read-only ones are copied.");
  bind(
      "tolist(input)", kMethod, [](const Tensor& t, Site) { return Returns{nested_list(t)}; }, "view",
      "The values as nested lists, or a number.");
}

}  // namespace deft::python
