// Plans over the tensors of another library (PyTorch), for the package deft.torch. No header of that library is
// included: its tensors are read through DLPack's table of C functions where their type has one, and through their
// methods otherwise.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "bind_op.h"
#include "core/derived_cache.h"
#include "core/describe.h"
#include "core/dlpack.h"
#include "core/grad_mode.h"
#include "core/tensor_impl.h"
#include "device_section.h"
#include "graph/capture.h"
#include "graph/executable.h"
#include "nb_tensor.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

// --- The other library's tensors

struct VersionedTensor {
  uint32_t major, minor;
  void* context;
  void (*deleter)(VersionedTensor*);
  uint64_t flags;
  DeftDLTensor tensor;
};

struct ExchangeTable {
  uint32_t major, minor;
  ExchangeTable* older;
  void* allocate;
  void* to_managed;
  int (*from_managed)(VersionedTensor*, void** object);
  int (*look)(void* object, DeftDLTensor* out);
  void* stream;
};

struct OtherLibrary {
  const ExchangeTable* table = nullptr;  // null: by methods
  Shared from_dlpack;                    // of the library
};
OtherLibrary& other() {
  static OtherLibrary& o = *new OtherLibrary;
  return o;
}

// Description of a foreign tensor: a copy, since the tensor may be freed while the GIL is released.
struct Seen {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device = kCPU;
  bool known = false;  // element type, number of dimensions and device are supported
  int rank = 0;
  int64_t sizes[kMaxDims], strides[kMaxDims];
};

std::optional<DType> dtype_of(uint8_t code, uint8_t bits) {
  switch (code << 8 | bits) {
    case 2 << 8 | 32:
      return DType::f32;
    case 2 << 8 | 64:
      return DType::f64;
    case 2 << 8 | 16:
      return DType::f16;
    case 4 << 8 | 16:
      return DType::bf16;
    case 0 << 8 | 8:
      return DType::i8;
    case 1 << 8 | 8:
      return DType::u8;
    case 0 << 8 | 32:
      return DType::i32;
    case 0 << 8 | 64:
      return DType::i64;
    case 6 << 8 | 8:
      return DType::boolean;
    default:
      return {};
  }
}
struct DLType {
  uint8_t code, bits;
};
DLType dl_type(DType t) {
  for (DLType d : {DLType{2, 32}, {2, 64}, {2, 16}, {4, 16}, {0, 8}, {1, 8}, {0, 32}, {0, 64}, {6, 8}})
    if (dtype_of(d.code, d.bits) == t) return d;
  DEFT_FAIL(InternalError, "bridge: {} has no type of DLPack", name_of(t));
}

constexpr int kDLCpu = 1, kDLCuda = 2;

std::optional<Device> device_of(const DeftDLDevice& d) {
  if (d.device_type == kDLCpu) return kCPU;
  if (d.device_type != kDLCuda || d.device_id >= device_count(DeviceType::cuda)) return {};
  return Device{DeviceType::cuda, static_cast<int8_t>(d.device_id)};
}

void look(const DeftDLTensor& t, Seen& seen) {
  std::optional<DType> dtype = dtype_of(t.dtype.code, t.dtype.bits);
  std::optional<Device> device = device_of(t.device);
  seen.known = dtype && device && t.dtype.lanes == 1 && t.ndim <= static_cast<int>(kMaxDims);
  if (!seen.known) return;
  seen.device = *device;
  seen.data = static_cast<char*>(t.data) + t.byte_offset;
  seen.dtype = *dtype;
  seen.rank = t.ndim;
  for (int i = 0; i < t.ndim; ++i) seen.sizes[i] = t.shape[i], seen.strides[i] = t.strides[i];
}

// By methods: a capsule of `x.detach()`, since tensors that require gradients give none.
void look_by_methods(PyObject* x, Seen& seen) {
  Ref plain = owned(PyObject_CallMethod(x, "detach", nullptr));
  Ref capsule = Ref::steal(PyObject_CallMethod(plain.get(), "__dlpack__", nullptr));
  seen.known = false;
  if (!capsule) {
    PyErr_Clear();  // an element type that DLPack lacks
    return;
  }
  auto* m = static_cast<DeftDLManagedTensor*>(PyCapsule_GetPointer(capsule.get(), "dltensor"));
  if (!m) throw PythonError();
  look(m->dl_tensor, seen);  // the capsule's end frees the rest
}
void look(PyObject* x, Seen& seen) {
  const ExchangeTable* table = other().table;
  if (!table) return look_by_methods(x, seen);
  DeftDLTensor t;
  if (table->look(x, &t) == 0) return look(t, seen);
  PyErr_Clear();
  seen.known = false;
}

