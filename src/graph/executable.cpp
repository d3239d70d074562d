#include "graph/executable.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "base/check.h"
#include "core/derived_cache.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "core/observer.h"
#include "core/rounded_copy.h"
#include "core/tensor_impl.h"
#include "graph/device_replay.h"
#include "graph/edit.h"
#include "ops/operand.h"
#include "ops/param_fields.h"
#include "ops/prepared_kernel.h"
#include "runtime/stream.h"

namespace deft::graph {

namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

struct Step {
  KernelFn kernel;
  const OpDef* def;
  std::vector<const Tensor*> inputs;
  std::vector<Tensor> outputs;
  std::vector<std::byte> params;
  Site site;
  bool counts_version = false;  // of the memory it writes, which the plan does not own
  std::shared_ptr<const OutsideCall> outside = nullptr;
  std::vector<Tensor> given = {};  // to code outside
  PreparedKernel prepared = nullptr;
  std::shared_ptr<const Tensor> kept = nullptr;  // a cast of its input, which may still hold: core/rounded_copy.h
  int64_t draw = -1;                             // the offset of the draw in the parameters; -1: it draws nothing
  int32_t drawn_by = kNone;  // an earlier step whose draw it takes: gradients and checkpoints draw the same numbers

  KernelCall call() { return {*def, inputs.data(), static_cast<int>(inputs.size()), outputs.data(), params.data()}; }
};

int64_t draw_offset(const OpDef& def) {
  for (const ParamField& f : param_fields(def))
    if (f.kind == FieldKind::draw) return f.offset;
  return -1;
}
PhiloxState draw_of(const Step& s) {
  PhiloxState draw;
  std::memcpy(&draw, s.params.data() + s.draw, sizeof draw);
  return draw;
}

// Conversions are instructions: ops that kernels call get none of their own.
class AutocastOff {
 public:
  AutocastOff() : was_(context().bits & kAutocast) { context().bits &= ~static_cast<uint32_t>(kAutocast); }
  ~AutocastOff() { context().bits |= was_; }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;

 private:
  uint32_t was_;
};

// A header that follows memory which is another one in each run: an input's or a result's.
//
// Note [Moving]: its storage is that of the tensor it follows, without a share in it. So it is only good while the
// caller or `results` hold that tensor, and must get its own storage back before it goes. Kernels do not keep their
// tensors; code outside the graph gets tensors of its own.
struct Moving {
  TensorImpl* header;
  size_t source;   // which input or result
  int64_t offset;  // in bytes from the first of that
};

// Memory for one or more results, reused once the caller releases it.
struct Result {
  Meta meta;  // the first output that fills it, or its bytes
  Tensor memory;
};

// It has no other owner and is in no graph.
bool is_free(const Tensor& t) {
  if (!t.defined() || !t.impl()->unique()) return false;
  const TensorImpl& x = *t.impl();
  const uint8_t flags = context().bits & kInference ? kOwnsBlock | kInferenceTensor : kOwnsBlock;
  return x.storage->refs.load(std::memory_order_acquire) == 1 && x.flags == flags && !x.grad_fn &&
         !x.leaf.load(std::memory_order_relaxed);
}

}  // namespace

struct Executable::Impl {
  explicit Impl(Graph g) : graph(std::move(g)), memory(plan_memory(graph)), values(graph.values.size()) {
    make_arena();
    add_results();
    for (size_t i = 0; i < values.size(); ++i) bind(static_cast<ValueId>(i));
    for (const Instruction& x : graph.instructions)
      if (x.action != Action::view) add_step(x);
    for (ValueId id : graph.outputs) add_output(id);
    if (!graph.instructions.empty()) prepare_device();
  }
  ~Impl() {
    on_device.reset();  // recordings hold addresses
    for (auto* list : {&input_values, &result_values})
      for (Moving& m : *list) m.header->storage = nowhere.impl()->storage;
  }

