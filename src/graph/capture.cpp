#include "graph/capture.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "core/capture_hook.h"
#include "core/describe.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "core/leaf_state.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/param_fields.h"

namespace deft::graph {

namespace {

class Recorder : public CaptureHook {
 public:
  Recorder(const std::vector<Tensor>& inputs, const std::vector<Tensor>& callers)
      : inputs_(inputs), gradients_(is_grad_enabled()) {
    for (size_t i = 0; i < callers.size(); ++i) callers_.emplace(callers[i].impl(), i);
    for (const Tensor& t : inputs) {
      DEFT_CHECK(t.defined(), ValueError, "capture: an input is an undefined tensor; give every input a value");
      DEFT_CHECK(!gradients_ || t.is_leaf(), CaptureError,
                 "capture: input {} {} is the result of {} and has a history, which a replay could not follow; "
                 "detach() it, or compute it inside the function",
                 graph_.inputs.size(), describe(t.meta()), t.grad_fn_name());
      if (!buffers_.contains(t.impl()->storage)) add_storage(t, BufferKind::input);
      graph_.inputs.push_back(add(t));
    }
    if (gradients_) note_input_needs();
  }

  void op(const OpDef& def, const Tensor* const* inputs, int count, const Tensor* outputs, const void* params,
          const Site& site) override {
    DEFT_CHECK(def.infer, CaptureError,
               "capture: the shape of the result of {} depends on values ({}); leave it outside the compiled function",
               def.info.name, to_string(site));
    check_draw(def, site);
    if (new_bytes_ > std::max(kLeastBytes, kept_bytes_ / 8)) forget_unused();
    Instruction x = make_instruction(def, Action::make, inputs, count, params, site);
    for (int i = 0; i < def.info.outputs; ++i) {
      // A result may be known already: ops that return their input.
      bool known = values_.contains(outputs[i].impl());
      if (!known) add_storage(outputs[i], BufferKind::temporary);
      x.outputs.push_back(add(outputs[i]));
    }
    x.again = is_again();
    note_effects(x);
    for (ValueId id : rewritten_values(x)) {
      mark_written(graph_.value(id).buffer);
      moved_.emplace_back(graph_.value(id).buffer, site);
    }
    graph_.instructions.push_back(std::move(x));
  }

  void before_write(const OpDef& def, const Tensor* const* inputs, int, const Site& site) override {
    check_draw(def, site);
    BufferId id = graph_.value(value_of(*inputs[0])).buffer;
    DEFT_CHECK(!fixed_.contains(id), CaptureError,
               "capture: {} writes a tensor {} that index() took an element of by a number on the device ({}), which a "
               "replay reads as a copy; write it before, or give the number as an integer",
               def.info.name, describe(inputs[0]->meta()), to_string(site));
    keep_start(id);
  }
  void write(const OpDef& def, const Tensor* const* inputs, int count, const void* params, const Site& site) override {
    Instruction x = make_instruction(def, Action::write, inputs, count, params, site);
    x.outputs.push_back(x.inputs[0]);
    mark_written(graph_.value(x.inputs[0]).buffer);
    graph_.instructions.push_back(std::move(x));
  }

  void view(const OpDef& def, const Tensor& x, const Tensor& out, const void* params, const Site& site) override {
    const Tensor* in[] = {&x};
    Instruction instruction = make_instruction(def, Action::view, in, 1, params, site);
    instruction.outputs.push_back(add(out));
    if (instruction.outputs[0] != instruction.inputs[0]) graph_.instructions.push_back(std::move(instruction));
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
    check_read(is_constant(x), what, x.meta(), effective_site(site));
    const uint64_t stamp = x.impl()->storage->stamp();
    for (Read& r : read_)
      if (r.tensor.shares_storage_with(x)) r.stamp = stamp;  // asking for data<T>() makes another one
    read_.push_back({x, what, effective_site(site), stamp});
  }