Meta meta_of(const Seen& s) {
  Meta m = Meta::dense(Shape(IntList(s.sizes, static_cast<size_t>(s.rank))), s.dtype, s.device);
  m.set_strides(Shape(IntList(s.strides, static_cast<size_t>(s.rank))));
  return m;
}

// A tensor on foreign memory, which the caller keeps alive.
Tensor lend(const Seen& s) {
  return Tensor(make_external(s.data, meta_of(s), [] {}));
}

struct Given {
  VersionedTensor managed{};
  DeftDLManagedTensor legacy{};
  Tensor tensor;
  int64_t sizes[kMaxDims], strides[kMaxDims];
};
void describe_to(DeftDLTensor& d, Given& g) {
  const Tensor& t = g.tensor;
  std::copy(t.sizes().begin(), t.sizes().end(), g.sizes);
  std::copy(t.strides().begin(), t.strides().end(), g.strides);
  DLType type = dl_type(t.dtype());
  const Device device = t.device();
  d = {t.impl()->data,
       {device.is_cpu() ? kDLCpu : kDLCuda, device.index},
       t.dim(),
       {type.code, type.bits, 1},
       g.sizes,
       g.strides,
       0};
}

// A foreign tensor on our memory, which lives as long as that tensor.
PyObject* give(Tensor&& t) {
  auto g = std::make_unique<Given>();
  g->tensor = std::move(t);
  if (const ExchangeTable* table = other().table) {
    describe_to(g->managed.tensor, *g);
    g->managed.major = table->major, g->managed.minor = table->minor;
    g->managed.context = g.get();
    g->managed.deleter = [](VersionedTensor* self) { delete static_cast<Given*>(self->context); };
    void* object = nullptr;
    if (table->from_managed(&g.release()->managed, &object) != 0) throw PythonError();
    return static_cast<PyObject*>(object);
  }
  describe_to(g->legacy.dl_tensor, *g);
  g->legacy.manager_ctx = g.get();
  g->legacy.deleter = [](DeftDLManagedTensor* self) { delete static_cast<Given*>(self->manager_ctx); };
  Ref capsule = owned(PyCapsule_New(&g.release()->legacy, "dltensor", [](PyObject* p) {
    if (!PyCapsule_IsValid(p, "dltensor")) return;
    auto* m = static_cast<DeftDLManagedTensor*>(PyCapsule_GetPointer(p, "dltensor"));
    m->deleter(m);
  }));
  return checked(PyObject_CallOneArg(other().from_dlpack.get(), capsule.get()));
}

// --- Weights: shared by all plans of a graph

// A sample of the bytes, spread over all of them: it detects most writes that bypass the version (`w.data.copy_(...)`).
uint64_t fingerprint(const Seen& s, int64_t bytes) {
  if (!s.device.is_cpu()) return 0;  // only frozen weights are kept there
  constexpr int64_t kSamples = 8;
  uint64_t sum = 0;
  const auto* p = static_cast<const char*>(s.data);
  if (bytes < 8) {
    for (int64_t i = 0; i < bytes; ++i) sum = sum * 257 + static_cast<uint8_t>(p[i]);
    return sum;
  }
  for (int64_t i = 0; i < kSamples; ++i) {
    uint64_t word;
    std::memcpy(&word, p + (bytes - 8) / (kSamples - 1) * i, 8);
    sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
  }
  return sum;
}

int64_t version_of(PyObject* x) {
  static PyObject* name = PyUnicode_InternFromString("_version");
  Ref version = Ref::steal(PyObject_GetAttr(x, name));
  if (!version) {
    PyErr_Clear();
    return -1;  // an inference tensor has no version
  }
  return PyLong_AsLongLong(version.get());
}

struct Weight {
  Shared theirs;
  Tensor ours;
  void* data = nullptr;
  int64_t version = 0, bytes = 0;
  uint64_t print = 0;
};

enum class Change : uint8_t { none, written, moved };

Change follow(Weight& w, PyObject* x, const Seen& s) {
  const int64_t version = version_of(x);
  if (w.data != s.data || (w.theirs.get() != x && !(meta_of(s).strides == w.ours.strides()))) return Change::moved;
  const uint64_t print = fingerprint(s, w.bytes);
  const bool same = version == w.version && print == w.print;
  if (w.theirs.get() != x) w.theirs = Shared(x);
  w.version = version, w.print = print;
  return same ? Change::none : Change::written;
}
Weight take(PyObject* x, const Seen& s) {
  Weight w{Shared(x), lend(s), s.data, version_of(x), 0, 0};
  trust_versions(*w.ours.impl()->storage);
  w.ours.set_memory_category(MemoryCategory::parameter);
  w.bytes = static_cast<int64_t>(w.ours.impl()->storage->nbytes);
  w.print = fingerprint(s, w.bytes);
  return w;
}

