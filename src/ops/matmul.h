// Matmul, batched matmul, and the ops built from them.
#pragma once

#include <string_view>

#include "core/op.h"

namespace deft {

struct OpSamples;

// [batch..., m, k] x [batch..., k, n]. Batches broadcast; a 1-d operand is a row on the left and a column on the right,
// and the result then lacks that dimension. Inputs of any strides are read where they lie.
struct Matmul {
  static constexpr OpInfo info{.name = "matmul",
                               .inputs = 2,
                               .dtypes = kNumbers,
                               .fusion = Fusion::contraction,
                               .autocast = Autocast::low,
                               .cost = Cost::compute_bound,
                               .uses = {input(1), input(0)},
                               .onnx = {"MatMul", 13}};
  static Meta infer(const Meta& a, const Meta& b, NoParams&);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// x [..., in] times the transpose of weight [out, in], plus bias [out] if there is one.
struct Linear {
  static constexpr OpInfo info{.name = "linear",
                               .inputs = 3,
                               .dtypes = kNumbers,
                               .fusion = Fusion::contraction,
                               .autocast = Autocast::low,
                               .cost = Cost::compute_bound,
                               .uses = {input(1), input(0), 0},
                               .onnx = {"Gemm", 13}};
  static Meta infer(const Meta& x, const Meta& weight, const Meta& bias, NoParams&);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Compositions of other ops.
struct Addmm {
  static constexpr OpInfo info{.name = "addmm", .inputs = 3, .dtypes = kNumbers, .cost = Cost::compute_bound};
  static OpSamples samples();
};
struct Baddbmm {
  static constexpr OpInfo info{.name = "baddbmm", .inputs = 3, .dtypes = kNumbers, .cost = Cost::compute_bound};
  static OpSamples samples();
};
struct Outer {
  static constexpr OpInfo info{.name = "outer", .inputs = 2, .dtypes = kAllTypes};
  static OpSamples samples();
};
struct Bilinear {
  static constexpr OpInfo info{.name = "bilinear", .inputs = 4, .dtypes = kNumbers, .cost = Cost::compute_bound};
  static OpSamples samples();
};
struct Tensordot {
  static constexpr OpInfo info{.name = "tensordot", .inputs = 2, .dtypes = kNumbers, .cost = Cost::compute_bound};
  static OpSamples samples();
};
struct Einsum {
  static constexpr OpInfo info{
      .name = "einsum", .inputs = kListInput, .dtypes = kNumbers, .cost = Cost::compute_bound, .onnx = {"Einsum", 12}};
  static OpSamples samples();
};

Tensor matmul(const Tensor& a, const Tensor& b, Site site = Site::current());
// The same for exactly: two matrices, two batches of matrices of one size, matrix and vector, two vectors.
Tensor mm(const Tensor& a, const Tensor& b, Site site = Site::current());
Tensor bmm(const Tensor& a, const Tensor& b, Site site = Site::current());
Tensor mv(const Tensor& a, const Tensor& b, Site site = Site::current());
Tensor dot(const Tensor& a, const Tensor& b, Site site = Site::current());
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Site site = Site::current());
// beta * x + alpha * (a x b); with beta = 0 the values of x are not read. In 16 bits the product is rounded before
// it is added, as any two ops round: 1.5 ulp together. linear() rounds once.
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
             Site site = Site::current());
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
               Site site = Site::current());
// out[i, j] = a[i] * b[j].
Tensor outer(const Tensor& a, const Tensor& b, Site site = Site::current());
// out[..., o] = sum over i, j of a[..., i] * weight[o, i, j] * b[..., j], plus bias [o].
Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias = {},
                Site site = Site::current());
// Sums over dims_a of a against dims_b of b; the count form takes the last of a and the first of b.
Tensor tensordot(const Tensor& a, const Tensor& b, IntList dims_a, IntList dims_b, Site site = Site::current());
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2, Site site = Site::current());
// Einstein's summation: "bij,bjk->bik". "..." stands for dimensions that broadcast, a label repeated within one operand
// takes the diagonal, and without "->" the result has the labels that occur once, in alphabetical order.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands, Site site = Site::current());

}  // namespace deft