  void leaf_grad(TensorImpl& leaf) override {
    if (leaf.grad_fn || touched_.contains(&leaf)) return;
    auto known = buffers_.find(leaf.storage);
    if (known != buffers_.end() && graph_.buffers[at(known->second)].kind == BufferKind::temporary) return;
    touched_.insert(&leaf);
    LeafState* state = leaf.leaf.load(std::memory_order_acquire);
    Tensor grad = state ? Tensor(ImplPtr::share(state->grad)) : Tensor();
    if (grad.defined()) {
      DEFT_CHECK(!grad.requires_grad() && !buffers_.contains(grad.impl()->storage), CaptureError,
                 "capture: the gradient {} of a leaf has a history, or was used before under another name; let the "
                 "function read it from the leaf's grad()",
                 describe(grad.meta()));
      add_storage(grad, BufferKind::input);
      graph_.inputs.push_back(add(grad));
    }
    leaves_.push_back({Tensor(ImplPtr::share(&leaf)), std::move(grad)});
  }
  bool is_constant(const Tensor& x) const override {
    auto known = buffers_.find(x.impl()->storage);
    return known == buffers_.end() || is_constant(known->second);
  }
  void copied_view(const Tensor& x, const Tensor& copy) override {
    fixed_.insert(graph_.value(value_of(x)).buffer);
    fixed_.insert(graph_.value(value_of(copy)).buffer);
  }
  void backward_ran(const Node& node) override { ran_.insert(&node); }

  bool is_only_here(const Tensor& x) const override {
    const Storage* s = x.impl()->storage;
    auto known = headers_.find(s);
    if (known == headers_.end() || graph_.buffers[at(buffers_.at(x.impl()->storage))].kind != BufferKind::temporary)
      return false;
    uint32_t others = values_.contains(x.impl()) ? 0 : 1;
    for (const TensorImpl* h : known->second)
      if (h->refs.load(std::memory_order_acquire) > references(*h) + (h == x.impl())) return false;
    return s->refs.load(std::memory_order_acquire) <= known->second.size() + others;
  }
  size_t recorded_count() const override { return graph_.instructions.size(); }
  void detached(const Tensor& x) override { note_held(x); }

  Captured finish(std::vector<Tensor> results) {
    check_input_needs();
    for (size_t i = 0; i < results.size(); ++i) {
      DEFT_CHECK(results[i].defined(), CaptureError,
                 "capture: result {} is an undefined tensor; return one with a value, or none", i);
      graph_.outputs.push_back(value_of(results[i]));
      results[i] = without_history(results[i], i);
    }
    drop_histories();
    add_gradients(results);
    for (ValueId id : graph_.outputs) keep_start(graph_.value(id).buffer);  // each run gives the caller a new one
    make_own_tensors(results);
    for (const auto& [id, site] : moved_)
      DEFT_CHECK(!is_constant(id) || !is_own(graph_.buffers[at(id)], results), CaptureError,
                 "capture: the function makes the running statistics that {} moves; make them outside",
                 to_string(site));
    keep_outside_needs(results);
    std::string kept = kept_by_function(results);
    Captured captured{{}, std::move(results), std::move(state_), reads(), std::move(held_), std::move(kept)};
    verify(graph_, "capture");
    captured.graph = std::move(graph_);
    return captured;
  }

 private:
  // A checkpoint computes in backward what it did before, and draws the same numbers.
  static bool is_again() { return in_backward() && is_grad_enabled(); }
  static size_t at(BufferId id) { return static_cast<size_t>(id); }
  bool is_constant(BufferId id) const { return graph_.buffers[at(id)].kind == BufferKind::constant; }

  static void check_read(bool good, const char* what, const Meta& meta, const Site& site) {
    DEFT_CHECK(
        good, CaptureError,
        "capture: {}() reads a value of {} on the host ({}), and what follows may depend on it; move it outside the "
        "compiled function",
        what, describe(meta), to_string(site));
  }
  // Guards values that the host read: they must not change.
  std::vector<Dependency> reads() const {
    std::vector<Dependency> all;
    for (const Read& r : read_) {
      auto known = buffers_.find(r.tensor.impl()->storage);
      const Buffer* b = known == buffers_.end() ? nullptr : &graph_.buffers[at(known->second)];
      check_read(!b || !b->written, r.what, r.tensor.meta(), r.site);
      if (!b || b->kind == BufferKind::constant) all.push_back({r.tensor, r.stamp});
    }
    return all;
  }