// --- Plans

struct Argument {
  enum class Kind : uint8_t { tensor, weight, number, unseen } kind = Kind::unseen;
  Meta meta;
  int64_t number = 0;
};

// Strides of dimensions of size 1 and 0 have no effect.
bool fits(const Meta& m, const Seen& s) {
  if (!s.known || s.dtype != m.dtype || s.rank != m.rank() || !(s.device == m.device)) return false;
  for (int d = 0; d < s.rank; ++d)
    if (s.sizes[d] != m.sizes[d]) return false;
  for (int d = 0; d < s.rank; ++d)
    if (s.strides[d] != m.strides[d] && s.sizes[d] > 1 && m.numel > 0) return false;
  return true;
}

// A result of the plan, an argument passed through, or a constant.
struct Output {
  int64_t result = -1, argument = -1;
  Shared value;
};

struct Plan {
  std::vector<Argument> arguments;
  std::vector<Output> outputs;
  std::vector<Tensor> headers;  // one for each tensor argument; they follow the memory of each call
  std::vector<const Tensor*> pointers;
  std::vector<graph::Dependency> dependencies;
  graph::Notes notes;
  std::unique_ptr<graph::Executable> executable;
  std::mutex mutex;  // one run at a time

  std::vector<Tensor> run(const std::vector<Seen>& seen) {
    std::lock_guard lock(mutex);
    size_t next = 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].kind != Argument::Kind::tensor) continue;
      TensorImpl& header = *headers[next++].impl();
      header.data = header.storage->data = seen[i].data;
      header.storage->bump_version("bridge", {});
    }
    std::vector<Tensor> results(executable->graph().outputs.size());
    executable->run(pointers.data(), results.data());
    return results;
  }
};

bool is_changed(const graph::Dependency& d) { return d.tensor.impl()->storage->stamp() != d.stamp; }

std::vector<Output> read_outputs(nb::handle list) {
  std::vector<Output> all;
  for (nb::handle h : list) {
    Output o;
    nb::tuple pair = nb::cast<nb::tuple>(h);
    const auto kind = nb::cast<std::string>(pair[0]);
    if (kind == "result")
      o.result = nb::cast<int64_t>(pair[1]);
    else if (kind == "argument")
      o.argument = nb::cast<int64_t>(pair[1]);
    else
      o.value = Shared(nb::object(pair[1]).ptr());
    all.push_back(std::move(o));
  }
  return all;
}

nb::list give_outputs(const Plan& plan, PyObject* args, std::vector<Tensor>&& results) {
  Ref list = owned(PyList_New(static_cast<Py_ssize_t>(plan.outputs.size())));
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const Output& o = plan.outputs[i];
    PyObject* item = o.result >= 0     ? give(Tensor(results[static_cast<size_t>(o.result)]))
                     : o.argument >= 0 ? Py_NewRef(PyList_GET_ITEM(args, o.argument))
                                       : Py_NewRef(o.value.get());
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), item);
  }
  return nb::steal<nb::list>(list.release());
}

class Bridge {
 public:
  // Frozen weights are those of the first call for good. `gpu`: the one that all tensors lie on, -1: they lie on the
  // CPU.
  Bridge(std::vector<bool> weights, size_t limit, bool frozen, int gpu)
      : is_weight_(std::move(weights)),
        limit_(limit),
        frozen_(frozen),
        device_(gpu < 0 ? kCPU : Device{DeviceType::cuda, static_cast<int8_t>(gpu)}) {
    weights_.resize(is_weight_.size());
  }

  // Results of an existing plan; None if there is none for these arguments. `stream`: the other library's, on a GPU.
  nb::object run(nb::list args, uintptr_t stream) {
    std::vector<Seen> seen(is_weight_.size());
    look_at(args, seen);
    if (!follow_weights(args, seen)) return nb::none();
    std::shared_ptr<Plan> plan = find(args, seen);
    if (!plan) return nb::none();
    std::vector<Tensor> results;
    {
      GilReleased released;
      DeviceSection section(device_, reinterpret_cast<void*>(stream));
      results = plan->run(seen);
    }
    ++replays_;
    return give_outputs(*plan, args.ptr(), std::move(results));
  }

