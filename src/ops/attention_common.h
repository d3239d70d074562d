// What the attention kernels of all devices are called with. Internal.
#pragma once

#include <algorithm>

#include "ops/attention.h"
#include "ops/dense.h"

namespace deft::heads {

// Leading sizes, then two more.
inline Shape lead_of(const Shape& sizes) {
  Shape lead = sizes;
  lead.resize(sizes.size() - 2);
  return lead;
}
inline Shape with_last(Shape lead, int64_t rows, int64_t columns) {
  lead.push_back(rows);
  lead.push_back(columns);
  return lead;
}

// Features next to each other.
inline Tensor with_dense_rows(const Tensor& t) { return t.size(-1) <= 1 || t.strides().back() == 1 ? t : as_dense(t); }

template <class View>
View view_of(const Tensor& t, const Shape& lead) {
  cpu::Operand o = operand_as(t, with_last(lead, t.size(-2), t.size(-1)));
  View v{};
  v.data = o.data;
  std::copy_n(o.strides, lead.size(), v.lead);
  v.row = o.strides[lead.size()];
  return v;
}

// Inputs from `first` on: query, key, value, mask. `kept` holds copies while the kernel runs.
template <class Call>
struct Prepared {
  using View = decltype(Call::q);
  Call call{};
  Shape lead;
  Tensor kept[5];

  template <class Params>
  Prepared(KernelCall& c, int first, const Tensor& result, const Tensor& log_sum, const Params& p) {
    for (int i = 0; i < 3; ++i) kept[i] = with_dense_rows(c.in(first + i));
    kept[3] = with_dense_rows(result);
    lead = lead_of(result.sizes());
    call.dtype = result.dtype();
    call.lead_dims = lead.size();
    std::copy_n(lead.data(), lead.size(), call.lead);
    call.queries = kept[0].size(-2);
    call.keys = kept[1].size(-2);
    call.features = kept[0].size(-1);
    call.value_features = kept[2].size(-1);
    call.scale = p.scale;
    call.causal = p.causal;
    call.drop = {p.drop_p, p.draw};
    call.q = view_of<View>(kept[0], lead);
    call.k = view_of<View>(kept[1], lead);
    call.v = view_of<View>(kept[2], lead);
    call.o = view_of<View>(kept[3], lead);
    call.log_sum = log_sum.data_ptr();
    if (c.has(first + 3)) set_mask(c.in(first + 3));
  }
  void set_mask(const Tensor& mask) {
    cpu::Operand o = operand_as(mask, with_last(lead, call.queries, call.keys));
    call.mask.data = o.data;
    std::copy_n(o.strides, lead.size(), call.mask.lead);
    call.mask.row = o.strides[lead.size()];
    call.mask_key = o.strides[lead.size() + 1];
    call.mask_dtype = mask.dtype();
  }
};

// kernel(call)
template <class Call, class F>
void run(KernelCall& c, F&& kernel) {
  const auto& p = c.params<ScaledDotProductAttention>();
  kernel(Prepared<Call>(c, 0, c.out(0), c.out(1), p).call);
}
// kernel(call, grads)
template <class Call, class Grads, class F>
void run_backward(KernelCall& c, F&& kernel) {
  using View = decltype(Call::q);
  const auto& p = c.params<ScaledDotProductAttentionBackward>();
  Prepared<Call> prepared(c, 1, c.in(5), c.in(6), p);
  Tensor g = with_dense_rows(c.in(0));
  Grads grads;
  grads.g = view_of<View>(g, prepared.lead);
  View* out[] = {&grads.dq, &grads.dk, &grads.dv};
  for (int i = 0; i < 3; ++i)
    if (p.wanted >> i & 1) *out[i] = view_of<View>(c.out(i), prepared.lead);
  kernel(prepared.call, grads);
}

}  // namespace deft::heads