  Tensor without_history(const Tensor& t, size_t index) const {
    if (!t.requires_grad()) return t;
    NodePtr node = t.grad_fn();
    DEFT_CHECK(!node || ran_.contains(node.get()), CaptureError,
               "capture: result {}, of {} at {}, still needs its graph, which a replay does not make: no backward() "
               "inside the function used it up; return its detach(), or call the function under no_grad",
               index, node->type->name, to_string(node->site));
    LeafState* state = t.impl()->leaf.load(std::memory_order_acquire);
    DEFT_CHECK(!node || !state || !state->grad, CaptureError,
               "capture: result {} retains its gradient; return that as a result of its own", index);
    return t.detach();
  }
  // Tensors that the function made need no guard.
  void keep_outside_needs(const std::vector<Tensor>& results) {
    std::vector<GradState::Need> outside;
    for (const GradState::Need& n : state_.constants) {
      const Buffer& b = graph_.buffers[at(buffers_.at(n.constant.impl()->storage))];
      if (b.kind == BufferKind::constant && !is_own(b, results) && !is_forgotten(n.constant)) outside.push_back(n);
    }
    state_.constants = std::move(outside);
  }
  // That this capture has to a header in kept_: its own and those of views.
  uint32_t references(const TensorImpl& t) const {
    uint32_t count = 1;
    for (const TensorImpl* other : headers_.at(t.storage)) count += other->base == &t;
    return count;
  }
  // The last ones first: each node goes with the tensor it made.
  void drop_histories() {
    while (!nodes_.empty()) nodes_.pop_back();
    for (size_t i = kept_.size(); i-- > 0;) {
      TensorImpl* t = kept_[i].impl();
      if (!t->grad_fn || t->refs.load(std::memory_order_acquire) > references(*t)) continue;
      if (Node* n = std::exchange(t->grad_fn, nullptr)) n->release();
      t->flags &= static_cast<uint8_t>(~kRequiresGrad);
    }
  }
  void add_gradients(const std::vector<Tensor>& results) {
    for (const Touched& l : leaves_) {
      auto known = buffers_.find(l.leaf.impl()->storage);
      // A leaf that the function made goes with it.
      if (known != buffers_.end() && is_constant(known->second) && is_own(graph_.buffers[at(known->second)], results))
        continue;
      LeafGrad g{.leaf = {}, .before = l.before.defined()};
      if (g.before) g.meta = l.before.meta();
      for (size_t i = 0; i < inputs_.size(); ++i)
        if (inputs_[i].is_same(l.leaf)) g.input = static_cast<int32_t>(i);
      if (g.input < 0 && !g.before && is_forgotten(l.leaf)) continue;  // made on memory that was there
      if (g.input < 0) g.leaf = l.leaf;
      if (Tensor now = l.leaf.grad(); now.defined()) {
        DEFT_CHECK(!now.requires_grad(), CaptureError,
                   "capture: the gradient {} that the function leaves in a leaf has a history; call backward() without "
                   "create_graph, or detach() it",
                   describe(now.meta()));
        bool same = g.before && now.impl()->data == l.before.impl()->data && now.strides() == l.before.strides();
        g.after = same ? LeafGrad::After::same : LeafGrad::After::made;
        if (!same) graph_.outputs.push_back(value_of(now)), ++state_.made;
      }
      state_.leaves.push_back(std::move(g));
    }
  }