  void make_arena() {
    Device device;
    bool known = false;
    for (const Value& v : graph.values) {
      if (memory.offsets[at(v.buffer)] == kOutside) continue;
      DEFT_CHECK(!known || v.meta.device == device, UnsupportedError,
                 "executable: results in between lie on {} and on {}; compile what runs on each on its own",
                 to_string(device), to_string(v.meta.device));
      device = v.meta.device;
      known = true;
    }
    if (!known) return;
    arena = Tensor(make_tensor(Meta::dense({memory.bytes}, DType::u8, device)));
    arena.set_memory_category(MemoryCategory::workspace);
    keep_nothing_derived(*arena.impl()->storage);  // writes do not count versions here
  }

  void add_results() {
    result_of.assign(graph.buffers.size(), kNone);
    for (ValueId id : graph.outputs) {
      const Value& v = graph.value(id);
      const Buffer& b = graph.buffer_of(id);
      if (b.kind != BufferKind::temporary) continue;
      if (result_of[at(v.buffer)] == kNone) {
        result_of[at(v.buffer)] = static_cast<int32_t>(results.size());
        results.push_back({Meta::dense({static_cast<int64_t>(b.bytes)}, DType::u8, v.meta.device), {}});
        primary.push_back(kNone);
      }
      auto slot = at(result_of[at(v.buffer)]);
      if (primary[slot] != kNone || !fills(v, b)) continue;
      primary[slot] = id;
      results[slot].meta = v.meta;
      results[slot].meta.wrapped_number = false;
    }
  }
  static bool fills(const Value& v, const Buffer& b) {
    return v.offset == 0 && v.meta.is_dense() && static_cast<size_t>(v.meta.numel) * size_of(v.meta.dtype) == b.bytes;
  }

  // Constants and the arena never move. An unused value stays undefined.
  void bind(ValueId id) {
    const Value& v = graph.value(id);
    const Buffer& b = graph.buffer_of(id);
    const int64_t place = memory.offsets[at(v.buffer)];
    if (b.kind == BufferKind::constant) {
      values[at(id)] = on_memory_of(b.constant, v);
    } else if (place != kOutside) {
      Value in_arena = v;
      in_arena.offset += place;
      values[at(id)] = on_memory_of(arena, in_arena);
    } else if (b.kept) {
      values[at(id)] = on_memory_of(kept_memory(v.buffer), v);
    } else if (b.kind == BufferKind::input) {
      size_t i = input_of(v.buffer);
      input_values.push_back(follow(id, i, v.offset - graph.value(graph.inputs[i]).offset));
    } else if (result_of[at(v.buffer)] != kNone) {
      result_values.push_back(follow(id, at(result_of[at(v.buffer)]), v.offset));
    }
  }
  // Where casts of weights lie; shared with the plans before that have the same.
  const Tensor& kept_memory(BufferId buffer) {
    if (!memory_of_kept.contains(buffer)) keep(buffer);
    return memory_of_kept.at(buffer);
  }
  // All casts that lie in the buffer.
  void keep(BufferId buffer) {
    std::vector<std::pair<ValueId, Tensor>> weights;  // by their casts
    for (const Instruction& x : graph.instructions) {
      if (x.action != Action::make || graph.value(x.outputs[0]).buffer != buffer) continue;
      const ValueId from = x.inputs[0];
      weights.emplace_back(x.outputs[0], on_memory_of(graph.buffer_of(from).constant, graph.value(from)));
    }
    if (share_kept(weights)) {
      memory_of_kept[buffer] = *kept.at(weights[0].first);
      return;
    }
    Tensor whole(make_tensor(Meta::dense({static_cast<int64_t>(graph.buffers[at(buffer)].bytes / sizeof(BFloat16))},
                                         DType::bf16, graph.value(weights[0].first).meta.device)));
    whole.set_memory_category(MemoryCategory::workspace);
    keep_nothing_derived(*whole.impl()->storage);  // optimizers do not count versions here
    memory_of_kept[buffer] = whole;
    for (const auto& [id, weight] : weights) {
      const Tensor copy = on_memory_of(whole, graph.value(id));
      copy_values(weight, copy);
      kept[id] = std::make_shared<const Tensor>(copy);
      keep_rounded_copy(weight, kept[id]);
    }
  }
  // Copies that are there already, where they lie to each other as they do here.
  bool share_kept(const std::vector<std::pair<ValueId, Tensor>>& weights) {
    std::vector<std::shared_ptr<const Tensor>> copies;
    for (const auto& [id, weight] : weights) {
      copies.push_back(find_rounded_copy(weight));
      if (!copies.back()) return false;
      const TensorImpl& copy = *copies.back()->impl();
      const bool lies_so = copy.storage == copies[0]->impl()->storage &&
                           copy.storage->nbytes == graph.buffer_of(id).bytes &&
                           copy.data == static_cast<char*>(copy.storage->data) + graph.value(id).offset;
      if (!lies_so) return false;
    }
    for (size_t i = 0; i < weights.size(); ++i) kept[weights[i].first] = copies[i];
    return true;
  }
  Moving follow(ValueId id, size_t source, int64_t offset) {
    if (!nowhere.defined()) nowhere = Tensor(make_tensor(Meta::dense({0}, DType::u8, kCPU)));
    values[at(id)] = Tensor(make_alias(*nowhere.impl(), graph.value(id).meta, 0));
    return {values[at(id)].impl(), source, offset};
  }
  size_t input_of(BufferId id) const {
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (graph.value(graph.inputs[i]).buffer == id) return i;
    DEFT_FAIL(InternalError, "executable: buffer {} is no input's", id);
  }

