#include "graph/capture.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/check.h"
#include "core/capture_hook.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "ops/copy.h"
#include "ops/creation.h"

namespace deft::graph {

namespace {

class Recorder : public CaptureHook {
 public:
  explicit Recorder(const std::vector<Tensor>& inputs) {
    for (const Tensor& t : inputs) {
      DEFT_CHECK(t.defined(), ValueError, "capture: an input is an undefined tensor; give every input a value");
      DEFT_CHECK(!t.requires_grad() || !is_grad_enabled(), CaptureError,
                 "capture: an input {} requires grad; capture under no_grad or inference_mode", describe(t.meta()));
      if (!buffers_.contains(t.impl()->storage)) add_storage(t, BufferKind::input);
      graph_.inputs.push_back(add(t));
    }
  }

  void op(const OpDef& def, const Tensor* const* inputs, int count, const Tensor* outputs, const void* params,
          const Site& site) override {
    check(def, outputs, def.info.outputs, site);
    DEFT_CHECK(def.infer, CaptureError,
               "capture: the shape of the result of {} depends on values ({}); leave it outside the compiled function",
               def.info.name, to_string(site));
    Instruction& x = add_instruction(def, Action::make, inputs, count, params, site);
    for (int i = 0; i < def.info.outputs; ++i) {
      // A result may be there already: ops that give their input back.
      bool known = values_.contains(outputs[i].impl());
      if (!known) add_storage(outputs[i], BufferKind::temporary);
      x.outputs.push_back(add(outputs[i]));
    }
  }

  void before_write(const OpDef& def, const Tensor* const* inputs, int count, const Site& site) override {
    check(def, inputs[0], 1, site);
    BufferId id = graph_.value(value_of(*inputs[0])).buffer;
    keep_start(id);
    // What shares memory with the target without being it is read as it was before.
    for (int i = 1; i < count; ++i) {
      const Tensor& t = *inputs[i];
      if (!t.defined() || !t.shares_storage_with(*inputs[0]) || t.impl() == inputs[0]->impl()) continue;
      DEFT_CHECK(false, CaptureError,
                 "capture: {} writes a tensor that its input {} shares memory with ({}); clone() it", def.info.name, i,
                 to_string(site));
    }
  }
  void write(const OpDef& def, const Tensor* const* inputs, int count, const void* params, const Site& site) override {
    Instruction& x = add_instruction(def, Action::write, inputs, count, params, site);
    x.outputs.push_back(x.inputs[0]);
    mark_written(graph_.value(x.inputs[0]).buffer);
  }

  void view(const OpDef& def, const Tensor& x, const Tensor& out, const void* params, const Site& site) override {
    const Tensor* in[] = {&x};
    Instruction& instruction = add_instruction(def, Action::view, in, 1, params, site);
    instruction.outputs.push_back(add(out));
  }

  void outside_call(const char* name, std::span<const Tensor> tensors, size_t written,
                    std::function<void(std::span<const Tensor>)> run, const Site& site) override {
    Instruction x{&kOutsideCall, Action::call, {}, {}, {}, site};
    for (const Tensor& t : tensors) x.inputs.push_back(t.defined() ? value_of(t) : kNone);
    for (size_t i = 0; i < written; ++i) mark_written(graph_.value(x.inputs[i]).buffer);
    x.outside = std::make_shared<const OutsideCall>(OutsideCall{name, written, std::move(run)});
    graph_.instructions.push_back(std::move(x));
  }

  void host_read(const char* what, const Tensor& x, const Site& site) override {
    if (!x.defined()) return;
    auto known = buffers_.find(x.impl()->storage);
    bool harmless =
        known == buffers_.end() || graph_.buffers[static_cast<size_t>(known->second)].kind == BufferKind::constant;
    DEFT_CHECK(
        harmless, CaptureError,
        "capture: {}() reads a value of {} on the host ({}), and what follows may depend on it; move it outside the "
        "compiled function",
        what, describe(x.meta()), to_string(effective_site(site)));
  }

  Captured finish(std::vector<Tensor> results) {
    for (const Tensor& t : results) {
      DEFT_CHECK(t.defined(), CaptureError, "capture: a result is an undefined tensor");
      graph_.outputs.push_back(value_of(t));
    }
    make_own_tensors(results);
    verify(graph_, "capture");
    return {std::move(graph_), std::move(results)};
  }

 private:
  void check(const OpDef& def, const Tensor* tensors, int count, const Site& site) const {
    for (int i = 0; i < count; ++i)
      DEFT_CHECK(!tensors[i].requires_grad(), CaptureError,
                 "capture: {} records a gradient ({}); capture under no_grad or inference_mode", def.info.name,
                 to_string(site));
  }

