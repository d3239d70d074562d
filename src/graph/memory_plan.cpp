#include "graph/memory_plan.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/conv.h"
#include "ops/elementwise_chain.h"
#include "ops/packed_linear.h"

namespace deft::graph {

namespace {

constexpr int64_t kAlign = 64;

int64_t aligned(size_t bytes) { return (static_cast<int64_t>(bytes) + kAlign - 1) / kAlign * kAlign; }

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

// The lowest place where `bytes` fit between the blocks given, which are sorted by offset.
int64_t lowest_place(const std::vector<std::pair<int64_t, int64_t>>& blocks, int64_t bytes) {
  int64_t at = 0;
  for (const auto& [offset, size] : blocks) {
    if (at + bytes <= offset) break;
    at = std::max(at, offset + size);
  }
  return at;
}

bool is_chain_input(const Instruction& x, size_t i) {
  ElementwiseChain::Params p;
  std::memcpy(&p, x.params.data(), sizeof p);
  return p.period[i] == 0;
}

// Whether the kernel may write its result over input i, which lies in memory in the same order: each element is read
// for the last time before it is written.
bool may_write_over(const Instruction& x, size_t i, Device device) {
  if (x.action != Action::make) return false;
  if (x.def->elementwise) return true;
  if (x.def == &op_def<ElementwiseChain>) return is_chain_input(x, i);
  return i == 3 && (x.def == &op_def<FusedConvolution> || (device.is_cpu() && x.def == &op_def<FusedLinear>));
}

bool same_bytes(const Value& a, const Value& b) {
  return a.offset == b.offset && a.meta.sizes == b.meta.sizes && a.meta.strides == b.meta.strides &&
         size_of(a.meta.dtype) == size_of(b.meta.dtype);
}

// Buffers that share one place at different times.
struct Block {
  std::vector<size_t> buffers;
  Lifetime life;
  int64_t bytes;
};

class Planner {
 public:
  explicit Planner(const Graph& graph) : g_(graph), lives_(lifetimes(graph)), block_of_(graph.buffers.size(), -1) {
    std::vector<bool> result(g_.buffers.size(), false);
    for (ValueId id : g_.outputs) result[index(g_.value(id).buffer)] = true;
    for (size_t i = 0; i < g_.buffers.size(); ++i) {
      if (g_.buffers[i].kind != BufferKind::temporary || g_.buffers[i].kept || result[i] || lives_[i].first < 0)
        continue;
      block_of_[i] = static_cast<int32_t>(blocks_.size());
      blocks_.push_back({{i}, lives_[i], aligned(g_.buffers[i].bytes)});
    }
  }

  int64_t write_over_inputs() {
    int64_t count = 0;
    for (size_t i = 0; i < g_.instructions.size(); ++i) count += write_over_an_input(i);
    return count;
  }
  MemoryPlan run() {
    MemoryPlan plan;
    for (const Block& b : blocks_) plan.sum += b.bytes;
    for (const Buffer& b : g_.buffers) plan.kept += b.kept ? aligned(b.bytes) : 0;
    plan.in_place = write_over_inputs();
    const std::vector<int64_t> all = alive();
    plan.floor = *std::max_element(all.begin(), all.end());
    plan.bytes = INT64_MAX;
    for (int order = 0; order < kOrders && plan.bytes > plan.floor; ++order) place(order, plan);
    return plan;
  }

  std::vector<int64_t> alive() const {
    std::vector<int64_t> bytes(g_.instructions.size() + 2, 0);
    for (const Block& b : blocks_) {
      if (b.buffers.empty()) continue;
      bytes[index(b.life.first)] += b.bytes;
      bytes[index(b.life.last) + 1] -= b.bytes;
    }
    std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
    bytes.pop_back();
    return bytes;
  }

 private:
  static constexpr int kOrders = 3;

