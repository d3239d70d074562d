#include "graph/executable.h"

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "core/tensor_impl.h"
#include "runtime/memory.h"
#include "runtime/profile_hook.h"

namespace deft::graph {

struct Executable::Impl {
  struct Step {
    KernelFn kernel;
    const OpDef* def;
    std::vector<const Tensor*> inputs;
    std::vector<Tensor> outputs;
    std::vector<std::byte> params;
    Site site;
    BufferId written = kNone;  // of a constant: its version counts up
    std::shared_ptr<const OutsideCall> outside = nullptr;
  };

  explicit Impl(Graph g) : graph(std::move(g)), memory(plan_memory(graph)), values(graph.values.size()) {
    if (memory.bytes > 0) arena = static_cast<char*>(allocate_buffer(static_cast<size_t>(memory.bytes)));
    memory_acquired(static_cast<size_t>(memory.bytes), MemoryCategory::workspace);
    results.resize(graph.buffers.size());
    for (ValueId id : graph.outputs) is_result(graph.value(id).buffer) = true;
    for (size_t i = 0; i < values.size(); ++i) bind_fixed(static_cast<ValueId>(i));
    for (const Instruction& x : graph.instructions)
      if (x.action != Action::view) add_step(x);
  }
  ~Impl() {
    steps.clear();
    values.clear();
    memory_released(static_cast<size_t>(memory.bytes), MemoryCategory::workspace);
    if (arena) free_buffer(arena, static_cast<size_t>(memory.bytes));
  }

  std::vector<bool>::reference is_result(BufferId id) {
    if (result_buffer.empty()) result_buffer.resize(graph.buffers.size());
    return result_buffer[static_cast<size_t>(id)];
  }

  // Values whose memory never moves: constants and the arena. The others are bound in each run.
  void bind_fixed(ValueId id) {
    const Value& v = graph.value(id);
    const Buffer& b = graph.buffer_of(id);
    if (b.kind == BufferKind::constant) {
      values[static_cast<size_t>(id)] = on_memory_of(b.constant, v);
    } else if (memory.offsets[static_cast<size_t>(v.buffer)] != kOutside) {
      char* at = arena + memory.offsets[static_cast<size_t>(v.buffer)] + v.offset;
      values[static_cast<size_t>(id)] = Tensor(make_external(at, v.meta, {}));
    } else if (b.kind == BufferKind::input || is_result(v.buffer)) {
      moving.push_back(id);
    }  // else nothing uses it any more
  }
  void add_step(const Instruction& x) {
    Step s{nullptr, x.def, {}, {}, x.params, x.site};
    for (ValueId id : x.inputs) s.inputs.push_back(id == kNone ? &undefined : &values[static_cast<size_t>(id)]);
    s.outside = x.outside;
    if (!s.outside) add_kernel(s, x);
    steps.push_back(std::move(s));
  }
  void add_kernel(Step& s, const Instruction& x) {
    for (ValueId id : x.outputs) {
      s.outputs.push_back(values[static_cast<size_t>(id)]);
      if (!s.outputs.back().defined()) moving_outputs.push_back({steps.size(), s.outputs.size() - 1, id});
    }
    Device device = graph.value(x.outputs[0]).meta.device;
    s.kernel = x.def->kernels[static_cast<int>(device.type)];
    DEFT_CHECK(s.kernel, UnsupportedError, "{}: has no kernel for {}", x.def->info.name, to_string(device));
    const Value& out = graph.value(x.outputs[0]);
    if (x.action == Action::write && graph.buffer_of(x.outputs[0]).kind == BufferKind::constant) s.written = out.buffer;
  }
  static void run_outside(const Step& s) {
    std::vector<Tensor> tensors;
    for (const Tensor* t : s.inputs) tensors.push_back(*t);
    s.outside->run(tensors);
  }

  // A tensor over all of a result's memory; the last one if nobody else holds it any more.
  Tensor& fresh(BufferId id) {
    Tensor& t = results[static_cast<size_t>(id)];
    bool free = t.defined() && t.impl()->unique() && t.impl()->storage->refs.load(std::memory_order_acquire) == 1;
    if (free) return t;
    Device device;
    for (const Value& v : graph.values)
      if (v.buffer == id) device = v.meta.device;
    Meta bytes = Meta::dense({static_cast<int64_t>(graph.buffers[static_cast<size_t>(id)].bytes)}, DType::u8, device);
    return t = Tensor(make_tensor(bytes));
  }

