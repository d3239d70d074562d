// softmax(q k^T * scale + mask) v, written in single ops, becomes one op that never has the scores in memory. Where a
// mask keeps a query from every key, that op gives zeros instead of NaN.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/cost.h"
#include "graph/edit.h"
#include "graph/passes.h"
#include "graph/uses.h"
#include "ops/attention.h"
#include "ops/binary.h"
#include "ops/copy.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/ternary.h"
#include "ops/unary.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft::graph {

namespace {

// The pattern found on the way back from the second matmul.
struct Found {
  size_t at = 0;                            // the second matmul
  ValueId q = kNone, k = kNone, v = kNone;  // k as the first matmul reads it: [..., e, s]
  double scale = 1;
  bool scaled_mask = false;  // there is a factor after the place where a mask may come
  ValueId mask = kNone;
  bool mask_hides = false;  // true means a hidden key
  bool causal = false;
  std::vector<size_t> taken;
  std::vector<std::pair<ValueId, size_t>> read;  // outside values that the fused instructions read, and where
  std::string why;                               // not empty: not fused
};

// Query i sees keys 0 to i and no others.
bool is_causal(const Tensor& hidden) {
  Tensor h = hidden.contiguous();
  const int64_t queries = h.size(-2), keys = h.size(-1);
  if (h.numel() != queries * keys) return false;
  const bool* data = static_cast<const bool*>(h.data_ptr());
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j)
      if (data[i * keys + j] != (j > i)) return false;
  return true;
}

class AttentionFuser {
 public:
  AttentionFuser(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes, bool weigh)
      : g_(graph), uses_(graph), dependencies_(dependencies), notes_(notes), weigh_(weigh) {}

