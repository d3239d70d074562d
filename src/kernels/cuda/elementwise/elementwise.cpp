#include "kernels/cuda/elementwise/elementwise.h"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;

void launch(Encoder& e, const void* kernel, int64_t blocks, void* args, const void* params) {
  char none = 0;  // stands for the empty Params of most formulas
  void* list[] = {args, params ? const_cast<void*>(params) : &none};
  e.enqueue(kernel, static_cast<unsigned>(blocks), kThreads, 0, list);
}
void launch_linear(Encoder& e, const ElementwiseKernel& k, LinearArgs& a, const void* params) {
  launch(e, k.linear, (a.n + k.elements_per_block - 1) / k.elements_per_block, &a, params);
}

bool aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

// ---- Where everything is stored in one type
bool stored_alike(const ElementwiseCall& c) {
  DType computed = c.stored == DType::bf16 || c.stored == DType::f16 ? DType::f32 : c.stored;
  if (c.compute != computed || c.out.dtype != (c.boolean ? DType::boolean : c.stored)) return false;
  for (int i = 0; i < c.inputs; ++i)
    if (c.in[i].data && c.in[i].dtype != (c.condition && i == 0 ? DType::boolean : c.stored)) return false;
  return true;
}

bool packed(const Iteration& it, int o) {
  int64_t expect = 1;
  for (int d = it.ndim - 1; d >= 0; --d) {
    if (it.strides[o][d] != expect && it.sizes[d] != 1) return false;
    expect *= it.sizes[d];
  }
  return true;
}

bool fits_map(const Iteration& it, int o) {
  int64_t span = 0;
  for (int d = 0; d < it.ndim; ++d) {
    int64_t s = it.strides[o][d] < 0 ? -it.strides[o][d] : it.strides[o][d];
    if (s > INT32_MAX) return false;
    span += s * (it.sizes[d] - 1);  // no overflow: both have 31 bits
    if (span > INT32_MAX) return false;
  }
  return true;
}

// True if `width` neighbours of the output come from `width` neighbours of operand o, or from one element.
bool comes_in_packs(const Iteration& it, int o, const Operand& operand, int64_t width) {
  int64_t inner = it.strides[o][it.ndim - 1];
  if (inner == 0 && o > 0) return true;
  if (inner != 1 || !aligned(operand.data, static_cast<size_t>(width) * size_of(operand.dtype))) return false;
  for (int d = 0; d < it.ndim - 1; ++d)
    if (it.strides[o][d] % width != 0) return false;
  return true;
}
bool all_in_packs(const Iteration& it, const ElementwiseCall& c) {
  int64_t width = 16 / static_cast<int64_t>(size_of(c.stored));
  if (it.sizes[it.ndim - 1] % width != 0 || !comes_in_packs(it, 0, c.out, width)) return false;
  for (int i = 0; i < c.inputs; ++i)
    if (c.in[i].data && !comes_in_packs(it, i + 1, c.in[i], width)) return false;
  return true;
}

bool plan_map(LinearArgs& a, const Iteration& it, const ElementwiseCall& c) {
  if (!it.narrow || it.ndim > kMappedDims) return false;
  for (int i = 0; i < c.inputs; ++i)
    if (!fits_map(it, i + 1)) return false;
  a.ndim = it.ndim;
  for (int d = 0; d < it.ndim; ++d) {
    a.divide[d] = it.divide[d];
    for (int i = 0; i < kMaxInputs; ++i) a.strides[i][d] = static_cast<int32_t>(it.strides[i + 1][d]);
  }
  a.access = maps_packs(size_of(c.stored)) && all_in_packs(it, c) ? Access::packs : Access::single;
  return true;
}

bool run_linear(Encoder& e, const ElementwiseKernel& k, const Iteration& it, const ElementwiseCall& c) {
  if (!packed(it, 0)) return false;
  LinearArgs a;
  bool same = true;
  for (int i = 0; i < c.inputs; ++i) {
    a.in[i] = c.in[i].data;
    a.number[i] = c.number[i];
    same &= !c.in[i].data || it.linear(i + 1);
  }
  a.out = c.out.data;
  a.n = it.total;
  if (same) {
    elementwise_linear(e, k, a, c.inputs, c.params);
    return true;
  }
  if (!plan_map(a, it, c)) return false;
  launch_linear(e, k, a, c.params);
  return true;
}

