#include "ops/chain_links.h"

#include <iterator>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/chain_links.cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/elementwise/chunk-inl.h"
#include "kernels/cpu/elementwise/elementwise_chain.h"
#include "ops/activation.h"
#include "ops/binary.h"
#include "ops/unary.h"

// DEFT_LINK2, DEFT_LINK1: ops of two tensors and of one.
#define DEFT_LINKS    \
  DEFT_LINK2(Add)     \
  DEFT_LINK2(Sub)     \
  DEFT_LINK2(Mul)     \
  DEFT_LINK2(Div)     \
  DEFT_LINK2(Maximum) \
  DEFT_LINK2(Minimum) \
  DEFT_LINK1(Neg)     \
  DEFT_LINK1(Abs)     \
  DEFT_LINK1(Square)  \
  DEFT_LINK1(Sqrt)    \
  DEFT_LINK1(Relu)

#ifndef DEFT_OPS_CHAIN_LINKS_ONCE_
#define DEFT_OPS_CHAIN_LINKS_ONCE_
namespace deft {

// Links of an op; `a` is the result of the step before.
struct LinkFns {
  cpu::LinkFn of_a_x = nullptr, of_x_a = nullptr, of_a_a = nullptr;  // only the last for ops of one tensor
};
struct LinkTable {
  const LinkFns* ops;
  cpu::LinkFn load, store, end;  // the last stores, too
  cpu::LinkTilesFn run;
  int64_t tile;
};

}  // namespace deft
#endif

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using V = Vec<float>;
constexpr int64_t kTile = 8 * static_cast<int64_t>(V::kLanes);

#define DEFT_TILE V a0, V a1, V a2, V a3, V a4, V a5, V a6, V a7
using Link = void (*)(const ChainLink* at, float* const* slots, int64_t first, DEFT_TILE);

V load_at(const float* p, int i) { return V::load(p + i * static_cast<int64_t>(V::kLanes)); }
const float* operand(const ChainLink* at, float* const* slots, int64_t first) {
  return slots[at->slot] + (first & at->moves);
}
// The call that every link ends with.
#define DEFT_NEXT(f)                                                                                                 \
  reinterpret_cast<Link>(at[1].fn)(at + 1, slots, first, f(a0, 0), f(a1, 1), f(a2, 2), f(a3, 3), f(a4, 4), f(a5, 5), \
                                   f(a6, 6), f(a7, 7))

template <class Op>
DEFT_FLATTEN void of_a_x(const ChainLink* at, float* const* slots, int64_t first, DEFT_TILE) {
  const float* x = operand(at, slots, first);
  const auto f = [&](V a, int i) HWY_ATTR { return Op::fwd(a, load_at(x, i)); };
  DEFT_NEXT(f);
}
template <class Op>
DEFT_FLATTEN void of_x_a(const ChainLink* at, float* const* slots, int64_t first, DEFT_TILE) {
  const float* x = operand(at, slots, first);
  const auto f = [&](V a, int i) HWY_ATTR { return Op::fwd(load_at(x, i), a); };
  DEFT_NEXT(f);
}
template <class Op>
DEFT_FLATTEN void of_a_a(const ChainLink* at, float* const* slots, int64_t first, DEFT_TILE) {
  const auto f = [&](V a, int) HWY_ATTR { return Op::fwd(a, a); };
  DEFT_NEXT(f);
}
template <class Op>
DEFT_FLATTEN void of_a(const ChainLink* at, float* const* slots, int64_t first, DEFT_TILE) {
  const auto f = [&](V a, int) HWY_ATTR { return Op::fwd(a); };
  DEFT_NEXT(f);
}

DEFT_FLATTEN void load(const ChainLink* at, float* const* slots, int64_t first, DEFT_TILE) {
  const float* x = operand(at, slots, first);
  const auto f = [&](V, int i) HWY_ATTR { return load_at(x, i); };
  DEFT_NEXT(f);
}
DEFT_FLATTEN void put(float* to, DEFT_TILE) {
  const V all[] = {a0, a1, a2, a3, a4, a5, a6, a7};
  for (int i = 0; i < 8; ++i) all[i].store(to + i * static_cast<int64_t>(V::kLanes));
}
DEFT_FLATTEN void store(const ChainLink* at, float* const* slots, int64_t first, DEFT_TILE) {
  put(slots[at->slot] + (first & at->moves), a0, a1, a2, a3, a4, a5, a6, a7);
  const auto f = [&](V a, int) HWY_ATTR { return a; };
  DEFT_NEXT(f);
}
DEFT_FLATTEN void end(const ChainLink* at, float* const* slots, int64_t first, DEFT_TILE) {
  put(slots[at->slot] + (first & at->moves), a0, a1, a2, a3, a4, a5, a6, a7);
}

