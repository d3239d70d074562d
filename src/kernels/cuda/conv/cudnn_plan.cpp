#include "kernels/cuda/conv/cudnn_plan.h"

#ifndef DEFT_HAS_CUDNN
#define DEFT_HAS_CUDNN 1
#endif
#if DEFT_HAS_CUDNN

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "kernels/cuda/conv/cudnn_graph.h"
#include "kernels/cuda/device/device_timer.h"
#include "kernels/cuda/device/plan_cache.h"
#include "runtime/context.h"
#include "runtime/limits.h"
#include "runtime/numerics.h"
#include "runtime/sync.h"

namespace deft::cuda {

namespace {

constexpr size_t kPlanLimit = 512;
constexpr int kTimed = 24;  // most plans that a benchmark times
constexpr int kFused = 5;   // of them with the whole epilogue: cuDNN compiles fused kernels on request
constexpr int kEnough = 4;  // with this many it does not try engines beyond those that cuDNN ranks by speed

struct ConvPlan {
  GraphPtr graph;  // nullptr: cuDNN has nothing for this problem
  Descriptor config, plan;
  int64_t workspace = 0;
};

// The state per device. The lock is held for a whole call: neither handles nor plans may be used by two threads at a
// time.
struct Library {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::optional<cudaStream_t> stream;  // the one the handle is set to
  PlanCache<ConvProblem, ConvPlan> plans{kPlanLimit};
};

Library& library(Device device) {
  static Library* const all = new Library[kMaxDevices];  // never destroyed
  return all[device.index];
}

void check(cudnnStatus_t status, const char* op, const char* what) {
  DEFT_CHECK(status == CUDNN_STATUS_SUCCESS, DeviceError, "{}: cuDNN could not {}: {}", op, what,
             cudnnGetErrorString(status));
}

void prepare(Library& lib, const Encoder& e) {
  if (!lib.handle) check(cudnnCreate(&lib.handle), e.op(), "start");
  if (lib.stream == e.stream()) return;
  check(cudnnSetStream(lib.handle, e.stream()), e.op(), "take a stream");
  lib.stream = e.stream();
}

// False where cuDNN cannot express the problem.
bool describe(ConvProblem& p, ConvKind kind, const ConvCall& c, bool accumulate) {
  p.n = c.n, p.c_in = c.c_in, p.c_out = c.c_out, p.groups = c.groups;
  for (int d = 0; d < 3; ++d) {
    p.in[d] = c.in[d], p.out[d] = c.out[d], p.kernel[d] = c.kernel[d];
    p.stride[d] = c.stride[d], p.pad[d] = p.post_pad[d] = c.pad[d], p.dilation[d] = c.dilation[d];
    int64_t reach = c.dilation[d] * (c.kernel[d] - 1) + 1, room = c.in[d] + 2 * c.pad[d] - reach;
    // A transposed convolution may have room for more steps than c.out: then the padding at the end is smaller.
    if (room < 0 || room / c.stride[d] + 1 != c.out[d])
      p.post_pad[d] = (c.out[d] - 1) * c.stride[d] + reach - c.in[d] - c.pad[d];
    if (p.post_pad[d] < 0) return false;
  }
  p.workspace_limit = static_cast<int64_t>(std::min<size_t>(conv_workspace_limit(), INT64_MAX));
  p.kind = static_cast<uint8_t>(kind);
  p.dtype = static_cast<uint8_t>(c.dtype);
  bool flat = c.in[0] == 1 && c.out[0] == 1 && c.kernel[0] == 1 && c.stride[0] == 1 && c.pad[0] == 0;
  p.dims = flat ? 2 : 3;
  p.channels_last = c.channels_last, p.w_channels_last = c.w_channels_last;
  p.bias = c.bias != nullptr, p.accumulate = accumulate;
  p.deterministic = (context().bits & kDeterministic) != 0 || c.timed;  // plans give the same bits every time
  p.tf32 = c.dtype == DType::f32 && allow_tf32();
  p.benchmark = conv_benchmark() || c.timed;
  p.align_x = static_cast<uint8_t>(alignment_of(c.x)), p.align_w = static_cast<uint8_t>(alignment_of(c.w));
  p.align_y = static_cast<uint8_t>(alignment_of(c.y));
  p.align_bias = static_cast<uint8_t>(c.bias ? alignment_of(c.bias) : 0);
  p.align_residual = static_cast<uint8_t>(c.residual ? alignment_of(c.residual) : 0);
  p.activation = static_cast<uint8_t>(c.activation);
  return true;
}

// The stages of the search for plans, most promising first.
struct Stage {
  cudnnBackendHeurMode_t mode;
  bool fused;   // with bias, residual and activation in the same kernel
  bool strict;  // see is_exact_enough()
};
constexpr Stage kStages[] = {
    {CUDNN_HEUR_MODE_A, true, true},   {CUDNN_HEUR_MODE_A, false, true},
    {CUDNN_HEUR_MODE_B, false, true},  {CUDNN_HEUR_MODE_FALLBACK, false, true},
    {CUDNN_HEUR_MODE_A, false, false}, {CUDNN_HEUR_MODE_FALLBACK, false, false},
};
constexpr int kStageCount = sizeof(kStages) / sizeof(kStages[0]);
constexpr int kUnranked = 2, kInexact = 4;  // the first stages that are a second choice, a last resort

// Plans for a problem one by one.
class Search {
 public:
  Search(cudnnHandle_t handle, const ConvProblem& p) : handle_(handle), p_(p) {
    stage_ = p.has_epilogue() && p.conv_kind() == ConvKind::forward && p.type() != DType::f64 ? 0 : 1;
  }