  void add_step(const Instruction& x) {
    Step s{nullptr, x.def, {}, {}, x.params, x.site};
    for (ValueId id : x.inputs) s.inputs.push_back(id == kNone ? &undefined : &values[at(id)]);
    s.outside = x.outside;
    if (s.outside)
      for (ValueId id : x.inputs) s.given.push_back(id == kNone || moves(id) ? Tensor() : values[at(id)]);
    else
      add_kernel(s, x);
    if (x.action == Action::make && graph.buffer_of(x.outputs[0]).kept) s.kept = kept.at(x.outputs[0]);
    if (draws(x)) share_draw(s);
    if (s.kernel && s.draw < 0) s.prepared = prepare_kernel(s.call());
    steps.push_back(std::move(s));
  }
  void share_draw(Step& s) const {
    s.draw = draw_offset(*s.def);
    if (s.draw < 0) return;
    for (size_t i = 0; i < steps.size() && s.drawn_by == kNone; ++i)
      if (steps[i].draw >= 0 && draw_of(steps[i]) == draw_of(s)) s.drawn_by = static_cast<int32_t>(i);
  }
  void take_draw(Step& s) const {
    const PhiloxState draw = s.drawn_by == kNone ? generator().next_draw() : draw_of(steps[at(s.drawn_by)]);
    std::memcpy(s.params.data() + s.draw, &draw, sizeof draw);
  }
  void add_kernel(Step& s, const Instruction& x) {
    for (ValueId id : x.outputs) s.outputs.push_back(values[at(id)]);
    Device device = graph.value(x.outputs[0]).meta.device;
    s.kernel = x.def->kernel(device.type);
    DEFT_CHECK(s.kernel, UnsupportedError, "{}: has no kernel for {}", x.def->info.name, to_string(device));
    s.counts_version = x.action == Action::write && graph.buffer_of(x.outputs[0]).kind != BufferKind::temporary;
  }

  void add_output(ValueId id) {
    const int32_t slot = result_of[at(graph.value(id).buffer)];
    bool whole = slot != kNone && primary[at(slot)] == id;
    outputs.push_back({id, whole ? slot : kNone});
  }

  // Results that are still held get new memory.
  void renew_results() {
    for (Result& r : results) {
      if (is_free(r.memory)) {
        r.memory.impl()->storage->bump_version("compile", {});  // entries derived from the old bytes are invalid
        continue;
      }
      results_moved = true;
      r.memory = Tensor(make_tensor(r.meta));
    }
    if (!results_moved) return;
    for (Moving& m : result_values) point(m, *results[m.source].memory.impl());
    results_moved = false;
  }
  static void point(Moving& m, const TensorImpl& to) {
    m.header->data = static_cast<char*>(to.data) + m.offset;
    m.header->storage = to.storage;  // Note [Moving]
    m.header->flags = to.flags & kInferenceTensor;
  }