void run_tiles(const ChainLink* links, float* const* slots, int64_t begin, int64_t last) {
  const V none(0);
  for (int64_t first = begin; first < last; first += kTile)
    reinterpret_cast<Link>(links->fn)(links, slots, first, none, none, none, none, none, none, none, none);
}

LinkFn erased(Link f) { return reinterpret_cast<LinkFn>(f); }

LinkTable link_table() {
  static const LinkFns ops[] = {
#define DEFT_LINK2(Type) {erased(of_a_x<Type>), erased(of_x_a<Type>), erased(of_a_a<Type>)},
#define DEFT_LINK1(Type) {nullptr, nullptr, erased(of_a<Type>)},
      DEFT_LINKS
#undef DEFT_LINK1
#undef DEFT_LINK2
  };
  return {ops, erased(load), erased(store), erased(end), run_tiles, kTile};
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft {

namespace cpu {
namespace {
HWY_EXPORT(link_table);
}
}  // namespace cpu

namespace {

const LinkTable& table() {
  using namespace cpu;
  static const LinkTable found = HWY_DYNAMIC_DISPATCH(link_table)();
  return found;
}

const LinkFns* links_of(const OpDef* op) {
  static const OpDef* const known[] = {
#define DEFT_LINK2(Type) &op_def<Type>,
#define DEFT_LINK1 DEFT_LINK2
      DEFT_LINKS
#undef DEFT_LINK1
#undef DEFT_LINK2
  };
  for (size_t i = 0; i < std::size(known); ++i)
    if (known[i] == op) return &table().ops[i];
  return nullptr;
}

bool is_f32(const cpu::ChainStep& s) {
  return s.compute == DType::f32 && s.result == DType::f32 && s.stored == DType::f32;
}
bool fits(const cpu::ChainCall& call, const OpDef* const* ops) {
  for (int s = 0; s < call.steps; ++s)
    if (!is_f32(call.step[s]) || !links_of(ops[s])) return false;
  for (int i = 0; i < call.inputs; ++i) {
    const cpu::ChainInput& in = call.in[i];
    if (in.period != 1 && (in.period != 0 || in.row != 0 || in.dtype != DType::f32)) return false;
  }
  return true;
}

class Linker {
 public:
  explicit Linker(cpu::ChainCall& call) : c_(call) {}

  void step(int s, const LinkFns& op) {
    const cpu::ChainStep& x = c_.step[s];
    const int before = s > 0 ? cpu::kChainInputs + s - 1 : -1;
    bool first = x.in[0] == before, second = x.inputs > 1 && x.in[1] == before;
    if (!first && !second) {
      add(table().load, x.in[0]);
      first = true;
      second = x.inputs > 1 && x.in[1] == x.in[0];
    }
    if (x.inputs == 1 || (first && second))
      add(op.of_a_a, x.in[0]);
    else
      add(first ? op.of_a_x : op.of_x_a, x.in[first ? 1 : 0]);
    if (s + 1 == c_.steps)
      add(table().end, cpu::kChainInputs + s);
    else if (is_read_later(s))
      add(table().store, cpu::kChainInputs + s);
  }

 private:
  bool is_read_later(int s) const {
    for (int later = s + 2; later < c_.steps; ++later)
      for (int i = 0; i < c_.step[later].inputs; ++i)
        if (c_.step[later].in[i] == cpu::kChainInputs + s) return true;
    return false;
  }
  // Numbers and results in between have a tile of their own.
  void add(cpu::LinkFn fn, int slot) {
    const bool moves = slot < cpu::kChainInputs ? c_.in[slot].period == 0 : slot == cpu::kChainInputs + c_.steps - 1;
    c_.link[links_++] = {fn, slot, moves ? -1 : 0};
  }
  cpu::ChainCall& c_;
  int links_ = 0;
};

}  // namespace

void add_links(cpu::ChainCall& call, const OpDef* const* ops) {
  if (!fits(call, ops)) return;
  Linker linker(call);
  for (int s = 0; s < call.steps; ++s) linker.step(s, *links_of(ops[s]));
  call.tile = table().tile;
  call.run_tiles = table().run;
}

}  // namespace deft
#endif
