#include "core/checkpoint.h"

#include "base/check.h"
#include "core/describe.h"
#include "core/node.h"
#include "runtime/context.h"
#include "runtime/random.h"

namespace deft {

// Note [Deferred saving]
// The ops inside f are recorded as always: same nodes, same edges, so hooks, grad() and the order in which gradients
// are summed do not change. Only their saved tensors are replaced: slot number k of the call refers to entry k of the
// frame. On first need f runs once more with the frame in `again` mode, and the k-th save of that run fills entry k;
// the nodes of that run are dropped. Leaves that require grad are alive anyway and are kept as usual. A nested
// checkpoint saves its inputs through the outer frame, so that they are computed again too.
struct CheckpointFrame {
  struct Entry {
    SavedTensor saved;
    Shape sizes;  // as recorded: the second run must agree
    DType dtype;
    bool forgotten = false;  // its node no longer needs it
  };
  struct Input {
    SavedTensor saved;
    NodePtr from;  // where its gradient goes
    uint32_t output_nr = 0;
    bool leaf = false;  // kept as it is
  };
  uint32_t refs = 1;
  bool again = false;     // the second run is going on
  bool complete = false;  // entries are filled
  uint32_t next = 0;      // entry that the next save takes
  std::vector<Entry> entries;
  std::vector<Input> inputs;
  std::function<Tensors(const Tensors&)> f;
  ExecContext modes;
  PhiloxState rng;
  Site site;

  ~CheckpointFrame() {
    for (Entry& e : entries) e.saved.drop();
    for (Input& i : inputs) i.saved.drop();
  }
  void release() noexcept {
    if (--refs == 0) delete this;
  }
  void run_again();
};

constinit thread_local CheckpointFrame* detail::recording_frame = nullptr;

namespace {

class RecordingScope {
 public:
  explicit RecordingScope(CheckpointFrame* frame) : outer_(std::exchange(detail::recording_frame, frame)) {}
  ~RecordingScope() { detail::recording_frame = outer_; }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  CheckpointFrame* outer_;
};

// A header of its own on the same bytes, without history.
void hold(SavedTensor& s, TensorImpl& t) {
  s.impl = make_alias(t, t.meta, 0).detach();
  s.version = t.storage->current_version();
  s.counted = t.storage->add_saved();
}

void fill_entry(CheckpointFrame& frame, TensorImpl& t) {
  DEFT_CHECK(
      frame.next < frame.entries.size(), GradError,
      "checkpoint: at {}, the function saved more tensors when it ran again in backward than the {} of the first run; "
      "it must do the same both times",
      to_string(frame.site), frame.entries.size());
  uint32_t number = frame.next++;
  CheckpointFrame::Entry& e = frame.entries[number];
  DEFT_CHECK(e.sizes == t.meta.sizes && e.dtype == t.meta.dtype, GradError,
             "checkpoint: at {}, saved tensor {} was {} {} in the first run and is {} when run again in backward; the "
             "function "
             "must do the same both times",
             to_string(frame.site), number, to_string(e.sizes), name_of(e.dtype), describe(t));
  if (!e.forgotten) hold(e.saved, t);
}

}  // namespace

bool detail::frame_takes(CheckpointFrame& frame, SavedTensor& slot, TensorImpl& t) {
  if (t.has(kRequiresGrad) && !t.grad_fn && !slot.is_output) return false;
  if (frame.again) {
    fill_entry(frame, t);
    return true;  // the slot stays empty: its node is dropped
  }
  frame.entries.push_back({{}, t.meta.sizes, t.meta.dtype});
  slot.frame = &frame;
  slot.version = static_cast<uint32_t>(frame.entries.size() - 1);
  slot.deferred = true;
  ++frame.refs;
  return true;
}

void detail::frame_forget(CheckpointFrame& frame, uint32_t entry) noexcept {
  frame.entries[entry].forgotten = true;
  frame.entries[entry].saved.drop();
  frame.release();
}

SavedTensor& detail::frame_entry(CheckpointFrame& frame, uint32_t entry) {
  if (!frame.complete) frame.run_again();
  return frame.entries[entry].saved;
}

void CheckpointFrame::run_again() {
  const ExecContext& now = context();
  ExecContext ctx = modes;
  constexpr uint32_t kOfTheCaller = kCapture | kProfile | kAnomaly;
  ctx.bits = (modes.bits & ~kOfTheCaller) | (now.bits & kOfTheCaller);
  ctx.profile_scope = now.profile_scope;
  ctx.rng = nullptr;
  Tensors args;
  for (Input& i : inputs) {
    if (!i.saved.impl) {
      args.emplace_back();
      continue;
    }
    SavedTensor& s = i.saved.resolve();
    const Storage& bytes = *s.impl->storage;
    DEFT_CHECK(s.version == bytes.current_version(), InplaceError,
               "checkpoint: input {} {} of the call at {} was changed in place by {} at {} before backward could run "
               "the function "
               "again; clone() it before the write",
               args.size(), describe(*s.impl), to_string(site), bytes.last_write_op.load(std::memory_order_relaxed),
               to_string(bytes.last_write_site.load(std::memory_order_relaxed)));
    if (i.leaf) {
      args.emplace_back(ImplPtr::share(s.impl));
      continue;
    }
    ImplPtr alias = make_alias(*s.impl, s.impl->meta, 0);
    if (i.from) set_history(*alias, i.from, i.output_nr);
    args.emplace_back(alias);
  }
  struct Attempt {  // a failed run leaves nothing behind and may be tried again
    CheckpointFrame& frame;
    explicit Attempt(CheckpointFrame& of) : frame(of) {
      frame.again = true;
      frame.next = 0;
    }
    ~Attempt() {
      frame.again = false;
      if (frame.complete) return;
      for (Entry& e : frame.entries) e.saved.drop();
    }
  };
  ContextGuard guard(ctx);
  RngScope random(rng);
  Attempt attempt(*this);
  RecordingScope recording(this);
  f(args);
  DEFT_CHECK(next == entries.size(), GradError,
             "checkpoint: at {}, the function saved {} tensors when it ran again in backward and {} in the first run; "
             "it must do "
             "the same both times",
             to_string(site), next, entries.size());
  complete = true;
}

Tensors checkpoint(std::function<Tensors(const Tensors&)> f, const Tensors& inputs, Site site) {
  DEFT_CHECK(f, ValueError, "checkpoint: the function is empty");
  if (context().bits & (kGradOff | kInference)) return f(inputs);
  struct Owner {
    CheckpointFrame* frame = new CheckpointFrame;
    ~Owner() { frame->release(); }
  } owner;
  CheckpointFrame& frame = *owner.frame;
  frame.f = std::move(f);
  frame.modes = context();
  frame.rng = generator().state();
  frame.site = effective_site(site);
  frame.inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    TensorImpl& t = *inputs[i].impl();
    CheckpointFrame::Input& input = frame.inputs[i];
    check_savable(t, "checkpoint", frame.site);
    bool needs = is_floating(t.meta.dtype) && needs_grad(t);
    input.leaf = needs && !t.grad_fn;
    input.from = NodePtr::share(t.grad_fn);
    input.output_nr = t.output_nr;
    input.saved.keep(&t, !input.leaf, 0);  // as an output: a header without history
  }
  RecordingScope recording(&frame);
  return frame.f(inputs);
}

}  // namespace deft
