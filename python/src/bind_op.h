// One line per function: its signature as torch has it, and a lambda whose argument types say how values are read.
//
//   bind(table, "softmax(input, dim, *, dtype=None)", kFunction | kMethod, [](const Tensor& x, int64_t dim, ...));
//
// From it come the function, the method, the in-place method, the documentation and the stubs.
#pragma once

#include <string_view>
#include <tuple>
#include <type_traits>

#include "base/check.h"
#include "convert.h"
#include "runtime/random.h"
#include "signature.h"

namespace deft::python {

enum BindTo : unsigned {
  kFunction = 1,    // deft.name
  kMethod = 2,      // Tensor.name
  kFunctional = 4,  // deft.nn.functional.name
  kPrivate = 8,     // deft._C.ops.name, for the package's own Python code
  kEverywhere = kFunction | kMethod,
};

// Any Python object; the op reads it itself, and its function returns a new reference.
struct Object {
  PyObject* p;
};
struct Returns {  // what a function that builds its own Python result gives: a new reference
  PyObject* p;
};
struct Same {};  // the result is the first argument itself
struct OrSame {  // the first argument itself if undefined: inplace=True
  Tensor tensor;
};
struct OneOrTwo {  // two only if the second is defined: return_indices=True
  Tensor first, second;
};
struct Pair {  // (values, indices) with these names
  std::array<Tensor, 2> tensors;
};

// padding=1, padding=(1, 2), padding='same'.
struct Padding {
  Ints ints;
  std::string mode;
};

// A keyword that names a choice: ValueError with the possible ones.
template <class E>
struct Choice {
  const char* name;
  E value;
};
[[noreturn]] void unknown_choice(const std::string& found, const std::string& possible);
template <class E, size_t N>
E choose(const std::string& text, const Choice<E> (&choices)[N]) {
  std::string possible;
  for (const Choice<E>& c : choices) {
    if (text == c.name) return c.value;
    possible += (possible.empty() ? "'" : ", '") + std::string(c.name) + "'";
  }
  unknown_choice(text, possible);
}

// What generator=... names; draws come from it and move it on.
struct GeneratorBox {
  PhiloxState state;
};
using GeneratorArgument = GeneratorBox*;  // null: the process-wide one
GeneratorArgument to_generator(PyObject* p);
template <class F>
auto with_generator(GeneratorArgument g, F&& f) {
  if (!g) return f();
  RngScope scope(g->state);
  auto result = f();
  g->state = rng_state();
  return result;
}
MemoryFormat to_memory_format(PyObject* p);

struct Entry {  // of the table that docs, stubs and tests read
  std::string signature, op;
  unsigned to;
};
std::vector<Entry>& entries();
void add_callable(const Signature& s, unsigned to, PyCFunction function, PyCFunction method, const char* op,
                  const char* doc);
// Names the argument that could not be read in the error that is set.
[[noreturn]] void rethrow_for_argument(const Signature& s, size_t index);

namespace binding {

// --- Reading arguments: Read<T>::get(call, slot).
template <class T>
struct Read;
template <>
struct Read<const Tensor&> {
  static const Tensor& get(const BoundCall& c, size_t i) {
    if (!is_tensor(c.slot[i])) [[unlikely]]
      fail(PyExc_TypeError, "must be Tensor, not %s", Py_TYPE(c.slot[i])->tp_name);
    return tensor_of(c.slot[i]);
  }
};
template <>
struct Read<Tensor&> {
  static Tensor& get(const BoundCall& c, size_t i) { return const_cast<Tensor&>(Read<const Tensor&>::get(c, i)); }
};
template <>
struct Read<Tensor> {  // None gives an undefined tensor
  static Tensor get(const BoundCall& c, size_t i) {
    return c.slot[i] == Py_None ? Tensor() : Read<const Tensor&>::get(c, i);
  }
};
#define DEFT_READ(Type, ...)                                              \
  template <>                                                             \
  struct Read<Type> {                                                     \
    static Type get(const BoundCall& c, size_t i) { return __VA_ARGS__; } \
  };
DEFT_READ(int64_t, to_int(c.slot[i]))
DEFT_READ(double, to_double(c.slot[i]))
DEFT_READ(bool, to_bool(c.slot[i]))
DEFT_READ(Scalar, to_scalar(c.slot[i]))
DEFT_READ(Operand, to_operand(c.slot[i]))
DEFT_READ(std::string, to_text(c.slot[i]))
DEFT_READ(DType, to_dtype(c.slot[i]))
DEFT_READ(Device, to_device(c.slot[i]))
DEFT_READ(std::vector<Tensor>, to_tensors(c.slot[i]))
DEFT_READ(Object, Object{c.slot[i]})
DEFT_READ(MemoryFormat, to_memory_format(c.slot[i]))
DEFT_READ(GeneratorArgument, to_generator(c.slot[i]))
DEFT_READ(Padding, PyUnicode_Check(c.slot[i]) ? Padding{{}, to_text(c.slot[i])} : Padding{to_ints(c.slot[i]), {}})
#undef DEFT_READ
template <>
struct Read<Ints> {
  static Ints get(const BoundCall& c, size_t i) {
    if (c.many && (!c.slot[i] || c.many[0] == c.slot[i])) return to_ints(c.many, c.many_count);
    return to_ints(c.slot[i]);
  }
};
template <>
struct Read<Dims> {
  static Dims get(const BoundCall& c, size_t i) {
    Dims d;
    if (c.slot[i] == Py_None) return d;
    d.ints = Read<Ints>::get(c, i);
    d.all = d.ints.size() == 0;
    return d;
  }
};
template <class T>
struct Read<std::optional<T>> {
  static std::optional<T> get(const BoundCall& c, size_t i) {
    if (c.slot[i] == Py_None) return {};
    return Read<T>::get(c, i);
  }
};

// --- Giving results
inline PyObject* give(const BoundCall&, Tensor&& t) { return wrap(std::move(t)); }
inline PyObject* give(const BoundCall& c, Same) { return Py_NewRef(c.slot[0]); }
inline PyObject* give(const BoundCall&, Returns r) { return checked(r.p); }
inline PyObject* give(const BoundCall&, bool v) { return PyBool_FromLong(v); }
inline PyObject* give(const BoundCall&, int64_t v) { return PyLong_FromLongLong(v); }
inline PyObject* give(const BoundCall&, double v) { return PyFloat_FromDouble(v); }
inline PyObject* give(const BoundCall& c, OrSame&& r) {
  return r.tensor.defined() ? wrap(std::move(r.tensor)) : Py_NewRef(c.slot[0]);
}
PyObject* give_list(Tensor* tensors, size_t count);
PyObject* give_pair(Pair&& pair);
inline PyObject* give(const BoundCall&, Pair&& p) { return give_pair(std::move(p)); }
inline PyObject* give(const BoundCall&, OneOrTwo&& r) {
  if (!r.second.defined()) return wrap(std::move(r.first));
  Tensor both[] = {std::move(r.first), std::move(r.second)};
  return give_list(both, 2);
}
inline PyObject* give(const BoundCall&, std::vector<Tensor>&& v) { return give_list(v.data(), v.size()); }
template <size_t N>
PyObject* give(const BoundCall&, std::array<Tensor, N>&& v) {
  return give_list(v.data(), N);
}

// --- Work done with the interpreter's lock released. Below this many elements taking it back costs more.
inline constexpr int64_t kLongWork = 8192;
template <class T>
int64_t size_for_lock(const T&) {
  return 0;
}
inline int64_t size_for_lock(const Tensor& t) { return t.defined() ? t.numel() : 0; }
inline int64_t size_for_lock(const Operand& o) { return o.tensor ? o.tensor->numel() : 0; }
inline int64_t size_for_lock(const std::vector<Tensor>& v) { return v.empty() ? 0 : kLongWork; }
inline int64_t size_for_lock(const Object&) { return INT64_MIN / 64; }  // the function may touch Python objects

template <class F>
struct Traits : Traits<decltype(&F::operator())> {};
template <class F, class R, class... A>
struct Traits<R (F::*)(A...) const> {
  using Result = R;
  static constexpr size_t kArguments = sizeof...(A) - 1;  // the last one is the Site
  template <size_t I>
  using Argument = std::tuple_element_t<I, std::tuple<A...>>;
};

template <class F>
struct Bound {
  static inline const Signature* signature = nullptr;
  using T = Traits<F>;