  // Runs `function` once on Deft tensors over the foreign memory, and keeps the resulting plan.
  nb::object add(nb::list args, nb::handle function, nb::handle outputs, uintptr_t stream) {
    std::vector<Seen> seen(is_weight_.size());
    look_at(args, seen);
    DeviceSection section(device_, reinterpret_cast<void*>(stream));
    auto plan = std::make_shared<Plan>();
    std::vector<Tensor> inputs;
    nb::list given;
    for (size_t i = 0; i < seen.size(); ++i) {
      plan->arguments.push_back(argument(args, seen, i));
      const Argument& a = plan->arguments.back();
      if (a.kind == Argument::Kind::weight) {
        if (!weights_[i].ours.defined()) weights_[i] = take(PyList_GET_ITEM(args.ptr(), ssize(i)), seen[i]);
        given.append(weights_[i].ours);
      } else if (a.kind == Argument::Kind::tensor) {
        inputs.push_back(lend(seen[i]));
        given.append(inputs.back());
      } else {
        given.append(args[i]);
      }
    }
    graph::Captured captured = capture(inputs, given, function);
    ++captures_;
    if (captured.kept.empty() && captured.gradients.is_empty()) {
      plan->outputs = read_outputs(outputs);
      finish(*plan, std::move(captured.graph), std::move(inputs));
      plan->dependencies.insert(plan->dependencies.end(), captured.read.begin(), captured.read.end());
      plans_.insert(plans_.begin(), plan);
      if (plans_.size() > limit_) plans_.pop_back();
      return give_outputs(*plan, args.ptr(), std::move(captured.results));
    }
    plan->outputs = read_outputs(outputs);
    why_not_ = captured.kept;
    return give_outputs(*plan, args.ptr(), std::move(captured.results));
  }

  nb::dict stats() const {
    nb::dict d;
    d["replays"] = replays_, d["captures"] = captures_, d["plans"] = plans_.size(), d["weight_changes"] = changes_;
    return d;
  }
  std::string explain() const {
    std::string text = why_not_.empty() ? "" : "no plan: " + why_not_ + "\n";
    for (const auto& p : plans_) {
      for (const std::string& line : p->notes.done) text += "done: " + line + "\n";
      for (const std::string& line : p->notes.left) text += "left: " + line + "\n";
      text += graph::to_text(p->executable->graph());
    }
    return text;
  }

 private:
  static Py_ssize_t ssize(size_t i) { return static_cast<Py_ssize_t>(i); }
  bool is_frozen(size_t i) const { return frozen_ && weights_[i].ours.defined(); }

  void look_at(const nb::list& args, std::vector<Seen>& seen) const {
    if (nb::len(args) != seen.size())
      fail(PyExc_ValueError, "bridge: found %zu arguments, expected %zu", nb::len(args), seen.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      PyObject* x = PyList_GET_ITEM(args.ptr(), ssize(i));
      if (is_frozen(i) || x == Py_None || PyLong_Check(x) || PyFloat_Check(x)) continue;
      look(x, seen[i]);
    }
  }

  // False where a weight has moved: all plans are invalid.
  bool follow_weights(const nb::list& args, const std::vector<Seen>& seen) {
    if (frozen_) return true;
    bool written = false;
    for (size_t i = 0; i < seen.size(); ++i) {
      Weight& w = weights_[i];
      if (!w.ours.defined()) continue;
      Change change = seen[i].known ? follow(w, PyList_GET_ITEM(args.ptr(), ssize(i)), seen[i]) : Change::moved;
      if (change == Change::none) continue;
      if (change == Change::moved) {
        ++changes_;
        plans_.clear();
        for (Weight& each : weights_) each = Weight();
        return false;
      }
      written = true;
      w.ours.impl()->storage->bump_version("bridge", {});
    }
    if (!written) return true;
    ++changes_;
    std::erase_if(plans_, [](const std::shared_ptr<Plan>& p) {
      return std::any_of(p->dependencies.begin(), p->dependencies.end(), is_changed);
    });
    return true;
  }

  std::shared_ptr<Plan> find(const nb::list& args, const std::vector<Seen>& seen) {
    for (size_t k = 0; k < plans_.size(); ++k) {
      if (!serves(*plans_[k], args, seen)) continue;
      if (k)
        std::rotate(plans_.begin(), plans_.begin() + static_cast<std::ptrdiff_t>(k),
                    plans_.begin() + static_cast<std::ptrdiff_t>(k) + 1);
      return plans_.front();
    }
    return nullptr;
  }
  bool serves(const Plan& p, const nb::list& args, const std::vector<Seen>& seen) const {
    for (size_t i = 0; i < seen.size(); ++i) {
      const Argument& a = p.arguments[i];
      if (a.kind == Argument::Kind::unseen || is_frozen(i)) continue;
      if (a.kind == Argument::Kind::number) {
        PyObject* x = PyList_GET_ITEM(args.ptr(), ssize(i));
        if (!PyLong_Check(x) || PyLong_AsLongLong(x) != a.number) return false;
      } else if (!fits(a.meta, seen[i])) {
        return false;
      }
    }
    return true;
  }