  BufferId add_storage(const Tensor& t, BufferKind kind) {
    Storage* s = t.impl()->storage;
    BufferId id = graph_.add_buffer(kind, s->nbytes, kind == BufferKind::constant ? t : Tensor());
    buffers_.emplace(s, id);
    if (kind == BufferKind::temporary) new_bytes_ += s->nbytes;
    return id;
  }
  // Frees memory that only this capture still holds, as without a capture. Neither it nor its headers can appear again,
  // so their addresses may be reused.
  void forget_unused() {
    std::unordered_set<const Storage*> gone;
    kept_bytes_ = new_bytes_ = 0;
    for (const auto& [storage, headers] : headers_) {
      const BufferId id = buffers_.at(const_cast<Storage*>(storage));
      if (graph_.buffers[at(id)].kind != BufferKind::temporary) continue;
      if (is_unused(*storage, headers)) {
        gone.insert(storage);
      } else {
        kept_bytes_ += storage->nbytes;
      }
    }
    if (gone.empty()) return;
    std::erase_if(kept_, [&](Tensor& t) { return gone.contains(t.impl()->storage) && (forget(*t.impl()), true); });
    for (const Storage* s : gone) {
      headers_.erase(s);
      buffers_.erase(const_cast<Storage*>(s));
    }
  }
  bool is_unused(const Storage& s, const std::vector<TensorImpl*>& headers) const {
    if (s.refs.load(std::memory_order_acquire) > headers.size()) return false;
    return std::none_of(headers.begin(), headers.end(), [&](const TensorImpl* h) {
      return h->refs.load(std::memory_order_acquire) > references(*h) || h->leaf.load(std::memory_order_acquire);
    });
  }
  void forget(TensorImpl& t) {
    values_.erase(&t);
    if (t.grad_fn) nodes_.push_back(NodePtr::adopt(std::exchange(t.grad_fn, nullptr)));
  }
  // The value for a tensor whose storage is known. Headers that show the same place in the same way share one.
  ValueId add(const Tensor& t) {
    auto [at, added] = values_.try_emplace(t.impl(), kNone);
    if (!added) return at->second;
    kept_.push_back(t);
    headers_[t.impl()->storage].push_back(t.impl());
    BufferId buffer = buffers_.at(t.impl()->storage);
    auto offset = static_cast<const char*>(t.impl()->data) - static_cast<const char*>(t.impl()->storage->data);
    for (ValueId id : of_buffer_[buffer])
      if (is_at(graph_.value(id), offset, t.meta())) return at->second = id;
    at->second = graph_.add_value(t.meta(), buffer, offset);
    of_buffer_[buffer].push_back(at->second);
    return at->second;
  }
  static bool is_at(const Value& v, int64_t offset, const Meta& m) {
    return v.offset == offset && v.meta.dtype == m.dtype && v.meta.sizes == m.sizes && v.meta.strides == m.strides &&
           v.meta.wrapped_number == m.wrapped_number;
  }
  void note_held(const Tensor& t) {
    auto callers = callers_.find(t.impl());
    if (callers == callers_.end() || values_.contains(t.impl())) return;
    if (std::find(held_.begin(), held_.end(), callers->second) == held_.end()) held_.push_back(callers->second);
  }
  ValueId value_of(const Tensor& t) {
    note_held(t);
    if (!buffers_.contains(t.impl()->storage)) {
      DEFT_CHECK(!gradients_ || t.is_leaf(), CaptureError,
                 "capture: a tensor {} that the function did not make is the result of {} and has a history, which a "
                 "replay could not follow; detach() it, or compute it inside the function",
                 describe(t.meta()), t.grad_fn_name());
      add_storage(t, BufferKind::constant);
    }
    if (!values_.contains(t.impl())) note_need(t);
    return add(t);
  }
  // Freezing a weight, or the opposite, makes another graph, and so does a hook on its gradient.
  void note_need(const Tensor& t) {
    if (!gradients_ || !is_constant(buffers_.at(t.impl()->storage))) return;
    if (!is_floating(t.dtype()) || t.meta().wrapped_number || !t.is_leaf()) return;
    state_.constants.push_back({t, t.requires_grad(), hooks_of(t)});
  }
  void note_input_needs() {
    std::vector<const Tensor*> pointers;
    for (const Tensor& t : inputs_) pointers.push_back(&t);
    for (size_t i = 0; i < inputs_.size(); ++i)
      state_.needs_inputs.push_back({inputs_[i].requires_grad(), hooks_of(inputs_[i]), first_same(pointers, i)});
  }
  void check_input_needs() const {
    for (size_t i = 0; i < state_.needs_inputs.size(); ++i)
      DEFT_CHECK(state_.needs_inputs[i].requires_grad || !inputs_[i].requires_grad() || !inputs_[i].is_leaf(),
                 CaptureError,
                 "capture: the function makes input {} {} require grad, which a replay would not do; call "
                 "requires_grad_() before, or on its detach()",
                 i, describe(inputs_[i].meta()));
  }

  Instruction make_instruction(const OpDef& def, Action action, const Tensor* const* inputs, int count,
                               const void* params, const Site& site) {
    Instruction x{&def, action, {}, {}, {}, site};
    for (int i = 0; i < count; ++i) x.inputs.push_back(inputs[i]->defined() ? value_of(*inputs[i]) : kNone);
    if (def.params_bytes) x.params = settled_params(def, static_cast<const std::byte*>(params));
    return x;
  }