  void bind(const std::vector<Tensor>& inputs) {
    for (ValueId id : moving) {
      const Value& v = graph.value(id);
      Tensor& slot = values[static_cast<size_t>(id)];
      if (graph.buffer_of(id).kind == BufferKind::temporary) continue;
      size_t i = input_of(v.buffer);
      ImplPtr alias = make_alias(*inputs[i].impl(), v.meta, 0);
      alias->data = static_cast<char*>(inputs[i].data_ptr()) + (v.offset - graph.value(graph.inputs[i]).offset);
      slot = Tensor(alias);
    }
    for (size_t i = 0; i < results.size(); ++i)
      if (result_buffer.size() > i && result_buffer[i] && graph.buffers[i].kind == BufferKind::temporary)
        fresh(static_cast<BufferId>(i));
    for (ValueId id : moving) {
      const Value& v = graph.value(id);
      if (graph.buffer_of(id).kind == BufferKind::temporary)
        values[static_cast<size_t>(id)] = on_memory_of(results[static_cast<size_t>(v.buffer)], v);
    }
    for (const MovingOutput& m : moving_outputs) steps[m.step].outputs[m.at] = values[static_cast<size_t>(m.value)];
  }
  // Nothing of the caller's is kept between runs.
  void release() {
    for (const MovingOutput& m : moving_outputs) steps[m.step].outputs[m.at] = Tensor();
    for (ValueId id : moving) values[static_cast<size_t>(id)] = Tensor();
  }
  size_t input_of(BufferId id) const {
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (graph.value(graph.inputs[i]).buffer == id) return i;
    DEFT_FAIL(InternalError, "executable: buffer {} is no input's", id);
  }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    NoGradGuard no_grad;
    bind(inputs);
    for (Step& s : steps) {
      Zone zone(s.def->info.name, s.site);
      if (s.outside) {
        run_outside(s);
        continue;
      }
      if (s.def->redraw) s.def->redraw(s.params.data());
      KernelCall call{*s.def, s.inputs.data(), static_cast<int>(s.inputs.size()), s.outputs.data(), s.params.data()};
      s.kernel(call);
      if (s.written != kNone)
        graph.buffers[static_cast<size_t>(s.written)].constant.impl()->storage->bump_version(s.def->info.name, s.site);
    }
    std::vector<Tensor> out;
    for (ValueId id : graph.outputs) out.push_back(values[static_cast<size_t>(id)]);
    release();
    return out;
  }

  Graph graph;
  MemoryPlan memory;
  std::vector<Tensor> values;
  std::vector<Tensor> results;  // by buffer
  std::vector<bool> result_buffer;
  std::vector<ValueId> moving;  // bound anew in each run: on inputs and on results
  struct MovingOutput {
    size_t step, at;
    ValueId value;
  };
  std::vector<MovingOutput> moving_outputs;
  std::vector<Step> steps;
  char* arena = nullptr;
  Tensor undefined;
};

Executable::Executable(Graph graph) : impl_(std::make_unique<Impl>(std::move(graph))) {}
Executable::~Executable() = default;

std::vector<Tensor> Executable::run(const std::vector<Tensor>& inputs) {
  const Graph& g = impl_->graph;
  DEFT_CHECK(inputs.size() == g.inputs.size(), ValueError, "executable: found {} inputs, expected {}", inputs.size(),
             g.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Meta &have = inputs[i].meta(), &want = g.value(g.inputs[i]).meta;
    DEFT_CHECK(have.sizes == want.sizes && have.dtype == want.dtype && have.strides == want.strides &&
                   have.device == want.device,
               ShapeError, "executable: input {} is {}, it was captured with {}", i, describe(have), describe(want));
  }
  return impl_->run(inputs);
}

const Graph& Executable::graph() const { return impl_->graph; }
const MemoryPlan& Executable::memory() const { return impl_->memory; }
size_t Executable::kernels() const { return impl_->steps.size(); }

}  // namespace deft::graph