  BufferId add_storage(const Tensor& t, BufferKind kind) {
    Storage* s = t.impl()->storage;
    BufferId id = graph_.add_buffer(kind, s->nbytes, kind == BufferKind::constant ? t : Tensor());
    buffers_.emplace(s, id);
    return id;
  }
  // A value for a tensor whose storage is known.
  ValueId add(const Tensor& t) {
    auto [at, added] = values_.try_emplace(t.impl(), kNone);
    if (!added) return at->second;
    kept_.push_back(t);
    auto offset = static_cast<const char*>(t.data_ptr()) - static_cast<const char*>(t.impl()->storage->data);
    return at->second = graph_.add_value(t.meta(), buffers_.at(t.impl()->storage), offset);
  }
  ValueId value_of(const Tensor& t) {
    if (!buffers_.contains(t.impl()->storage)) add_storage(t, BufferKind::constant);
    return add(t);
  }

  Instruction& add_instruction(const OpDef& def, Action action, const Tensor* const* inputs, int count,
                               const void* params, const Site& site) {
    Instruction x{&def, action, {}, {}, {}, site};
    for (int i = 0; i < count; ++i) x.inputs.push_back(inputs[i]->defined() ? value_of(*inputs[i]) : kNone);
    const auto* bytes = static_cast<const std::byte*>(params);
    if (def.params_bytes) x.params.assign(bytes, bytes + def.params_bytes);
    graph_.instructions.push_back(std::move(x));
    return graph_.instructions.back();
  }

  void keep_start(BufferId id) {
    const Buffer& b = graph_.buffers[static_cast<size_t>(id)];
    if (b.kind != BufferKind::constant || starts_.contains(id) || !b.constant.device().is_cpu()) return;
    Storage* s = b.constant.impl()->storage;
    Tensor copy = empty({static_cast<int64_t>(s->nbytes)}, {DType::u8});
    std::memcpy(copy.data_ptr(), s->data, s->nbytes);
    starts_.emplace(id, Start{copy, graph_.instructions.size()});
  }
  void mark_written(BufferId id) {
    Buffer& b = graph_.buffers[static_cast<size_t>(id)];
    if (b.kind == BufferKind::constant) b.written = true;
  }

  // True where only the tensors kept here own the memory: the function made it, and it is gone with it.
  bool is_own(const Buffer& b, const std::vector<Tensor>& results) const {
    Storage* s = b.constant.impl()->storage;
    std::unordered_map<const TensorImpl*, uint32_t> mine;
    uint32_t headers = 0;
    auto owns = [&](const Tensor& t) {
      if (!t.defined() || t.impl()->storage != s) return;
      if (mine[t.impl()]++ == 0) ++headers;
    };
    for (const Tensor& t : kept_) owns(t);
    for (const Tensor& t : results) owns(t);
    for (const Buffer& other : graph_.buffers) owns(other.constant);
    for (const Tensor& t : kept_)
      if (TensorImpl* base = t.impl()->base; base && mine.contains(base)) ++mine[base];
    for (const auto& [header, refs] : mine)
      if (header->refs.load(std::memory_order_acquire) > refs) return false;
    return s->refs.load(std::memory_order_acquire) <= headers;
  }

  // Tensors that the function made without an op and then wrote: each run begins with what they were.
  void make_own_tensors(const std::vector<Tensor>& results) {
    for (auto& [id, start] : starts_) {
      Buffer& b = graph_.buffers[static_cast<size_t>(id)];
      if (!is_own(b, results)) continue;
      b = {BufferKind::temporary, b.bytes, {}, false};
      BufferId from = graph_.add_buffer(BufferKind::constant, start.bytes.impl()->storage->nbytes, start.bytes);
      Meta meta = start.bytes.meta();
      ValueId source = graph_.add_value(meta, from);
      ValueId target = graph_.add_value(meta, id);
      Instruction x{&op_def<Clone>, Action::make, {source}, {target}, {}, {}};
      Clone::Params params{MemoryFormat::contiguous};
      const auto* bytes = reinterpret_cast<const std::byte*>(&params);
      x.params.assign(bytes, bytes + op_def<Clone>.params_bytes);
      pending_.emplace_back(first_use(id), std::move(x));
    }
    std::stable_sort(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& [at, x] : pending_)
      graph_.instructions.insert(graph_.instructions.begin() + static_cast<std::ptrdiff_t>(at), std::move(x));
  }
  size_t first_use(BufferId id) const {
    for (size_t i = 0; i < graph_.instructions.size(); ++i)
      for (ValueId v : graph_.instructions[i].inputs)
        if (v != kNone && graph_.value(v).buffer == id) return i;
    return graph_.instructions.size();
  }

  struct Start {
    Tensor bytes;
    size_t at;
  };
  Graph graph_;
  std::unordered_map<const TensorImpl*, ValueId> values_;
  std::unordered_map<Storage*, BufferId> buffers_;
  std::unordered_map<BufferId, Start> starts_;
  std::vector<Tensor> kept_;  // so that no address is used twice
  std::vector<std::pair<size_t, Instruction>> pending_;
};

}  // namespace

Captured capture(const Function& function, const std::vector<Tensor>& inputs) {
  Recorder recorder(inputs);
  std::vector<Tensor> results;
  {
    CaptureScope scope(recorder);
    results = function(inputs);
  }
  return recorder.finish(std::move(results));
}

}  // namespace deft::graph