// Floats of different types that could be read in packs.
bool mixed_in_fours(const Iteration& it, const ElementwiseCall& c) {
  auto fits = [](const Operand& o) { return is_floating(o.dtype) && size_of(o.dtype) <= 4; };
  if (it.sizes[it.ndim - 1] % kFours != 0 || !fits(c.out) || !comes_in_packs(it, 0, c.out, kFours)) return false;
  for (int i = 0; i < c.inputs; ++i)
    if (c.in[i].data && !(fits(c.in[i]) && comes_in_packs(it, i + 1, c.in[i], kFours))) return false;
  return true;
}

void run_strided(Encoder& e, const ElementwiseKernel& kernel, const Iteration& it, const ElementwiseCall& c);

// Too many elements for a 31-bit count: both halves of the longest dim.
void run_halves(Encoder& e, const ElementwiseKernel& kernel, const Iteration& it, const ElementwiseCall& c) {
  int dim = 0;
  for (int d = 1; d < it.ndim; ++d)
    if (it.sizes[d] > it.sizes[dim]) dim = d;
  int64_t half = it.sizes[dim] / 2;
  Iteration first = it, second = it;
  first.sizes[dim] = half;
  second.sizes[dim] -= half;
  first.normalize(true);
  second.normalize(true);
  ElementwiseCall rest = c;
  auto advance = [&](Operand& o, int number) {
    if (o.data)
      o.data = static_cast<char*>(o.data) + half * it.strides[number][dim] * static_cast<int64_t>(size_of(o.dtype));
  };
  advance(rest.out, 0);
  for (int i = 0; i < c.inputs; ++i) advance(rest.in[i], i + 1);
  run_strided(e, kernel, first, c);
  run_strided(e, kernel, second, rest);
}

void run_strided(Encoder& e, const ElementwiseKernel& kernel, const Iteration& it, const ElementwiseCall& c) {
  if (!it.narrow) return run_halves(e, kernel, it, c);
  StridedArgs a{.map = OffsetMap<kMaxInputs + 1>(it),
                .out = c.out.data,
                .in = {},
                .out_dtype = c.out.dtype,
                .in_dtype = {},
                .compute = c.compute,
                .fours = kernel.takes_fours && mixed_in_fours(it, c),
                .n = it.total,
                .number = {}};
  for (int i = 0; i < c.inputs; ++i) {
    a.in[i] = c.in[i].data;
    a.in_dtype[i] = c.in[i].dtype;
    a.number[i] = c.number[i];
  }
  const int64_t threads = a.fours ? a.n / kFours : a.n;
  launch(e, kernel.strided, (threads + kThreads - 1) / kThreads, &a, c.params);
}

}  // namespace

void elementwise_linear(Encoder& e, const ElementwiseKernel& kernel, LinearArgs& args, int inputs, const void* params) {
  if (args.n == 0) return;
  auto bits = reinterpret_cast<uintptr_t>(args.out);
  for (int i = 0; i < inputs; ++i) bits |= reinterpret_cast<uintptr_t>(args.in[i]);
  args.access = bits % 16 == 0 ? Access::same : Access::single;
  args.ndim = 0;
  launch_linear(e, kernel, args, params);
}

void elementwise(Encoder& e, const ElementwiseKernel* row, const ElementwiseCall& call) {
  static constexpr int64_t kNowhere[kMaxDims] = {};
  Iteration it(call.ndim, call.sizes);
  it.add(call.out.strides);
  for (int i = 0; i < kMaxInputs; ++i) it.add(i < call.inputs && call.in[i].data ? call.in[i].strides : kNowhere);
  it.normalize();
  if (it.total == 0) return;
  const ElementwiseKernel& alike = row[static_cast<int>(call.stored)];
  if (alike.linear && stored_alike(call) && run_linear(e, alike, it, call)) return;
  run_strided(e, row[static_cast<int>(call.compute)], it, call);
}

}  // namespace deft::cuda