  void run() {
    ExecContext plain = context();
    plain.bits = (plain.bits & ~(kAutocast | kInference)) | kGradOff;
    ContextGuard guard(plain);
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      if (g_.instructions[i].def != &op_def<Matmul> || g_.instructions[i].action != Action::make) continue;
      pending_.clear();
      std::optional<Found> f = find(i);
      if (!f) continue;
      if (f->why.empty()) check(*f);
      if (f->why.empty()) look_at_mask(*f);
      if (f->why.empty()) {
        fuse(*f);
      } else {
        notes_.left.push_back(
            fmt::format("fuse_attention: the one from {}: {}", to_string(g_.instructions[i].site), f->why));
      }
    }
    place();
    if (fused_) notes_.done.push_back(fmt::format("fuse_attention: {} of two matmuls and a softmax", fused_));
  }

 private:
  const Meta& meta(ValueId id) const { return g_.value(id).meta; }

  // The instruction that made what `reader` reads; -1 where others read it too, or there is none.
  int maker(ValueId id, size_t reader) const {
    int from = uses_.maker(id, reader);
    return from >= 0 && uses_.only_between(id, static_cast<size_t>(from), reader) ? from : -1;
  }
  // A number that is part of the program.
  std::optional<double> number(ValueId id) {
    if (id == kNone || !is_constant(g_, id) || meta(id).numel != 1 || !meta(id).device.is_cpu()) return {};
    if (meta(id).wrapped_number) return on_memory_of(g_.buffer_of(id).constant, g_.value(id)).item();
    return read_constant(g_, id, pending_).item();
  }
  // The factor of mul or div by a number, and what is multiplied.
  std::optional<std::pair<double, ValueId>> factor(const Instruction& x) {
    if (x.def == &op_def<Mul>) {
      for (size_t side : {1, 0})
        if (auto n = number(x.inputs[side])) return std::pair(*n, x.inputs[1 - side]);
    } else if (x.def == &op_def<Div>) {
      if (auto n = number(x.inputs[1])) return std::pair(1 / *n, x.inputs[0]);
    }
    return {};
  }

  std::optional<Found> find(size_t at) {
    const Instruction& last = g_.instructions[at];
    Found f;
    f.at = at, f.v = last.inputs[1];
    ValueId id = last.inputs[0];
    size_t reader = at;
    int from = maker(id, reader);
    while (from >= 0 && g_.instructions[static_cast<size_t>(from)].def == &op_def<Cast>) {
      take(f, from, id, reader, 0);
      from = maker(id, reader);
    }
    if (from < 0) return {};
    const Instruction& softmax = g_.instructions[static_cast<size_t>(from)];
    if (softmax.def != &op_def<Softmax>) return {};
    int64_t dim = params_of<SoftmaxParams>(softmax).dim;
    if (dim != -1 && dim != meta(id).rank() - 1) return {};
    take(f, from, id, reader, 0);
    if (!find_scores(f, id, reader)) return {};
    return f;
  }
  // On with input `side` of the instruction `from`, which goes.
  void take(Found& f, int from, ValueId& id, size_t& reader, size_t side) {
    reader = static_cast<size_t>(from);
    f.taken.push_back(reader);
    id = g_.instructions[reader].inputs[side];
  }

  // Scale, mask and casts between the first matmul and the softmax. False where there is no matmul.
  bool find_scores(Found& f, ValueId id, size_t reader) {
    const Shape scores = meta(id).sizes;
    for (int steps = 0; steps < 16; ++steps) {
      int from = uses_.maker(id, reader);
      if (from < 0) return false;
      const Instruction& x = g_.instructions[static_cast<size_t>(from)];
      const bool single = uses_.only_between(id, static_cast<size_t>(from), reader);
      if (x.def == &op_def<Matmul>) {
        if (!single) f.why = "the scores are used elsewhere too";
        if (!(meta(id).sizes == scores)) f.why = "a mask makes the scores larger";
        f.taken.push_back(static_cast<size_t>(from));
        f.q = x.inputs[0], f.k = x.inputs[1];
        scale_of_query(f, static_cast<size_t>(from));
        f.read.emplace_back(f.k, static_cast<size_t>(from));
        return true;
      }
      size_t side = 0;
      if (!step(f, x, static_cast<size_t>(from), side)) return false;
      if (!single) f.why = "the scores are used elsewhere too";
      take(f, from, id, reader, side);
    }
    return false;
  }
  // One op on the scores; `side` is the input that has them.
  bool step(Found& f, const Instruction& x, size_t from, size_t& side) {
    if (x.def == &op_def<Cast>) return is_floating(meta(x.outputs[0]).dtype);
    if (auto by = factor(x)) {
      side = x.inputs[0] == by->second ? 0 : 1;
      f.scale *= by->first;
      if (f.mask == kNone) f.scaled_mask = true;
      return std::isfinite(by->first);
    }
    if (x.def == &op_def<Add>) {
      side = is_score(x.inputs[0], from) ? 0 : 1;
      set_mask(f, x.inputs[1 - side], from, false);
      if (f.scaled_mask) f.why = "the mask is scaled too";
      return true;
    }
    if (x.def != &op_def<Where>) return false;
    auto low = [&](ValueId id) {
      auto n = number(id);
      return n && *n == -INFINITY;
    };
    if (!low(x.inputs[1]) && !low(x.inputs[2])) {
      if (!number(x.inputs[1]) && !number(x.inputs[2])) return false;
      f.why = "hidden scores get a finite number";
    }
    side = number(x.inputs[1]) ? 2 : 1;
    set_mask(f, x.inputs[0], from, side == 2);
    if (f.scaled_mask && !(f.scale > 0)) f.why = "the scores are turned round after the mask";
    return true;
  }
  // Made by one of the ops that scores go through.
  bool is_score(ValueId id, size_t reader) {
    int from = uses_.maker(id, reader);
    if (from < 0) return false;
    const OpDef* def = g_.instructions[static_cast<size_t>(from)].def;
    const OpDef* all[] = {&op_def<Matmul>, &op_def<Mul>, &op_def<Div>, &op_def<Add>, &op_def<Where>, &op_def<Cast>};
    return std::find(std::begin(all), std::end(all), def) != std::end(all);
  }
  void set_mask(Found& f, ValueId mask, size_t from, bool hides) {
    if (f.mask != kNone) f.why = "there are two masks";
    f.mask = mask;
    f.mask_hides = hides;
    f.read.emplace_back(mask, from);
  }
  void scale_of_query(Found& f, size_t matmul) {
    int from = maker(f.q, matmul);
    auto by = from < 0 ? std::nullopt : factor(g_.instructions[static_cast<size_t>(from)]);
    if (by && std::isfinite(by->first) && meta(by->second).sizes == meta(f.q).sizes) {
      f.scale *= by->first;
      f.q = by->second;
      f.taken.push_back(static_cast<size_t>(from));
      matmul = static_cast<size_t>(from);
    }
    f.read.emplace_back(f.q, matmul);
  }

  // The op's rules, and on the CPU whether it pays.
  void check(Found& f) {
    const Instruction& last = g_.instructions[f.at];
    const Meta &q = meta(f.q), &k = meta(f.k), &v = meta(f.v), &y = meta(last.outputs[0]);
    const DType type = q.dtype;
    if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2 || y.numel == 0 || k.numel == 0) f.why = "an operand has no rows";
    if (!is_floating(type) || k.dtype != type || v.dtype != type || y.dtype != type)
      f.why = "query, key, value and result are not of one floating type";
    if (f.mask != kNone && meta(f.mask).dtype != DType::boolean && meta(f.mask).dtype != type)
      f.why = fmt::format("the mask is {} and the query {}", name_of(meta(f.mask).dtype), name_of(type));
    const bool small_features = q.sizes.back() <= 128 && v.sizes.back() <= 128 && size_of(type) == 2;
    if (!y.device.is_cpu() && !small_features) f.why = "the device has no kernel for these features";
    for (const auto& [id, from] : f.read)
      for (size_t i = from + 1; i < f.at; ++i)
        for (ValueId w : g_.instructions[i].def ? written_values(g_.instructions[i]) : std::span<const ValueId>())
          if (g_.value(w).buffer == g_.value(id).buffer) f.why = "what it reads is written meanwhile";
    if (!f.why.empty()) return;
    if (weigh_) weigh(f);
  }
  // The fused kernel saves the passes over the scores. It works on tiles of kTileRows queries, full or not, and takes
  // kSetupNs: 1 query against 1024 keys (12 heads, 64 features, f32) takes 291 us instead of 173, 4 against 128 take 91
  // instead of 63, 40 against 40 take 28 instead of 34, 512 against 512 in bf16 4.4 ms instead of 6.4.
  static constexpr int64_t kTileRows = 8;
  static constexpr double kSetupNs = 1000;
  void weigh(Found& f) {
    double matmuls = nanoseconds(g_, g_.instructions[f.at]), passes = 0;
    for (size_t i : f.taken) {
      const Instruction& x = g_.instructions[i];
      (x.def == &op_def<Matmul> ? matmuls : passes) += nanoseconds(g_, x);
    }
    const Meta &q = meta(f.q), &k = meta(f.k);
    const int64_t rows = q.sizes[q.rank() - 2], full = (rows + kTileRows - 1) / kTileRows * kTileRows;
    double fused = kSetupNs + matmuls * static_cast<double>(full) / static_cast<double>(rows);
    if (k.strides[k.rank() - 2] != 1)  // transposed keys are copied first
      fused += 2 * static_cast<double>(k.numel) * static_cast<double>(size_of(k.dtype)) / kBytesPerNs;
    if (q.device.is_cpu() && fused >= matmuls + passes)
      f.why = fmt::format("it would take {:.1f} us instead of {:.1f}", fused / 1e3, (matmuls + passes) / 1e3);
  }

  // A constant mask is inspected: a causal one goes, one that hides all keys from a query keeps things as they
  // are.
  void look_at_mask(Found& f) {
    if (f.mask == kNone || !is_constant(g_, f.mask) || !meta(f.mask).device.is_cpu() || meta(f.mask).rank() < 2) return;
    Tensor mask = read_constant(g_, f.mask, pending_), hidden;
    if (mask.dtype() == DType::boolean) {
      hidden = f.mask_hides ? mask : logical_not(mask);
    } else {
      hidden = eq(mask, -INFINITY);
      Tensor zero = eq(mask, 0);
      f.causal = logical_not(logical_xor(hidden, zero)).any().item() == 0 && is_causal(hidden);
    }
    if (mask.dtype() == DType::boolean) f.causal = is_causal(hidden);
    if (f.causal) {
      const Meta &q = meta(f.q), &k = meta(f.k);  // as large as the scores, not stretched to them
      f.causal = mask.size(-2) == q.sizes[q.rank() - 2] && mask.size(-1) == k.sizes.back();
    }
    if (f.causal) {
      f.mask = kNone;
    } else if (hidden.all({-1}).any().item() != 0) {
      f.why = "the mask hides all keys from a query";
    } else if (f.mask_hides) {
      f.mask = add_constant(g_, logical_not(mask));
      f.mask_hides = false;
    }
  }

  void fuse(const Found& f) {
    const Instruction& last = g_.instructions[f.at];
    std::vector<Instruction>& list = replaced_.emplace_back(f.at, std::vector<Instruction>()).second;
    ValueId keys = transposed(f.k, last.site, list), mask = f.mask;
    if (mask != kNone && f.mask_hides) mask = negated(mask, last.site, list);
    const Meta& y = meta(last.outputs[0]);
    Shape rows = y.sizes;
    rows.resize(y.rank() - 1);
    Meta sums = Meta::dense(rows, y.dtype == DType::f64 ? DType::f64 : DType::f32, y.device);
    ScaledDotProductAttention::Params p{};
    p.scale = f.scale;
    p.causal = f.causal;
    const ValueId log_sum = add_temporary(sums);
    Instruction x{&op_def<ScaledDotProductAttention>, Action::make, {f.q, keys, f.v, mask},
                  {last.outputs[0], log_sum},         {},           last.site};
    set_params(x, p);
    list.push_back(std::move(x));
    for (size_t i : f.taken) g_.instructions[i].def = nullptr;
    dependencies_.insert(dependencies_.end(), pending_.begin(), pending_.end());
    ++fused_;
  }
  ValueId add_temporary(const Meta& m) {
    return g_.add_value(m, g_.add_buffer(BufferKind::temporary, static_cast<size_t>(m.numel) * size_of(m.dtype)));
  }
  ValueId transposed(ValueId id, const Site& site, std::vector<Instruction>& list) {
    Permute::Params p;
    const int rank = meta(id).rank();
    for (int d = 0; d < rank; ++d) p.dims.push_back(d < rank - 2 ? d : 2 * rank - 3 - d);
    ViewSpec spec = Permute::view(meta(id), p);
    const Value v = g_.value(id);
    const ValueId result = g_.add_value(spec.meta, v.buffer, v.offset);
    Instruction x{&op_def<Permute>, Action::view, {id}, {result}, {}, site};
    set_params(x, p);
    list.push_back(std::move(x));
    return result;
  }
  ValueId negated(ValueId mask, const Site& site, std::vector<Instruction>& list) {
    Meta m = Meta::dense(meta(mask).sizes, DType::boolean, meta(mask).device);
    const ValueId out = add_temporary(m);
    list.push_back({&op_def<LogicalNot>, Action::make, {mask}, {out}, {}, site});
    return out;
  }

  void place() {
    if (replaced_.empty()) return;
    std::vector<Instruction> all;
    auto next = replaced_.begin();
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      if (next != replaced_.end() && next->first == i) {
        std::move(next->second.begin(), next->second.end(), std::back_inserter(all));
        ++next;
      } else if (g_.instructions[i].def) {
        all.push_back(std::move(g_.instructions[i]));
      }
    }
    g_.instructions = std::move(all);
  }

  Graph& g_;
  Uses uses_;
  std::vector<Dependency>& dependencies_;
  std::vector<Dependency> pending_;  // of the current candidate
  Notes& notes_;
  bool weigh_;
  std::vector<std::pair<size_t, std::vector<Instruction>>> replaced_;  // in order
  size_t fused_ = 0;
};

}  // namespace

void fuse_attention(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes, bool weigh) {
  AttentionFuser(graph, dependencies, notes, weigh).run();
}

}  // namespace deft::graph