  std::shared_ptr<ConvPlan> next() {
    for (; stage_ < kStageCount; ++stage_, started_ = false) {
      if (kStages[stage_].strict || p_.is_16bit())
        if (auto plan = next_of_stage()) return plan;
    }
    return nullptr;
  }
  int stage() const { return stage_; }

 private:
  std::shared_ptr<ConvPlan> next_of_stage() {
    const Stage& stage = kStages[stage_];
    if (!started_) begin(stage);
    while (at_ < configs_.size()) {
      if (stage.fused && given_ == kFused) return nullptr;  // leave some for the others
      Descriptor& config = configs_[at_++];
      if (!is_exact_enough(config, p_, stage.strict)) continue;
      if (auto plan = build(config)) {
        ++given_;
        return plan;
      }
    }
    return nullptr;
  }
  void begin(const Stage& stage) {
    started_ = true;
    at_ = 0;
    given_ = 0;
    configs_.clear();
    if (!graph_ || graph_->fused != stage.fused) graph_ = make_graph(handle_, p_, stage.fused);
    if (graph_) configs_ = engine_configs(*graph_, stage.mode);
  }
  std::shared_ptr<ConvPlan> build(Descriptor& config) {
    auto made = std::make_shared<ConvPlan>();
    made->plan = Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    made->plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    made->plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (!made->plan.finalize().good()) return nullptr;
    if (!made->plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &made->workspace) ||
        made->workspace > p_.workspace_limit)
      return nullptr;
    made->graph = graph_;
    made->config = std::move(config);
    return made;
  }

  cudnnHandle_t handle_;
  const ConvProblem& p_;
  GraphPtr graph_;
  std::vector<Descriptor> configs_;
  size_t at_ = 0;
  int stage_ = 1, given_ = 0;
  bool started_ = false;
};

cudnnStatus_t execute(Library& lib, const ConvPlan& plan, const ConvCall& c, void* workspace) {
  void* pointers[5] = {c.x, c.w, c.y};
  int64_t ids[5] = {kIdX, kIdW, kIdY}, count = 3;
  auto add = [&](const void* p, int64_t id) {
    if (!p || !plan.graph->fused) return;
    pointers[count] = const_cast<void*>(p);
    ids[count++] = id;
  };
  add(c.bias, kIdBias);
  add(c.residual, kIdResidual);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  if (!pack.finalize().good()) return pack.status();
  return cudnnBackendExecute(lib.handle, plan.plan.raw(), pack.raw());
}

// One whole convolution, its epilogue included. Kernels with the epilogue inside read each element of the residual
// right before they write y there, so that both may be the same memory.
cudnnStatus_t run(Library& lib, Encoder& e, ConvKind kind, const ConvPlan& plan, ConvCall c, void* workspace) {
  std::optional<ResidualApart> apart;
  if (!plan.graph->fused) apart.emplace(e, c);
  cudnnStatus_t status = execute(lib, plan, c, workspace);
  e.note_launch();
  if (status != CUDNN_STATUS_SUCCESS || plan.graph->fused) return status;
  bool forward = kind == ConvKind::forward;
  const int64_t* sizes = forward ? c.out : c.in;
  run_epilogue(e, {c.dtype, c.n, forward ? c.c_out : c.c_in, sizes[0] * sizes[1] * sizes[2], c.channels_last,
                   forward ? c.y : c.x, c.bias, c.residual, c.activation});
  return status;
}

// Temporary memory of a plan.
class PlanSpace {
 public:
  PlanSpace(const Encoder& e, const ConvPlan& plan) {
    if (plan.workspace > 0) space_.emplace(e, static_cast<size_t>(plan.workspace));
  }
  void* data() const { return space_ ? space_->as() : nullptr; }

