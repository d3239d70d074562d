#include "kernels/cuda/elementwise/elementwise.h"
#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/elementwise_gradient.h"
#include "ops/op_table.h"
#include "ops/operand.h"

namespace deft::elementwise {

namespace {

cuda::Number number_of(const Tensor& t, DType compute) {
  Scalar value = t.item_scalar();
  cuda::Number n;
  if (compute == DType::f64)
    n.d = value.to_double();
  else if (is_floating(compute))
    n.f = static_cast<float>(value.to_double());
  else
    n.i = compute == DType::boolean ? value.to_bool() : value.to_int64();
  return n;
}

// The type everything would have to be stored in for the linear kernel.
DType stored_type(const Tensor* const* inputs, int count, const Tensor& out, bool boolean, bool condition) {
  if (!boolean) return out.dtype();
  for (int i = condition; i < count; ++i)
    if (!inputs[i]->device().is_cpu()) return inputs[i]->dtype();
  return out.dtype();
}

// Runs a formula over broadcast inputs into `out`; `row` has its kernels by element type.
void run(const cuda::ElementwiseKernel* row, const Tensor* const* inputs, int count, const Tensor& out, DType compute,
         const void* params, const char* op, bool boolean = false, bool condition = false) {
  const Meta& m = out.meta();
  if (m.numel == 0) return;
  cuda::ElementwiseCall call;
  call.ndim = m.rank();
  call.sizes = m.sizes.data();
  call.inputs = count;
  for (int i = 0; i < count; ++i) {
    if (inputs[i]->device().is_cpu()) {
      call.in[i].data = nullptr;
      call.number[i] = number_of(*inputs[i], compute);
    } else {
      call.in[i] = operand_as<cuda::Operand>(*inputs[i], m.sizes);
    }
  }
  call.out = operand<cuda::Operand>(out);
  call.compute = compute;
  call.stored = stored_type(inputs, count, out, boolean, condition);
  call.boolean = boolean;
  call.condition = condition;
  call.params = params;
  cuda::Encoder e(m.device, op);
  cuda::elementwise(e, row, call);
}

}  // namespace

void cuda_gradient(const ElementwiseDef& def, const Tensor* const* inputs, const Tensor& out, DType compute,
                   const void* params, const char* op) {
  run(def.cuda->grad_table() + def.row * kDTypeCount, inputs, 3, out, compute, params, op);
}

void cuda_kernel(KernelCall& c) {
  const auto& e = *c.def.elementwise;
  const Meta* metas[cuda::kMaxInputs];
  for (int i = 0; i < c.input_count; ++i) metas[i] = &c.in(i).meta();
  DType compute = compute_type(common_type(metas + e.condition, c.input_count - e.condition, e.result));
  const cuda::ElementwiseKernel* row = e.cuda->table() + e.row * kDTypeCount;
  DEFT_CHECK(row[static_cast<int>(compute)].strided, DTypeError, "{}: does not take {}; convert it with to()",
             c.def.info.name, name_of(compute));
  run(row, c.inputs, c.input_count, c.out(), compute, c.params_data, c.def.info.name, e.result == ResultType::boolean,
      e.condition);
}

namespace {

// bool < integers < floats.
int kind_of(DType t) { return is_floating(t) ? 2 : is_integral(t) ? 1 : 0; }

// The tensor whose shape and type all inputs that are no numbers have; nullptr if there is none.
const Meta* common_meta(const Tensor* const* inputs, int count) {
  const Meta* common = nullptr;
  for (int i = 0; i < count; ++i) {
    const Meta& m = inputs[i]->meta();
    if (m.wrapped_number) continue;
    if (!m.contiguous || m.device.is_cpu()) return nullptr;
    if (common && (m.dtype != common->dtype || m.device != common->device || !(m.sizes == common->sizes)))
      return nullptr;
    common = &m;
  }
  for (int i = 0; common && i < count; ++i)
    if (inputs[i]->meta().wrapped_number && kind_of(inputs[i]->dtype()) > kind_of(common->dtype)) return nullptr;
  return common;
}

ImplPtr make_result(const Meta& like, ResultType result) {
  if (result != ResultType::boolean) return make_tensor(like);
  Meta m = like;
  m.dtype = DType::boolean;
  return make_tensor(m);
}

}  // namespace

Tensor cuda_fast(const OpDef& def, const Tensor* const* inputs, int count, const void* params) {
  const auto& e = *def.elementwise;
  const Meta* m = common_meta(inputs, count);
  if (!m || !def.info.dtypes.contains(m->dtype)) return {};
  if (e.result == ResultType::floating && !is_floating(m->dtype)) return {};
  const cuda::ElementwiseKernel& kernel = e.cuda->table()[e.row * kDTypeCount + static_cast<int>(m->dtype)];
  if (!kernel.linear) return {};
  prepare_device_inputs(inputs, count);
  Tensor out(make_result(*m, e.result));
  if (m->numel == 0) return out;
  cuda::LinearArgs args;
  for (int i = 0; i < count; ++i) {
    bool number = inputs[i]->meta().wrapped_number;
    args.in[i] = number ? nullptr : inputs[i]->impl()->data;
    if (number) args.number[i] = number_of(*inputs[i], compute_type(m->dtype));
  }
  args.out = out.impl()->data;
  args.n = m->numel;
  cuda::Encoder encoder(m->device, def.info.name);
  cuda::elementwise_linear(encoder, kernel, args, count, params);
  return out;
}

}  // namespace deft::elementwise

namespace deft {

void ElementwiseGradient::cuda(KernelCall& c) {
  const Params& p = c.params<ElementwiseGradient>();
  const OpDef& def = *op_at(p.op);
  elementwise::cuda_gradient(*def.elementwise, c.inputs, c.out(), elementwise::compute_type(p.dtype), p.params.data(),
                             def.info.name);
}

}  // namespace deft
