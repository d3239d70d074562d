// What every binding needs: owned references, Python's line as a Site, and errors across the border.
#pragma once

#include <Python.h>

#include <utility>

#include "base/error.h"
#include "base/site.h"

namespace deft::python {

// Owns one reference.
class Ref {
 public:
  Ref() = default;
  static Ref steal(PyObject* p) {
    Ref r;
    r.p_ = p;
    return r;
  }
  static Ref share(PyObject* p) {
    Py_XINCREF(p);
    return steal(p);
  }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref(const Ref&) = delete;
  Ref& operator=(Ref&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() { Py_XDECREF(p_); }
  PyObject* get() const { return p_; }
  PyObject* release() { return std::exchange(p_, nullptr); }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  PyObject* p_ = nullptr;
};

// Thrown where a Python error is set already.
struct PythonError {};

inline PyObject* checked(PyObject* p) {
  if (!p) throw PythonError();
  return p;
}
inline Ref owned(PyObject* p) { return Ref::steal(checked(p)); }
inline void check_status(int status) {
  if (status < 0) throw PythonError();
}
// `format` as for PyErr_Format.
[[noreturn]] void fail(PyObject* type, const char* format, ...);

// To be called in a catch block: sets the Python error that the exception means, and returns nullptr.
PyObject* translate_exception() noexcept;
void add_errors(PyObject* module);

// The line of the script that runs now. Lines are kept for good: graph nodes and tensors point to them.
Site here();

class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() { PyEval_RestoreThread(state_); }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

class GilHeld {
 public:
  GilHeld() : state_(PyGILState_Ensure()) {}
  ~GilHeld() { PyGILState_Release(state_); }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

// False once the interpreter is going: objects that C++ still owns are then left alone.
inline bool interpreter_lives() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// A Python object that C++ may copy and drop on any thread, with or without the interpreter's lock.
class Shared {
 public:
  Shared() = default;
  explicit Shared(PyObject* p) : p_(p) { Py_XINCREF(p_); }  // with the lock held
  Shared(const Shared& o) : p_(o.p_) { change(+1); }
  Shared(Shared&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Shared& operator=(Shared o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Shared() { change(-1); }
  PyObject* get() const { return p_; }

 private:
  void change(int by) const {
    if (!p_ || !interpreter_lives()) return;
    GilHeld lock;
    if (by > 0)
      Py_INCREF(p_);
    else
      Py_DECREF(p_);
  }
  PyObject* p_ = nullptr;
};

}  // namespace deft::python