  void keep_start(BufferId id) {
    const Buffer& b = graph_.buffers[static_cast<size_t>(id)];
    if (b.kind != BufferKind::constant || starts_.contains(id) || !b.constant.device().is_cpu()) return;
    Storage* s = b.constant.impl()->storage;
    Tensor copy = empty({static_cast<int64_t>(s->nbytes)}, {DType::u8});
    std::memcpy(copy.impl()->data, s->data, s->nbytes);
    starts_.emplace(id, Start{copy, graph_.instructions.size()});
  }
  void mark_written(BufferId id) {
    Buffer& b = graph_.buffers[static_cast<size_t>(id)];
    if (b.kind == BufferKind::constant) b.written = true;
  }

  // True where only this capture still holds the header.
  bool is_forgotten(const Tensor& t) const {
    uint32_t mine = values_.contains(t.impl()) ? references(*t.impl()) : 0;
    for (const Touched& l : leaves_) mine += l.leaf.is_same(t);
    for (const GradState::Need& n : state_.constants) mine += n.constant.is_same(t);
    for (const Buffer& b : graph_.buffers) mine += b.constant.defined() && b.constant.is_same(t);
    for (const Read& r : read_) mine += r.tensor.is_same(t);
    return t.impl()->refs.load(std::memory_order_acquire) <= mine;
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
    for (const Touched& l : leaves_) owns(l.leaf), owns(l.before);
    for (const GradState::Need& n : state_.constants) owns(n.constant);
    for (const Read& r : read_) owns(r.tensor);
    for (const Tensor& t : kept_)
      if (TensorImpl* base = t.impl()->base; base && mine.contains(base)) ++mine[base];
    for (const auto& [header, refs] : mine)
      if (header->refs.load(std::memory_order_acquire) > refs) return false;
    return s->refs.load(std::memory_order_acquire) <= headers;
  }

  // Tensors of the function that are still held elsewhere than by the caller (results) and by leaves (gradients).
  std::string kept_by_function(const std::vector<Tensor>& results) const {
    std::unordered_map<const TensorImpl*, uint32_t> known;
    std::unordered_map<const Storage*, size_t> others;  // headers of results that were never recorded
    for (const Tensor& t : results) {
      if (known[t.impl()]++ > 0 || values_.contains(t.impl())) continue;
      ++others[t.impl()->storage];
      if (t.impl()->base) ++known[t.impl()->base];
    }
    std::unordered_set<const LeafState*> leaves;
    auto count_grad = [&](const TensorImpl& t) {
      const LeafState* state = t.leaf.load(std::memory_order_acquire);
      if (state && state->grad && leaves.insert(state).second) ++known[state->grad];
    };
    for (const Tensor& t : kept_) {
      ++known[t.impl()];
      if (t.impl()->base) ++known[t.impl()->base];
      count_grad(*t.impl());
    }
    for (const Touched& l : leaves_) count_grad(*l.leaf.impl());
    auto is_held = [&](const TensorImpl* h) { return h->refs.load(std::memory_order_acquire) > known[h]; };
    for (const auto& [storage, headers] : headers_) {
      if (graph_.buffers[at(buffers_.at(const_cast<Storage*>(storage)))].kind != BufferKind::temporary) continue;
      auto held = std::find_if(headers.begin(), headers.end(), is_held);
      if (held == headers.end() && storage->refs.load(std::memory_order_acquire) > headers.size() + others[storage])
        held = headers.begin();
      if (held != headers.end()) return describe_kept(**held);
    }
    return {};
  }
  std::string describe_kept(const TensorImpl& t) const {
    const BufferId buffer = buffers_.at(t.storage);
    std::string made;
    for (const Instruction& x : graph_.instructions)
      for (ValueId id : x.outputs)
        if (made.empty() && graph_.value(id).buffer == buffer)
          made = fmt::format(", made by {} ({})", x.def->info.name, to_string(x.site));
    return fmt::format("the function keeps {}{}, which a replay would not renew; return it as a result",
                       describe(t.meta), made);
  }

