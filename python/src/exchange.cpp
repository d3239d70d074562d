#include "exchange.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

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

// A header of our own around a foreign tensor: its strides may need turning, which theirs must not be written for.
struct Foreign {
  DeftDLManagedTensor header;
  std::vector<int64_t> strides;
  void* owner;
  void (*release)(void* owner);
};

// What was shared, and what must be copied of it.
struct Imported {
  Tensor tensor;
  bool read_only = false;
  std::vector<int64_t> backwards;  // dimensions that lie in memory from their end to their beginning
};

// The tensor from its lowest address on, with all strides positive.
void turn_forwards(Foreign& f, std::vector<int64_t>& backwards) {
  DeftDLTensor& t = f.header.dl_tensor;
  if (!t.strides || t.ndim <= 0 || !t.shape || t.ndim > static_cast<int>(kMaxDims)) return;
  f.strides.assign(t.strides, t.strides + t.ndim);
  const int64_t item = t.dtype.bits / 8;
  for (int i = 0; i < t.ndim; ++i) {
    int64_t& stride = f.strides[static_cast<size_t>(i)];
    if (stride >= 0) continue;
    if (t.data && t.shape[i] > 0) t.data = static_cast<char*>(t.data) + stride * (t.shape[i] - 1) * item;
    stride = -stride;
    backwards.push_back(i);
  }
  t.strides = f.strides.data();
}

// On an error the owner keeps its tensor.
Imported share(const DeftDLTensor& tensor, void* owner, void (*release)(void* owner), const Site& site) {
  auto f = std::make_unique<Foreign>();
  f->owner = owner;
  f->release = release;
  f->header = {tensor, f.get(), [](DeftDLManagedTensor* self) {
                 std::unique_ptr<Foreign> whole(static_cast<Foreign*>(self->manager_ctx));
                 whole->release(whole->owner);
               }};
  Imported r;
  turn_forwards(*f, r.backwards);
  r.tensor = from_dlpack(&f->header, site);
  f.release();  // the tensor has it now
  return r;
}

Imported import_versioned(PyObject* capsule, const Site& site) {
  auto* v = static_cast<Versioned*>(PyCapsule_GetPointer(capsule, kVersionedName));
  if (v->major != 1) fail(PyExc_BufferError, "from_dlpack: found DLPack version %u, expected 1", v->major);
  auto release = [](void* owner) {
    auto* m = static_cast<Versioned*>(owner);
    if (m->deleter) m->deleter(m);
  };
  Imported r = share(v->tensor, v, release, site);
  r.read_only = v->flags & kReadOnly;
  check_status(PyCapsule_SetName(capsule, "used_dltensor_versioned"));
  return r;
}

Imported import_legacy(PyObject* capsule, const Site& site) {
  auto* m = static_cast<DeftDLManagedTensor*>(PyCapsule_GetPointer(capsule, kLegacyName));
  auto release = [](void* owner) {
    auto* inner = static_cast<DeftDLManagedTensor*>(owner);
    if (inner->deleter) inner->deleter(inner);
  };
  Imported r = share(m->dl_tensor, m, release, site);
  check_status(PyCapsule_SetName(capsule, "used_dltensor"));
  return r;
}

// Memory that others must not see written, or that runs backwards, is copied.
Tensor import_capsule(PyObject* capsule, PyObject* copy, const Site& site) {
  const bool versioned = PyCapsule_IsValid(capsule, kVersionedName);
  if (!versioned && !PyCapsule_IsValid(capsule, kLegacyName))
    fail(PyExc_ValueError, "from_dlpack: found %s, expected an unused capsule 'dltensor'", Py_TYPE(capsule)->tp_name);
  Imported r = versioned ? import_versioned(capsule, site) : import_legacy(capsule, site);
  if (copy == Py_False && (r.read_only || !r.backwards.empty()))
    fail(PyExc_BufferError, "from_dlpack: %s memory is shared by a copy only; leave copy=False out",
         r.read_only ? "read-only" : "backward");
  if (!r.backwards.empty()) return flip(r.tensor, r.backwards, site);
  return r.read_only || copy == Py_True ? r.tensor.clone(MemoryFormat::preserve, site) : r.tensor;
}

// The deleter of a foreign tensor may run on any thread, or after Python's end: deleters acquire the GIL themselves.
Tensor import_object(PyObject* object, PyObject* copy, const Site& site) {
  if (PyCapsule_CheckExact(object)) return import_capsule(object, copy, site);
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
  return import_capsule(capsule.get(), copy, site);
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
      "from_dlpack(ext_tensor, *, device=None, copy=None)", kFunction,
      [](Object object, Object device, Object copy, Site s) -> Returns {
        Tensor t = import_object(object.p, copy.p, s);
        if (device.p == Py_None || to_device(device.p) == t.device()) return {wrap(std::move(t))};
        if (copy.p == Py_False) fail(PyExc_BufferError, "from_dlpack: the tensor lies on another device; copy=False");
        return {wrap(t.to(to_device(device.p), s))};
      },
      "view", "Shares the memory of a tensor of another library; what is read-only or runs backwards is copied.");
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

Tensor from_buffer(PyObject* object, bool may_copy) {
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
  std::vector<int64_t> backwards;
  char* first = static_cast<char*>(v.buf);
  for (int i = 0; i < v.ndim; ++i) {
    if (v.strides[i] % v.itemsize != 0)
      fail(PyExc_ValueError, "found a stride of %zd bytes, expected a multiple of the element size, %zd", v.strides[i],
           v.itemsize);
    sizes.push_back(v.shape[i]);
    strides.push_back(std::abs(v.strides[i]) / v.itemsize);
    if (v.strides[i] >= 0 || v.shape[i] < 1) continue;
    first += v.strides[i] * (v.shape[i] - 1);
    backwards.push_back(i);
  }
  if (!backwards.empty() && !may_copy)
    fail(PyExc_ValueError,
         "At least one stride in the given numpy array is negative, and tensors with negative "
         "strides are not supported; make a copy with array.copy()");
  Tensor t = from_blob(first, sizes, *dtype, strides, [held] {});
  if (!backwards.empty()) return flip(t, backwards);
  return v.readonly ? t.clone() : t;
}

void add_exchange(PyObject*) {
  bind_dlpack();
  bind(
      "from_numpy(ndarray)", kFunction,
      [](Object array, Site) -> Returns {
        if (!PyObject_CheckBuffer(array.p) || is_tensor(array.p))
          fail(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(array.p)->tp_name);
        return {wrap(from_buffer(array.p, false))};
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