  Argument argument(const nb::list& args, const std::vector<Seen>& seen, size_t i) const {
    Argument a;
    PyObject* x = PyList_GET_ITEM(args.ptr(), ssize(i));
    if (is_frozen(i)) {
      a.kind = Argument::Kind::weight;
    } else if (PyLong_Check(x)) {
      a.kind = Argument::Kind::number;
      a.number = PyLong_AsLongLong(x);
    } else if (seen[i].known) {
      const bool keeps = is_weight_[i] && version_of(x) >= 0 && (frozen_ || seen[i].device.is_cpu());
      a.kind = keeps ? Argument::Kind::weight : Argument::Kind::tensor;
      a.meta = meta_of(seen[i]);
    }
    return a;
  }

  static graph::Captured capture(const std::vector<Tensor>& inputs, const nb::list& given, nb::handle function) {
    NoGradGuard no_grad;
    auto run = [&](const std::vector<Tensor>&) {
      Ref result = owned(PyObject_CallOneArg(function.ptr(), given.ptr()));
      std::vector<Tensor> results = tensors_of(result.get());
      for (Tensor& t : results)
        if (is_lent(t, inputs, given)) t = own_copy(t);
      return results;
    };
    return graph::capture(run, inputs);
  }
  // With the strides of `t`, also where these leave gaps.
  static Tensor own_copy(const Tensor& t) {
    if (t.meta().is_dense()) return t.clone(MemoryFormat::preserve);
    Tensor copy = as_strided(zeros({t.meta().span()}, {t.dtype()}), t.sizes(), t.strides());
    copy.copy_(t);
    return copy;
  }
  // On memory that Deft does not own.
  static bool is_lent(const Tensor& t, const std::vector<Tensor>& inputs, const nb::list& given) {
    for (const Tensor& x : inputs)
      if (x.shares_storage_with(t)) return true;
    for (nb::handle h : given)
      if (is_tensor(h.ptr()) && tensor_of(h.ptr()).shares_storage_with(t)) return true;
    return false;
  }
  static void finish(Plan& plan, graph::Graph&& graph, std::vector<Tensor>&& inputs) {
    NoGradGuard no_grad;
    graph::run_passes(graph, {}, plan.dependencies, plan.notes);
    plan.executable = std::make_unique<graph::Executable>(std::move(graph));
    plan.headers = std::move(inputs);
    for (const Tensor& t : plan.headers) plan.pointers.push_back(&t);
  }

  const std::vector<bool> is_weight_;
  const size_t limit_;
  const bool frozen_;
  const Device device_;
  std::vector<Weight> weights_;
  std::vector<std::shared_ptr<Plan>> plans_;  // most recently used first
  std::string why_not_;
  int64_t replays_ = 0, captures_ = 0, changes_ = 0;
};

void set_library(nb::handle table, nb::handle from_dlpack) {
  other().from_dlpack = Shared(from_dlpack.ptr());
  other().table = nullptr;
  if (table.is_none()) return;
  auto* t = static_cast<const ExchangeTable*>(PyCapsule_GetPointer(table.ptr(), "dlpack_exchange_api"));
  if (!t) throw PythonError();
  while (t && t->major != 1) t = t->older;
  if (t && t->look) other().table = t;
}

}  // namespace

void add_bridge(nb::module_& m) {
  m.def("_bridge_library", &set_library, nb::arg("table").none(), nb::arg("from_dlpack"),
        "Whose tensors come: DLPack's table of C functions or None, and what makes a tensor of a capsule.");
  m.def("_bridge_uses_table", [] { return other().table != nullptr; });
  nb::class_<Bridge>(m, "_Bridge")
      .def(nb::init<std::vector<bool>, size_t, bool, int>(), nb::arg("weights"), nb::arg("limit") = 16,
           nb::arg("frozen") = false, nb::arg("gpu") = -1)
      .def("run", &Bridge::run, nb::arg("args"), nb::arg("stream") = 0)
      .def("add", &Bridge::add, nb::arg("args"), nb::arg("function"), nb::arg("outputs"), nb::arg("stream") = 0)
      .def("explain", &Bridge::explain)
      .def("stats", &Bridge::stats);
}

}  // namespace deft::python
