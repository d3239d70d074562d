#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/check.h"
#include "base/note.h"
#include "kernels/cuda/device/driver.h"
#include "kernels/cuda/device/kernel_image.h"
#include "kernels/cuda/device/runtime_kernel.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "ops/elementwise.h"
#include "ops/elementwise_chain.h"
#include "ops/elementwise_chain_source.h"

namespace deft {

namespace {

using Params = ElementwiseChain::Params;

ChainForm::Input input_form(const Tensor& x, int64_t period) {
  if (x.device().is_cpu()) {
    DEFT_CHECK(x.numel() == 1, DeviceError, "elementwise_chain: found {} elements on the CPU; expected one number",
               x.numel());
    return {ChainAccess::passed, x.dtype(), 0};
  }
  return {period == 0 ? ChainAccess::full : period == 1 ? ChainAccess::single : ChainAccess::repeated, x.dtype(), 0};
}

ChainForm::Step step_form(const KernelCall& c, const Params& p, int s) {
  const ElementwiseChain::Step& from = p.step[s];
  const OpDef& def = ElementwiseChain::op_of(p, s);
  const ElementwiseDef& e = *def.elementwise;
  const DType compute = ElementwiseChain::compute_type(c, p, s);
  const CudaTableFn table = from.op < 0 ? e.cuda->grad_table : e.cuda->table;
  DEFT_CHECK(table()[e.row * kDTypeCount + static_cast<int>(compute)].strided, DTypeError,
             "{}: does not take {}; convert it with to()", def.info.name, name_of(compute));
  ChainForm::Step step{static_cast<int16_t>(from.op), compute, from.stored, from.inputs, {}};
  DEFT_CHECK(from.inputs <= std::size(step.in), ValueError,
             "elementwise_chain: step {} has {} inputs, expected up to {}", s, from.inputs, std::size(step.in));
  for (int i = 0; i < from.inputs; ++i) step.in[i] = from.in[i];
  return step;
}

ChainForm form_of(const KernelCall& c, const Params& p) {
  ChainForm f{};
  f.inputs = static_cast<uint8_t>(p.inputs);
  f.steps = static_cast<uint8_t>(p.steps);
  uint8_t periods = 0;
  for (int i = 0; i < p.inputs; ++i) {
    f.input[i] = input_form(c.in(i), p.period[i]);
    if (f.input[i].access != ChainAccess::repeated) continue;
    int same = 0;
    while (same < i && !(f.input[same].access == ChainAccess::repeated && p.period[same] == p.period[i])) ++same;
    f.input[i].period = same < i ? f.input[same].period : periods++;
  }
  for (int s = 0; s < p.steps; ++s) f.step[s] = step_form(c, p, s);
  return f;
}

// ---- Kernels by form. They stay: captured graphs may hold them. A program with more forms than these runs the others
// op by op.
constexpr size_t kMostKernels = 1024;

struct Key {
  ChainForm form;
  int16_t device;
  bool operator==(const Key& other) const { return std::memcmp(this, &other, sizeof other) == 0; }
};
static_assert(std::has_unique_object_representations_v<Key>, "padding would make equal keys differ");
struct KeyHash {
  size_t operator()(const Key& k) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&k), sizeof k});
  }
};
struct Kernels {
  std::shared_mutex mutex;
  std::mutex building;
  std::unordered_map<Key, std::unique_ptr<const cuda::RuntimeKernel>, KeyHash> made;  // null: could not be

  bool find(const Key& key, const cuda::RuntimeKernel*& kernel) {
    std::shared_lock lock(mutex);
    auto at = made.find(key);
    if (at == made.end()) return false;
    kernel = at->second.get();
    return true;
  }
};
Kernels& kernels() {
  static auto& all = *new Kernels;  // never destroyed: threads may outlive static destruction
  return all;
}

void note_once(const std::string& why) {
  static std::once_flag noted;
  std::call_once(noted, [&] { print_note("deft: {}; such chains of ops run one by one\n", why); });
}

std::unique_ptr<const cuda::RuntimeKernel> build(const Key& key) {
  if (!ElementwiseChain::cuda_ready()) {
    note_once("elementwise_chain: NVRTC 12 or newer was not found");
    return nullptr;
  }
  const cudaDeviceProp& gpu = cuda::gpu(key.device).properties;
  cuda::CompiledSource made =
      cuda::kernel_image(chain_source(key.form), formula_sources(), gpu.major * 10 + gpu.minor, cuda::kernel_folder());
  if (made.image.empty()) {
    note_once(fmt::format("elementwise_chain: NVRTC {} did not compile it: {}", cuda::nvrtc_version(), made.log));
    return nullptr;
  }
  try {
    return std::make_unique<const cuda::RuntimeKernel>(made.image, kChainKernel);
  } catch (const DeviceError& e) {  // a driver older than NVRTC
    note_once(e.what());
    return nullptr;
  }
}