  void run(const Tensor* const* inputs, Tensor* found) {
    Zone zone("plan", Bucket::dispatch, Site());
    NoGradGuard no_grad;
    AutocastOff as_captured;
    if (!on_device || !on_device->fixed) renew_results();
    for (Moving& m : input_values) point(m, *inputs[m.source]->impl());
    if (on_device) [[unlikely]] {
      run_on_device(inputs);
    } else {
      for (Step& s : steps) run(s);
    }
    for (size_t i = 0; i < outputs.size(); ++i) found[i] = output(outputs[i]);
    if (on_device && on_device->fixed) own_results({found, outputs.size()});
  }
  void run(Step& s) {
    if (s.kept && find_rounded_copy(*s.inputs[0]) == s.kept) return;
    if (context().bits & kProfile) [[unlikely]]
      return run_watched(s);
    run_step(s);
  }
  [[gnu::cold, gnu::noinline]] void run_watched(Step& s) {
    {
      Zone zone(s.def->info.name, s.outside ? Bucket::other : kernel_bucket(s.def->info), s.site);
      run_step(s);
    }
    if (s.outside) return;
    KernelCall call = s.call();
    if (Observer* o = observer()) o->kernel_ran(call, s.site);
  }
  void run_step(Step& s) {
    if (s.outside) [[unlikely]]
      return run_outside(s);
    if (s.draw >= 0) [[unlikely]]
      take_draw(s);
    if (s.prepared) {
      s.prepared();
    } else {
      KernelCall call = s.call();
      s.kernel(call);
    }
    if (s.counts_version) [[unlikely]]
      s.outputs[0].impl()->storage->bump_version(s.def->info.name, s.site);
    if (s.kept) keep_rounded_copy(*s.inputs[0], s.kept);
  }
  // Headers that move are lent for the call.
  void run_outside(Step& s) {
    struct Lent {
      Step& step;
      std::vector<size_t> which;
      ~Lent() {
        for (size_t i : which) step.given[i] = Tensor();
      }
    } lent{s, {}};
    for (size_t i = 0; i < s.given.size(); ++i) {
      if (s.given[i].defined() || !s.inputs[i]->defined()) continue;
      s.given[i] = own(*s.inputs[i]);
      lent.which.push_back(i);
    }
    s.outside->run(s.given);
  }
  bool moves(ValueId id) const {
    const Buffer& b = graph.buffer_of(id);
    return b.kind != BufferKind::constant && memory.offsets[at(graph.value(id).buffer)] == kOutside;
  }

  // --- On a device: order between streams, and recordings.
  struct OnDevice {
    Device device;
    DeviceReplay replay;
    std::vector<Tensor> read, written;  // constants
    bool writes_inputs = false;
    bool fixed = false;  // inputs are copied to `inputs`, results out of `results`
    std::vector<Tensor> inputs;
    std::vector<const void*> addresses;
  };
  void prepare_device() {
    Device where;
    for (const Value& v : graph.values)
      if (!v.meta.device.is_cpu()) where = v.meta.device;
    if (where.is_cpu()) return;
    std::vector<bool> can_record;
    for (const Step& s : steps) can_record.push_back(!s.outside && s.draw < 0);
    on_device =
        std::make_unique<OnDevice>(OnDevice{where, DeviceReplay(std::move(can_record)), {}, {}, false, false, {}, {}});
    for (const Buffer& b : graph.buffers)
      if (b.kind == BufferKind::constant && !b.constant.device().is_cpu())
        (b.written ? on_device->written : on_device->read).push_back(b.constant);
    for (const Instruction& x : graph.instructions)
      for (ValueId id : written_values(x)) on_device->writes_inputs |= graph.buffer_of(id).kind == BufferKind::input;
  }
  void run_on_device(const Tensor* const* inputs) {
    OnDevice& d = *on_device;
    if (d.replay.wants_fixed_addresses() && !d.writes_inputs && !d.fixed) fix_addresses();
    if (d.fixed) {
      for (size_t i = 0; i < d.inputs.size(); ++i) d.inputs[i].copy_(*inputs[i]);
      for (Moving& m : input_values) point(m, *d.inputs[m.source].impl());
    }
    uint8_t stream = context().streams[static_cast<size_t>(d.device.index)];
    order(inputs, stream);
    d.addresses.clear();
    for (const auto* list : {&input_values, &result_values})
      for (const Moving& m : *list) d.addresses.push_back(m.header->data);
    // Cached forms of weights that are out of date are made now: recordings read them in place.
    for (Step& s : steps)
      if (s.kept) run(s);
    d.replay.run(d.device, stream, d.addresses, [&](size_t i) {
      if (!steps[i].kept) run(steps[i]);
    });
    for (Step& s : steps)
      if (s.counts_version) s.outputs[0].impl()->storage->bump_version(s.def->info.name, s.site);
  }
  void order(const Tensor* const* inputs, uint8_t stream) {
    auto each = [&](const Tensor& t, void (*by)(DeviceMemory&, uint8_t)) {
      if (t.defined() && t.impl()->storage->memory && !t.device().is_cpu()) by(*t.impl()->storage->memory, stream);
    };
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      each(*inputs[i], on_device->writes_inputs ? order_write : order_read);
    for (const Tensor& t : on_device->read) each(t, order_read);
    for (const Tensor& t : on_device->written) each(t, order_write);
    for (const Result& r : results) each(r.memory, order_write);
    for (const auto& [id, copy] : kept) each(*copy, order_write);
    each(arena, order_write);
  }
  void fix_addresses() {
    for (ValueId id : graph.inputs) on_device->inputs.push_back(Tensor(make_tensor(graph.value(id).meta)));
    for (Result& r : results) r.memory = Tensor(make_tensor(r.meta));
    for (Moving& m : result_values) point(m, *results[m.source].memory.impl());
    on_device->fixed = true;
    on_device->replay.forget();
  }
  static void own_results(std::span<Tensor> found) {
    for (Tensor& t : found) t = t.clone();
  }