 private:
  std::optional<Workspace> space_;
};

// The fastest of the most promising plans; nullptr if none runs. What they write is overwritten later.
std::shared_ptr<const ConvPlan> benchmark(Library& lib, Encoder& e, ConvKind kind, const ConvProblem& p,
                                          const ConvCall& c) {
  count_sync("conv benchmark", effective_site({}));
  Search search(lib.handle, p);
  DeviceTimer timer(e);
  std::shared_ptr<const ConvPlan> best;
  double best_ms = DeviceTimer::kNever;
  std::exception_ptr no_memory;
  for (int timed = 0; timed < kTimed;) {
    std::shared_ptr<ConvPlan> plan = search.next();
    if (!plan || (search.stage() >= kUnranked && timed >= kEnough) || (search.stage() >= kInexact && best)) break;
    double ms = DeviceTimer::kNever;
    try {
      PlanSpace space(e, *plan);
      ms = timer.least_ms(best_ms, [&] { return run(lib, e, kind, *plan, c, space.data()) == CUDNN_STATUS_SUCCESS; });
    } catch (const OutOfMemoryError&) {  // others may do with less
      no_memory = std::current_exception();
      continue;
    }
    if (ms == DeviceTimer::kNever) {
      cudaGetLastError();  // what the refusal left behind
      continue;
    }
    if (ms < best_ms) best = plan, best_ms = ms;
    ++timed;
  }
  if (!best && no_memory) std::rethrow_exception(no_memory);
  return best;
}

// The first plan that runs, having run; nullptr if none does.
std::shared_ptr<const ConvPlan> run_first(Library& lib, Encoder& e, ConvKind kind, const ConvProblem& p,
                                          const ConvCall& c) {
  Search search(lib.handle, p);
  std::exception_ptr no_memory;
  while (std::shared_ptr<ConvPlan> plan = search.next()) {
    try {
      PlanSpace space(e, *plan);
      if (run(lib, e, kind, *plan, c, space.data()) == CUDNN_STATUS_SUCCESS) return plan;
    } catch (const OutOfMemoryError&) {  // others may do with less
      no_memory = std::current_exception();
      continue;
    }
    cudaGetLastError();  // what the refusal left behind
  }
  if (no_memory) std::rethrow_exception(no_memory);
  return nullptr;
}

// Runs the best plan for the problem; false if there is none. One chosen when there was more memory gives way to one
// that needs half of its own, unless the bits must stay.
bool solve(Library& lib, Encoder& e, ConvKind kind, ConvProblem problem, const ConvCall& c) {
  std::shared_ptr<const ConvPlan> plan = lib.plans.find(problem);
  if (!plan && problem.benchmark && (problem.accumulate || !can_wait(e))) {
    problem.benchmark = 0;  // running it twice would add twice, or the stream is being recorded
    plan = lib.plans.find(problem);
  }
  if (!plan) {
    const bool timed = problem.benchmark;
    ConvCall trial = c;
    std::optional<Workspace> elsewhere;  // a residual in y is needed once a plan is found
    if (in_place(c)) {
      elsewhere.emplace(e, bytes_of_y(c));
      trial.y = elsewhere->as(), trial.residual = trial.y;
    }
    plan = timed ? benchmark(lib, e, kind, problem, trial) : run_first(lib, e, kind, problem, trial);
    bool found = plan != nullptr;
    if (!found) plan = std::make_shared<ConvPlan>();
    lib.plans.add(problem, plan);
    if (!found || (!timed && !elsewhere)) return found;
  }
  if (!plan->graph) return false;
  std::optional<PlanSpace> space;
  try {
    space.emplace(e, *plan);
  } catch (const OutOfMemoryError&) {
    if (problem.deterministic) throw;
    problem.workspace_limit = plan->workspace / 2;
    if (solve(lib, e, kind, problem, c)) return true;
    throw;
  }
  check(run(lib, e, kind, *plan, c, space->data()), e.op(), "run a convolution");
  return true;
}

}  // namespace

std::string cudnn_version() {
  size_t v = cudnnGetVersion();
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

bool cudnn_conv(Encoder& e, ConvKind kind, const ConvCall& c, bool accumulate) {
  ConvProblem problem{};
  if (!describe(problem, kind, c, accumulate)) return false;
  Library& lib = library(e.device());
  std::lock_guard guard(lib.mutex);
  prepare(lib, e);
  return solve(lib, e, kind, problem, c);
}

}  // namespace deft::cuda

#else

namespace deft::cuda {

std::string cudnn_version() { return "none"; }
bool cudnn_conv(Encoder&, ConvKind, const ConvCall&, bool) { return false; }

}  // namespace deft::cuda

#endif
