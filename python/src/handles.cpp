#include "handles.h"

#include <nanobind/nanobind.h>

#include <bit>
#include <cstdarg>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>

#include "descriptions.h"

namespace deft::python {

namespace {

// Deft's error, the name of its Python type, and what torch raises there: both `except` clauses catch it.
struct ErrorTypes {
  PyObject *base, *shape, *dtype, *device, *index, *value, *unsupported, *grad, *inplace, *inference, *sync, *capture,
      *memory, *load, *save, *internal;
};
ErrorTypes errors;

PyObject* new_error(PyObject* module, const char* name, std::initializer_list<PyObject*> bases) {
  Ref tuple = owned(PyTuple_New(static_cast<Py_ssize_t>(bases.size())));
  Py_ssize_t i = 0;
  for (PyObject* base : bases) PyTuple_SET_ITEM(tuple.get(), i++, Py_NewRef(base));
  std::string full = std::string("deft.") + name;
  PyObject* type = checked(PyErr_NewExceptionWithDoc(full.c_str(), description_of(name).c_str(), tuple.get(), nullptr));
  check_status(PyModule_AddObjectRef(module, name, type));
  return type;
}

PyObject* python_type(const Error& e) {
#define DEFT_IS(Type, object) \
  if (dynamic_cast<const Type*>(&e)) return errors.object;
  DEFT_IS(ShapeError, shape)
  DEFT_IS(DTypeError, dtype)
  DEFT_IS(DeviceError, device)
  DEFT_IS(IndexError, index)
  DEFT_IS(ValueError, value)
  DEFT_IS(UnsupportedError, unsupported)
  DEFT_IS(InplaceError, inplace)
  DEFT_IS(InferenceError, inference)
  DEFT_IS(GradError, grad)
  DEFT_IS(SyncError, sync)
  DEFT_IS(CaptureError, capture)
  DEFT_IS(OutOfMemoryError, memory)
  DEFT_IS(LoadError, load)
  DEFT_IS(SaveError, save)
  DEFT_IS(InternalError, internal)
#undef DEFT_IS
  return errors.base;
}

// As std::source_location keeps a place; checked below.
struct Line {
  const char* file;
  const char* function;
  unsigned line, column;
};
static_assert(sizeof(Site) == sizeof(const Line*));

struct Place {
  PyCodeObject* code;
  int instruction;
  bool operator==(const Place&) const = default;
};
struct PlaceHash {
  size_t operator()(const Place& p) const {
    return std::hash<const void*>()(p.code) * 31 + static_cast<size_t>(p.instruction);
  }
};

// Files and functions outlive their code objects here, so the code is kept too.
const Line* add_line(const Place& place) {
  Py_INCREF(place.code);
  const char* file = PyUnicode_AsUTF8(place.code->co_filename);
  const char* function = PyUnicode_AsUTF8(place.code->co_name);
  if (!file || !function) PyErr_Clear();
  int line = PyCode_Addr2Line(place.code, place.instruction);
  return new Line{file ? file : "?", function ? function : "?", static_cast<unsigned>(line < 0 ? 0 : line), 0};
}

}  // namespace

void fail(PyObject* type, const char* format, ...) {
  va_list args;
  va_start(args, format);
  PyErr_FormatV(type, format, args);
  va_end(args);
  throw PythonError();
}

void add_errors(PyObject* module) {
  errors.base = new_error(module, "Error", {PyExc_RuntimeError});
  auto derived = [&](const char* name, PyObject* torch_raises = nullptr) {
    if (torch_raises) return new_error(module, name, {errors.base, torch_raises});
    return new_error(module, name, {errors.base});
  };
  errors.shape = derived("ShapeError");
  errors.dtype = derived("DTypeError", PyExc_TypeError);
  errors.device = derived("DeviceError");
  errors.index = derived("IndexError", PyExc_IndexError);
  errors.value = derived("ValueError", PyExc_ValueError);
  errors.unsupported = derived("UnsupportedError", PyExc_NotImplementedError);
  errors.grad = derived("GradError");
  errors.inplace = new_error(module, "InplaceError", {errors.grad});
  errors.inference = new_error(module, "InferenceError", {errors.grad});
  errors.sync = derived("SyncError");
  errors.capture = derived("CaptureError");
  errors.memory = derived("OutOfMemoryError");
  errors.load = derived("LoadError", PyExc_ValueError);
  errors.save = derived("SaveError", PyExc_OSError);
  errors.internal = derived("InternalError");
}

// Where the program's own code called: outside of this package.
const Line* outer_line(const char* folder, size_t length) {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  const Line* line = nullptr;
  while (frame && !line) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    if (file && std::strncmp(file, folder, length) != 0) line = add_line({code, PyFrame_GetLasti(frame)});
    Py_DECREF(code);
    PyFrameObject* back = line ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return line;
}

// Errors name the line that called an op. Where that is one of the package's own, the program's line says more.
std::string with_outer_line(std::string text) {
  const Line* inner = std::bit_cast<const Line*>(here());
  if (!inner) return text;
  const char* package = std::strstr(inner->file, "/deft/");
  if (!package) return text;
  auto place = [](const Line& line) {
    const char* slash = std::strrchr(line.file, '/');
    return std::string(slash ? slash + 1 : line.file) + ":" + std::to_string(line.line);
  };
  const std::string shown = place(*inner);
  const size_t at = text.rfind(shown);
  if (at == text.npos) return text;
  const Line* outer = outer_line(inner->file, static_cast<size_t>(package - inner->file) + 6);
  return outer ? text.replace(at, shown.size(), place(*outer)) : text;
}

PyObject* translate_exception() noexcept {
  try {
    throw;
  } catch (const PythonError&) {
  } catch (nanobind::python_error& e) {
    e.restore();
  } catch (const Error& e) {
    PyErr_SetString(python_type(e), with_outer_line(e.what()).c_str());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

Site here() {
  static auto& lines = *new std::unordered_map<Place, const Line*, PlaceHash>();
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return Site();
  PyCodeObject* code = PyFrame_GetCode(frame);
  Place place{code, PyFrame_GetLasti(frame)};
  Py_DECREF(code);  // the frame has one
  const Line*& line = lines[place];
  if (!line) line = add_line(place);
  return std::bit_cast<Site>(line);
}

}  // namespace deft::python