// nullptr where there is none. The device is current.
const cuda::RuntimeKernel* kernel_for(const ChainForm& form, Device device) {
  Kernels& all = kernels();
  const Key key{form, static_cast<int16_t>(device.index)};
  const cuda::RuntimeKernel* kernel = nullptr;
  if (all.find(key, kernel)) return kernel;
  std::lock_guard one_at_a_time(all.building);
  if (all.find(key, kernel)) return kernel;
  if (all.made.size() >= kMostKernels) {
    note_once(fmt::format("elementwise_chain: there are {} kernels already", kMostKernels));
    return nullptr;
  }
  auto made = build(key);
  std::lock_guard lock(all.mutex);
  return all.made.emplace(key, std::move(made)).first->second.get();
}

// ---- Launch
bool whole_packs(const void* p, DType t, int width) {
  return reinterpret_cast<uintptr_t>(p) % (size_of(t) * static_cast<size_t>(width)) == 0;
}

void set_input(cuda::ChainArgs& a, const ChainForm& f, const Tensor& x, int64_t period, int i) {
  const ChainForm::Input& in = f.input[i];
  if (in.access == ChainAccess::passed) {
    Scalar number = x.item_scalar();
    a.number[i] = {number.to_double(), number.to_int64()};
    return;
  }
  a.in[i] = x.data_ptr();
  const bool aligned = whole_packs(a.in[i], in.dtype, f.width());
  if (in.access == ChainAccess::full) a.packs = a.packs && aligned;
  if (in.access != ChainAccess::repeated) return;
  a.packs_repeat = a.packs_repeat && aligned && period % f.width() == 0;
  a.narrow = a.narrow && period <= INT32_MAX;
  a.period[in.period] = period;
  a.divide[in.period] = cuda::FastDivide(static_cast<uint32_t>(std::min<int64_t>(period, INT32_MAX)));
}

cuda::ChainArgs chain_args(const KernelCall& c, const Params& p, const ChainForm& f) {
  cuda::ChainArgs a{};
  a.out = c.out().data_ptr();
  a.n = c.out().numel();
  a.packs = whole_packs(a.out, c.out().dtype(), f.width());
  a.packs_repeat = true;
  a.narrow = a.n <= INT32_MAX;
  for (int i = 0; i < p.inputs; ++i) set_input(a, f, c.in(i), p.period[i], i);
  for (int s = 0; s < p.steps; ++s) std::memcpy(a.params[s], p.step[s].params, sizeof a.params[s]);
  return a;
}

void run_step(const KernelCall& c, const Params& p, int s, const Tensor* const* inputs, Tensor& out) {
  const ElementwiseChain::Step& step = p.step[s];
  const OpDef& def = ElementwiseChain::op_of(p, s);
  alignas(16) unsigned char params[ElementwiseChain::kParamBytes];
  std::memcpy(params, step.params, sizeof params);
  if (step.op < 0)
    return elementwise::cuda_gradient(*def.elementwise, inputs, out, ElementwiseChain::compute_type(c, p, s), params,
                                      def.info.name);
  KernelCall call{def, inputs, step.inputs, &out, params};
  elementwise::cuda_kernel(call);
}

}  // namespace

bool ElementwiseChain::cuda_ready() { return !cuda::nvrtc_version().empty(); }

void ElementwiseChain::cuda_one_by_one(KernelCall& c) {
  const Params& p = c.params<ElementwiseChain>();
  Tensor made[kSteps];
  for (int s = 0; s < p.steps; ++s) {
    Meta m = c.out().meta();
    m.dtype = p.step[s].stored;
    made[s] = s + 1 == p.steps ? c.out() : Tensor(make_tensor(m));
    const Tensor* inputs[kOperands];
    for (int i = 0; i < p.step[s].inputs; ++i) {
      const int from = p.step[s].in[i];
      inputs[i] = from < kInputs ? &c.in(from) : &made[from - kInputs];
    }
    run_step(c, p, s, inputs, made[s]);
  }
}

void ElementwiseChain::cuda(KernelCall& c) {
  const Params& p = c.params<ElementwiseChain>();
  if (c.out().numel() == 0) return;
  const ChainForm form = form_of(c, p);
  cuda::Encoder e(c.out().device(), info.name);
  const cuda::RuntimeKernel* kernel = kernel_for(form, e.device());
  if (!kernel) return cuda_one_by_one(c);
  cuda::ChainArgs args = chain_args(c, p, form);
  const int64_t tile = int64_t{cuda::kChainThreads} * form.width() * form.packs();
  kernel->launch(e, static_cast<unsigned>((args.n + tile - 1) / tile), cuda::kChainThreads, &args);
}

}  // namespace deft