  template <size_t I>
  static decltype(auto) read(const BoundCall& c) {
    using A = typename T::template Argument<I>;
    try {
      return Read<A>::get(c, I);
    } catch (const PythonError&) {
      rethrow_for_argument(*signature, I);
    }
  }
  template <size_t... I>
  static PyObject* invoke(const BoundCall& c, std::index_sequence<I...>) {
    using Values = std::tuple<typename T::template Argument<I>...>;
    Values values{read<I>(c)...};
    Site site = here();
    const int64_t work = (int64_t{0} + ... + size_for_lock(std::get<I>(values)));
    auto run = [&] { return F()(std::forward<typename T::template Argument<I>>(std::get<I>(values))..., site); };
    if constexpr (std::is_same_v<typename T::Result, Returns>) {
      return give(c, run());
    } else {
      if (work < kLongWork) return give(c, run());
      auto result = [&] {
        GilReleased released;
        return run();
      }();
      return give(c, std::move(result));
    }
  }
  static PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) noexcept {
    try {
      BoundCall call;
      bind_call(*signature, self, args, count, keywords, call);
      return invoke(call, std::make_index_sequence<T::kArguments>());
    } catch (...) {
      return translate_exception();
    }
  }
  static PyObject* function(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
    return run(nullptr, args, count, keywords);
  }
  static PyObject* method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
    return run(self, args, count, keywords);
  }
};

}  // namespace binding

// `op`: its name in the op table, where that is another one. `doc`: one sentence.
template <class F>
void bind(const char* signature, unsigned to, F, const char* op = "", const char* doc = "") {
  using B = binding::Bound<F>;
  auto* s = new Signature(signature);  // for good
  B::signature = s;
  if (s->parameters.size() != binding::Traits<F>::kArguments) throw std::invalid_argument(signature);
  add_callable(*s, to, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&B::function)),
               reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&B::method)), op, doc);
}

// The families of ops; module.cpp calls them.
void bind_elementwise();
void bind_shape_ops();
void bind_reductions();
void bind_network_ops();
void bind_gradient_ops();
void bind_creation();
void bind_tensor_methods();

}  // namespace deft::python