  // With a share in its memory.
  static Tensor own(const Tensor& t) { return Tensor(make_alias(*t.impl(), t.meta(), 0)); }
  struct Output {
    ValueId id;
    int32_t result;  // all of it; kNone: a part, an input or a constant
  };
  Tensor output(const Output& o) const {
    return o.result != kNone ? results[at(o.result)].memory : own(values[at(o.id)]);
  }

  Graph graph;
  MemoryPlan memory;
  Tensor arena, undefined;
  Tensor nowhere;  // whose storage moving headers have a share in
  std::vector<Tensor> values;
  std::vector<Moving> input_values, result_values;
  std::vector<Result> results;
  bool results_moved = false;                             // and result_values have not followed
  std::vector<ValueId> primary;                           // of each result: the output that is all of it
  std::vector<int32_t> result_of;                         // by buffer
  std::map<ValueId, std::shared_ptr<const Tensor>> kept;  // casts of weights
  std::map<BufferId, Tensor> memory_of_kept;
  std::vector<Output> outputs;
  std::vector<Step> steps;
  std::unique_ptr<OnDevice> on_device;  // null on the CPU
};

Executable::Executable(Graph graph) : impl_(std::make_unique<Impl>(std::move(graph))) {}
Executable::~Executable() = default;

std::vector<Tensor> Executable::run(const std::vector<Tensor>& inputs) {
  const Graph& g = impl_->graph;
  DEFT_CHECK(inputs.size() == g.inputs.size(), ValueError, "executable: found {} inputs, expected {}", inputs.size(),
             g.inputs.size());
  std::vector<const Tensor*> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Meta &have = inputs[i].meta(), &want = g.value(g.inputs[i]).meta;
    DEFT_CHECK(have.sizes == want.sizes && have.dtype == want.dtype && have.strides == want.strides &&
                   have.device == want.device,
               ShapeError, "executable: input {} is {}, it was captured with {}", i, describe(have), describe(want));
    pointers.push_back(&inputs[i]);
  }
  std::vector<Tensor> results(g.outputs.size());
  run(pointers.data(), results.data());
  return results;
}
void Executable::run(const Tensor* const* inputs, Tensor* results) { impl_->run(inputs, results); }

const Graph& Executable::graph() const { return impl_->graph; }
const MemoryPlan& Executable::memory() const { return impl_->memory; }
size_t Executable::kernels() const { return impl_->steps.size(); }

}  // namespace deft::graph