  // Tensors that the function made without an op and then wrote: each run begins with their first values.
  void make_own_tensors(const std::vector<Tensor>& results) {
    for (auto& [id, start] : starts_) {
      Buffer& b = graph_.buffers[static_cast<size_t>(id)];
      if (!is_own(b, results)) continue;
      b = {BufferKind::temporary, b.bytes, {}, false};
      const size_t first = first_use(id);
      if (make_instead(first, id)) continue;
      BufferId from = graph_.add_buffer(BufferKind::constant, start.bytes.impl()->storage->nbytes, start.bytes);
      Meta meta = start.bytes.meta();
      ValueId source = graph_.add_value(meta, from);
      ValueId target = graph_.add_value(meta, id);
      pending_.emplace_back(first, clone_into(source, target, {}));
    }
    std::stable_sort(pending_.begin(), pending_.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& [at, x] : pending_)
      graph_.instructions.insert(graph_.instructions.begin() + static_cast<std::ptrdiff_t>(at), std::move(x));
  }
  static Instruction clone_into(ValueId source, ValueId target, const Site& site) {
    Instruction x{&op_def<Clone>, Action::make, {source}, {target}, {}, site};
    Clone::Params params{MemoryFormat::contiguous};
    const auto* bytes = reinterpret_cast<const std::byte*>(&params);
    x.params.assign(bytes, bytes + op_def<Clone>.params_bytes);
    return x;
  }
  // A tensor that is first overwritten as a whole needs no first value.
  bool make_instead(size_t first, BufferId id) {
    if (first == graph_.instructions.size()) return false;
    Instruction& x = graph_.instructions[first];
    if (x.def != &op_def<CopyInto> || x.action != Action::write || graph_.value(x.outputs[0]).buffer != id)
      return false;
    const Value &to = graph_.value(x.outputs[0]), &from = graph_.value(x.inputs[1]);
    const auto bytes = static_cast<size_t>(to.meta.numel) * size_of(to.meta.dtype);
    if (to.offset != 0 || !to.meta.contiguous || bytes != graph_.buffers[at(id)].bytes || from.buffer == id ||
        !(from.meta.sizes == to.meta.sizes) || from.meta.dtype != to.meta.dtype || from.meta.device != to.meta.device)
      return false;
    x = clone_into(x.inputs[1], x.outputs[0], x.site);
    return true;
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
  struct Touched {
    Tensor leaf, before;
  };
  struct Read {
    Tensor tensor;
    const char* what;
    Site site;
    uint64_t stamp;
  };
  // A replay draws from the generator of its caller.
  void check_draw(const OpDef& def, const Site& site) const {
    if (!def.redraw || is_again()) return;
    DEFT_CHECK(&generator() == generator_ && generator().state().seed == seed_, CaptureError,
               "capture: {} draws from a generator that the function made or seeded ({}); do that outside",
               def.info.name, to_string(site));
  }

  const Generator* generator_ = &generator();
  uint64_t seed_ = generator().state().seed;
  std::unordered_map<const TensorImpl*, size_t> callers_;
  std::vector<size_t> held_;
  const std::vector<Tensor>& inputs_;
  const bool gradients_;  // are on when the function is called
  GradState state_;
  std::vector<Touched> leaves_;
  std::unordered_set<const TensorImpl*> touched_;
  std::unordered_set<const Node*> ran_;
  std::vector<Read> read_;
  std::vector<std::pair<BufferId, Site>> moved_;  // running statistics
  std::unordered_set<BufferId> fixed_;            // a view of them is a copy here: neither may be written
  Graph graph_;
  std::unordered_map<const Storage*, std::vector<TensorImpl*>> headers_;  // of the tensors in kept_
  std::unordered_map<BufferId, std::vector<ValueId>> of_buffer_;
  std::unordered_map<const TensorImpl*, ValueId> values_;
  std::unordered_map<Storage*, BufferId> buffers_;
  std::unordered_map<BufferId, Start> starts_;
  std::vector<Tensor> kept_;    // so that no address is used twice
  std::vector<NodePtr> nodes_;  // of tensors that are gone; for the same reason
  static constexpr size_t kLeastBytes = 1 << 20;
  size_t new_bytes_ = 0, kept_bytes_ = 0;  // of temporaries: since the last check, and after it
  std::vector<std::pair<size_t, Instruction>> pending_;
};

}  // namespace

Captured capture(const Function& function, const std::vector<Tensor>& inputs, const std::vector<Tensor>& callers) {
  Recorder recorder(inputs, callers);
  std::vector<Tensor> results;
  {
    CaptureScope scope(recorder);
    results = function(inputs);
  }
  return recorder.finish(std::move(results));
}

}  // namespace deft::graph