  int write_over_an_input(size_t at) {
    const Instruction& x = g_.instructions[at];
    if (x.outputs.size() != 1) return 0;
    const Value& out = g_.value(x.outputs[0]);
    const int32_t made = block_of_[index(out.buffer)];
    if (made < 0 || blocks_[index(made)].life.first != static_cast<int32_t>(at)) return 0;
    for (size_t i = 0; i < x.inputs.size(); ++i) {
      if (x.inputs[i] == kNone || !may_write_over(x, i, out.meta.device)) continue;
      const int32_t read = block_of_[index(g_.value(x.inputs[i]).buffer)];
      if (read < 0 || read == made || !ends_here(x, i, at, out)) continue;
      join(read, made);
      return 1;
    }
    return 0;
  }
  // Input i fills its buffer as the result does, and nothing else of that buffer is read here or later.
  bool ends_here(const Instruction& x, size_t i, size_t at, const Value& out) const {
    const Value& in = g_.value(x.inputs[i]);
    if (lives_[index(in.buffer)].last != static_cast<int32_t>(at) || !same_bytes(in, out)) return false;
    if (g_.buffers[index(in.buffer)].bytes != g_.buffers[index(out.buffer)].bytes) return false;
    for (size_t other = 0; other < x.inputs.size(); ++other) {
      const ValueId id = x.inputs[other];
      if (other == i || id == kNone || g_.value(id).buffer != in.buffer) continue;
      if (!may_write_over(x, other, out.meta.device) || !same_bytes(g_.value(id), in)) return false;
    }
    return true;
  }
  void join(int32_t earlier, int32_t later) {
    Block &a = blocks_[index(earlier)], &b = blocks_[index(later)];
    a.life.last = b.life.last;
    for (size_t buffer : b.buffers) block_of_[buffer] = earlier;
    a.buffers.insert(a.buffers.end(), b.buffers.begin(), b.buffers.end());
    b = {{}, {}, 0};
  }

  // Largest first; largest product of bytes and life first; in the order in which they are made.
  std::vector<size_t> ordered(int order) const {
    std::vector<size_t> found(blocks_.size());
    std::iota(found.begin(), found.end(), size_t{0});
    auto rank = [&](size_t i) {
      const Block& b = blocks_[i];
      return order == 0   ? -b.bytes
             : order == 1 ? -b.bytes * (b.life.last - b.life.first + 1)
                          : static_cast<int64_t>(b.life.first);
    };
    std::stable_sort(found.begin(), found.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
    return found;
  }
  void place(int order, MemoryPlan& best) const {
    std::vector<int64_t> offsets(blocks_.size(), 0);
    std::vector<size_t> placed;
    int64_t end = 0;
    for (size_t i : ordered(order)) {
      const Block& b = blocks_[i];
      if (b.buffers.empty()) continue;
      std::vector<std::pair<int64_t, int64_t>> taken;
      for (size_t other : placed)
        if (overlap(b.life, blocks_[other].life)) taken.emplace_back(offsets[other], blocks_[other].bytes);
      std::sort(taken.begin(), taken.end());
      offsets[i] = lowest_place(taken, b.bytes);
      end = std::max(end, offsets[i] + b.bytes);
      placed.push_back(i);
    }
    if (end >= best.bytes) return;
    best.bytes = end;
    best.offsets.assign(g_.buffers.size(), kOutside);
    for (size_t i = 0; i < blocks_.size(); ++i)
      for (size_t buffer : blocks_[i].buffers) best.offsets[buffer] = offsets[i];
  }

  const Graph& g_;
  std::vector<Lifetime> lives_;
  std::vector<int32_t> block_of_;  // by buffer
  std::vector<Block> blocks_;
};

}  // namespace

std::vector<Lifetime> lifetimes(const Graph& graph) {
  std::vector<Lifetime> all(graph.buffers.size());
  auto touch = [&](ValueId id, size_t at) {
    if (id == kNone) return;
    Lifetime& l = all[static_cast<size_t>(graph.value(id).buffer)];
    if (l.first < 0) l.first = static_cast<int32_t>(at);
    l.last = static_cast<int32_t>(at);
  };
  for (size_t i = 0; i < graph.instructions.size(); ++i) {
    if (graph.instructions[i].action == Action::view) continue;  // nothing is read
    for (ValueId id : graph.instructions[i].inputs) touch(id, i);
    for (ValueId id : graph.instructions[i].outputs) touch(id, i);
  }
  for (ValueId id : graph.outputs) touch(id, graph.instructions.size());
  return all;
}

std::vector<int64_t> bytes_alive(const Graph& graph) {
  Planner planner(graph);
  planner.write_over_inputs();
  return planner.alive();
}
MemoryPlan plan_memory(const Graph& graph) { return Planner(graph).run(); }

}  // namespace deft::graph
