// Which kernel reduces what: see reduce.cuh.
#include <cmath>

#include "kernels/cuda/reduce/reduce.cuh"

namespace deft::cuda {

namespace {

int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t power_of_two_from(int64_t v) {
  int64_t p = 1;
  while (p < v) p *= 2;
  return p;
}
// At most `high`, but `low` in any case.
int64_t between(int64_t low, int64_t v, int64_t high) {
  if (v > high) v = high;
  return v < low ? low : v;
}

struct Split {
  Iteration kept;     // operand 0: input, 1: output
  Iteration reduced;  // operand 0: input
};

Split split_dims(const ReduceCall& c, bool ordered) {
  int64_t sizes[2][kMaxDims], in[2][kMaxDims], out[kMaxDims];
  int count[2] = {0, 0};
  for (int d = 0; d < c.ndim; ++d) {
    int side = c.reduced[d], at = count[side]++;
    sizes[side][at] = c.sizes[d];
    in[side][at] = c.in.strides[d];
    if (!side) out[at] = c.out.strides[d];
  }
  Split s{Iteration(count[0], sizes[0]), Iteration(count[1], sizes[1])};
  s.kept.add(in[0]);
  s.kept.add(out);
  s.reduced.add(in[1]);
  s.kept.normalize();
  s.reduced.normalize(ordered);
  return s;
}

// True if every offset into the input is a multiple of `pack` apart from the inner dim of `it`.
bool multiples(const Iteration& it, int64_t pack, bool skip_inner) {
  for (int d = 0; d < it.ndim - skip_inner; ++d)
    if (it.strides[0][d] % pack != 0) return false;
  return true;
}

bool pack_aligned(const ReduceCall& c, int pack) {
  return reinterpret_cast<uintptr_t>(c.in.data) % (size_of(c.in.dtype) * static_cast<size_t>(pack)) == 0;
}

void cut(ReduceArgs& a, int64_t pieces, int64_t unit) {
  a.piece = ceil_div(ceil_div(a.n, unit), pieces) * unit;
  a.pieces = ceil_div(a.n, a.piece);
}

constexpr int64_t kThreadsPerMultiprocessor = 2048;
constexpr int64_t kBlocksPerMultiprocessor = 8;

void plan_rows(ReducePlan& p, const Encoder& e, int64_t unit, bool one_thread) {
  ReduceArgs& a = p.args;
  p.kind = ReducePlan::rows;
  const int64_t units = ceil_div(a.n, unit), multiprocessors = e.multiprocessors();
  const int64_t few = power_of_two_from(ceil_div(units, 4)), least = between(1, power_of_two_from(units), 4);
  a.group = static_cast<int>(few > least ? few : least);
  if (one_thread) {
    a.group = 1;
  } else if (few > 32) {
    bool enough = a.outputs * 32 >= multiprocessors * kThreadsPerMultiprocessor;
    a.group = enough ? 32 : kReduceThreads;
    int64_t wanted = multiprocessors * kBlocksPerMultiprocessor / a.outputs;
    if (!enough) cut(a, between(1, wanted, units / (kReduceThreads * 4) + 1), unit);
  }
  p.blocks = Encoder::blocks_for(a.outputs * a.pieces, kReduceThreads / a.group);
}

void plan_columns(ReducePlan& p, const Encoder& e, int pack, int rows_at_once) {
  ReduceArgs& a = p.args;
  p.kind = pack > 1 ? ReducePlan::wide_columns : ReducePlan::columns;
  int64_t down = 1;
  while (down < 8 && down * 2 * rows_at_once <= a.n) down *= 2;
  const int64_t packs = a.width / pack, most = kReduceThreads / down;
  a.across = static_cast<int>(between(1, power_of_two_from(packs), most));
  a.strips_across = ceil_div(packs, a.across);
  down = kReduceThreads / a.across;
  const int64_t strips = a.outputs / a.width * a.strips_across;
  const int64_t wanted = e.multiprocessors() * kBlocksPerMultiprocessor / strips;
  cut(a, between(1, wanted, a.n / (down * rows_at_once * 2)), 1);
  p.blocks = static_cast<unsigned>(strips * a.pieces);
}

}  // namespace

ReducePlan plan_reduce(const Encoder& e, const ReduceCall& c, const ReduceTraits& t) {
  Split s = split_dims(c, t.ordered);
  Iteration &kept = s.kept, &reduced = s.reduced;
  const int inner = reduced.ndim - 1;
  bool flat = reduced.ndim == 1 && reduced.strides[0][0] == 1;
  bool aligned = t.pack > 1 && pack_aligned(c, t.pack) && multiples(kept, t.pack, false);
  bool packed = aligned && !flat && reduced.ndim > 1 && reduced.strides[0][inner] == 1 &&
                reduced.sizes[inner] % t.pack == 0 && multiples(reduced, t.pack, true);
  const int64_t n = reduced.total, width = kept.sizes[kept.ndim - 1], side_step = kept.strides[0][kept.ndim - 1];
  bool rows =
      kept.total == 1 || n == 1 || side_step == 0 || magnitude(reduced.strides[0][inner]) <= magnitude(side_step);
  if (!rows) packed = false;
  if (packed) {
    reduced.sizes[inner] /= t.pack;
    reduced.strides[0][inner] = t.pack;
  }
  ReducePlan p{ReducePlan::partials_only,
               {.in = c.in.data,
                .out = c.out.data,
                .indices = c.indices,
                .out_dtype = c.out.dtype,
                .n = n,
                .outputs = kept.total,
                .pieces = 1,
                .piece = n,
                .flat = flat,
                .packed = packed,
                .group = 1,
                .across = 1,
                .width = width,
                .strips_across = 1,
                .kept = ElementMap<2>(kept),
                .reduced = ElementMap<1>(reduced)},
               0};
  if (n == 0 || kept.total == 0) return p;
  if (rows) {
    plan_rows(p, e, t.pack > 1 && (flat || packed) ? t.pack : 1, false);
    return p;
  }
  // Many narrow columns: with a thread per output, reads are coalesced as well.
  const int64_t outer = kept.total / width, multiprocessors = e.multiprocessors();
  bool narrow = width < 128 && kept.total >= multiprocessors * kThreadsPerMultiprocessor;
  bool tiny = width * n < 2048 && outer > multiprocessors * kBlocksPerMultiprocessor;
  if (outer > 1 && (narrow || tiny)) {
    plan_rows(p, e, 1, true);
    return p;
  }
  bool wide = t.column_pack > 1 && side_step == 1 && width % t.column_pack == 0 && pack_aligned(c, t.column_pack) &&
              multiples(kept, t.column_pack, true) && multiples(reduced, t.column_pack, false);
  plan_columns(p, e, wide ? t.column_pack : 1, t.rows_at_once);
  return p;
}

DType reduce_input(ReduceOp op, DType t) {
  if (is_floating(t)) return t;
  switch (op) {
    case ReduceOp::sum:
      return t == DType::i8 ? DType::i32 : t;
    case ReduceOp::prod:
      return DType::i64;
    case ReduceOp::max:
    case ReduceOp::min:
    case ReduceOp::argmax:
    case ReduceOp::argmin:
      return t == DType::i64 ? t : DType::i32;
    case ReduceOp::any:
    case ReduceOp::all:
    case ReduceOp::count_nonzero:
      return t;
    default:
      return DType::f64;
  }
}

void reduce(Encoder& e, const ReduceCall& call) {
  switch (call.op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return reduce_sum(e, call);
    case ReduceOp::prod:
      return reduce_prod(e, call);
    case ReduceOp::any:
    case ReduceOp::all:
    case ReduceOp::count_nonzero:
      return reduce_count(e, call);
    case ReduceOp::max:
    case ReduceOp::min:
      return call.indices ? reduce_arg(e, call) : reduce_extreme(e, call);
    case ReduceOp::argmax:
    case ReduceOp::argmin:
      return reduce_arg(e, call);
    case ReduceOp::norm:
      if (call.param == 0) return reduce_count(e, call);
      if (std::isinf(call.param)) return reduce_extreme(e, call);
      return reduce_moments(e, call);
    default:
      return reduce_moments(e, call);
  }
}

}  // namespace deft::cuda
