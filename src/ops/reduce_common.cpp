#include "ops/reduce_common.h"

#include "base/check.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "ops/creation.h"
#include "ops/operand.h"
#include "ops/view.h"

namespace deft::reduction {

uint32_t dim_bits(IntList dims, const Tensor& x, const char* op) {
  detail::check_defined(x, op);
  if (dims.empty()) return (1u << x.dim()) - 1;
  uint32_t bits = 0;
  for (int64_t d : dims) {
    uint32_t bit = 1u << normalize_dim(d, x.dim(), op);
    DEFT_CHECK(!(bits & bit), IndexError, "{}: dimension {} is named twice", op, d);
    bits |= bit;
  }
  return x.dim() == 0 ? 0 : bits;
}

Shape reduced_sizes(const Shape& sizes, uint32_t dims, bool keepdim) {
  Shape out;
  for (int i = 0; i < sizes.size(); ++i) {
    if (!(dims >> i & 1))
      out.push_back(sizes[i]);
    else if (keepdim)
      out.push_back(1);
  }
  return out;
}

int64_t reduced_count(const Shape& sizes, uint32_t dims) {
  int64_t n = 1;
  for (int i = 0; i < sizes.size(); ++i)
    if (dims >> i & 1) n *= sizes[i];
  return n;
}

Tensor with_dims(const Tensor& reduced, const Shape& sizes, uint32_t dims) {
  return reduced.dim() == sizes.size() ? reduced : reduced.reshape(reduced_sizes(sizes, dims, true));
}

Tensor omit_each(const Tensor& x) {
  int64_t n = x.sizes().back();
  Shape sizes = x.sizes();
  sizes.push_back(n);
  return x.unsqueeze(-2).expand(sizes).masked_fill(eye(n, n, {DType::boolean, x.device()}), 1);
}

Meta same_layout(const Meta& x) {
  Meta m = Meta::dense(x.sizes, x.dtype, x.device);
  if (!x.contiguous && x.is_dense()) m.set_strides(x.strides);
  return m;
}

Tensor laid_out_as(const Tensor& x, const Meta& m) {
  bool same = x.dtype() == m.dtype;
  for (int i = 0; same && i < m.rank(); ++i) same = m.sizes[i] <= 1 || x.strides()[i] == m.strides[i];
  if (same) return x;
  Tensor copy(make_tensor(m));
  copy_values(x, copy);
  return copy;
}

void vjp_through(VjpContext& c, int count, Formula formula) {
  bool any = false;
  for (int i = 0; i < count; ++i) any |= c.needs(i);
  if (!any) return;
  EnableGradGuard guard(c.node.site);
  std::vector<Tensor> inputs(static_cast<size_t>(c.input_count()));
  for (int i = 0; i < c.node.saved; ++i) {
    const SavedTensor& s = c.node.saved_tensors()[i];
    if (!s.is_output) inputs[s.index] = c.saved_input(s.index);
  }
  // Differentiated are second handles of the inputs: an input may depend on another one, and that path is not ours.
  std::vector<Tensor> wanted;
  std::vector<int> wanted_at;
  for (int i = 0; i < c.input_count(); ++i) {
    Tensor& x = inputs[static_cast<size_t>(i)];
    if (!x.defined()) continue;
    if (i >= count || !c.needs(i)) {
      x = x.detach();
      continue;
    }
    x = c.create_graph ? view(x, x.sizes(), c.node.site) : x.detach().requires_grad_();
    wanted.push_back(x);
    wanted_at.push_back(i);
  }
  std::vector<Tensor> outputs, grads;
  std::vector<Tensor> all = formula(inputs);
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& g = c.grad(static_cast<int>(i));
    if (!g.defined() || !all[i].defined() || !all[i].requires_grad()) continue;
    outputs.push_back(all[i]);
    grads.push_back(g);
  }
  if (outputs.empty() || wanted.empty()) return;
  std::vector<Tensor> result =
      grad(outputs, wanted, grads,
           {.retain_graph = c.create_graph, .create_graph = c.create_graph, .allow_unused = true}, c.node.site);
  for (size_t i = 0; i < result.size(); ++i) c.grad_in(wanted_at[i]) = result[i];
}

}  // namespace deft::reduction
