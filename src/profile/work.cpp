#include "profile/work.h"

#include <algorithm>

#include "ops/copy.h"
#include "ops/cumulative.h"
#include "ops/elementwise_chain.h"
#include "ops/fused_rows.h"
#include "ops/gather_scatter.h"
#include "ops/indexing.h"
#include "ops/op_table.h"
#include "ops/optimizer_work.h"
#include "ops/pool.h"
#include "ops/product_flops.h"
#include "ops/random.h"

namespace deft::profile {

namespace {

template <class... Ops>
bool is_one_of(const OpDef& def) {
  return ((&def == &op_def<Ops>) || ...);
}

double number(int64_t n) { return static_cast<double>(n); }

// Elements in memory: those a broadcast dimension repeats are there once.
int64_t distinct(const Meta& m) {
  int64_t n = m.numel;
  if (m.contiguous || n == 0) return n;
  for (int d = 0; d < m.rank(); ++d)
    if (m.strides[d] == 0) [[unlikely]]
      n /= m.sizes[d];
  return n;
}
inline double bytes_of(const Meta& m) { return number(distinct(m) * static_cast<int64_t>(size_of(m.dtype))); }

bool same_place(const Tensor& a, const Tensor& b) { return a.impl()->data == b.impl()->data && a.numel() == b.numel(); }
bool is_inplace(const KernelCall& c) {
  return c.has(0) && c.def.info.outputs > 0 && c.out().defined() && same_place(c.in(), c.out());
}

bool given_before(const KernelCall& c, int i) {
  constexpr int kLooked = 4;  // long lists (cat) are not searched
  for (int j = 0; j < std::min(i, kLooked); ++j)
    if (c.has(j) && same_place(c.in(j), c.in(i))) return true;
  return false;
}

double input_bytes(const KernelCall& c, int first) {
  double bytes = 0;
  for (int i = first; i < c.input_count; ++i)
    if (c.has(i) && !given_before(c, i)) bytes += bytes_of(c.in(i).meta());
  return bytes;
}
double output_bytes(const KernelCall& c) {
  double bytes = 0;
  for (int i = 0; i < c.def.info.outputs; ++i)
    if (c.out(i).defined()) bytes += bytes_of(c.out(i).meta());
  return bytes;
}

// Fills do not read their target, lookups read what they return, and in-place scatters touch only what they write.
double bytes_of(const KernelCall& c) {
  const OpDef& def = c.def;
  if (def.info.fusion != Fusion::none) return input_bytes(c, 0) + output_bytes(c);
  if (is_one_of<Fill, CopyInto, UniformFill, NormalFill, RandintFill>(def)) return input_bytes(c, 1) + output_bytes(c);
  if (is_one_of<Embedding, Gather, IndexSelect, Index>(def)) {
    const double taken = bytes_of(c.out().meta());
    return std::min(taken, bytes_of(c.in().meta())) + input_bytes(c, 1) + taken;
  }
  if (is_one_of<ScatterAdd, Scatter, IndexAdd, IndexPut>(def) && is_inplace(c)) {
    const double put = std::min(bytes_of(c.in(2).meta()), bytes_of(c.in().meta()));
    return input_bytes(c, 1) + 2 * put;
  }
  return input_bytes(c, 0) + output_bytes(c);
}

double largest_operand(const KernelCall& c) {
  int64_t n = c.def.info.outputs > 0 && c.out().defined() ? c.out().numel() : 0;
  for (int i = 0; i < c.input_count; ++i)
    if (c.has(i)) n = std::max(n, c.in(i).numel());
  return number(n);
}

double steps_of(const OpDef& def, const void* params) {
  return &def == &op_def<ElementwiseChain> ? static_cast<const ElementwiseChain::Params*>(params)->steps : 1;
}
double steps_of(const FusedRows::Params& p) {
  double steps = 0;
  for (const FusedRows::Part& part : p.part)
    if (const OpDef* def = part.op >= 0 ? op_at(part.op) : nullptr) steps += steps_of(*def, part.params.data());
  return steps;
}

double product_flops(const KernelCall& c) {
  const Meta* metas[kProductInputs] = {};
  for (int i = 0; i < std::min(c.input_count, kProductInputs); ++i)
    if (c.has(i)) metas[i] = &c.in(i).meta();
  return deft::product_flops(c.def, metas, c.out().meta(), c.params_data);
}

double flops_of(const KernelCall& c) {
  const OpDef& def = c.def;
  if (def.info.cost == Cost::compute_bound) return product_flops(c);
  if (def.info.fusion == Fusion::elementwise) return number(c.out().numel()) * steps_of(def, c.params_data);
  if (&def == &op_def<FusedRows>) return largest_operand(c) * steps_of(c.params<FusedRows>());
  if (def.info.fusion == Fusion::row_reduce) return largest_operand(c);
  if (is_one_of<CumSum, CumProd, Dropout, MaxPool, AvgPool, MaxPoolBackward, AvgPoolBackward>(def))
    return largest_operand(c);
  if (is_one_of<EmbeddingBackward>(def)) return number(c.in().numel());
  if (is_one_of<ScatterAdd, Scatter, IndexAdd>(def)) return number(c.in(2).numel());
  return 0;
}

}  // namespace

Work work_of(const KernelCall& call) {
  if (&call.def == &op_def<TensorPass>) return {call.params<TensorPass>().flops, call.params<TensorPass>().bytes};
  return {flops_of(call), bytes_of(call)};
}

}  // namespace deft::profile
