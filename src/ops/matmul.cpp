#include "ops/matmul.h"

#include "base/check.h"
#include "core/derived_cache.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "kernels/cpu/gemm/blocked_gemm.h"
#include "kernels/cpu/gemm/gemm.h"
#include "ops/binary.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/matmul_common.h"
#include "ops/reduce.h"
#include "ops/ternary.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

namespace {

// Values of a right side worth keeping: 32 rows gain 18 % there. One that is never seen again costs 0.15 us.
constexpr int64_t kLeastPacked = 8192;

}  // namespace

std::shared_ptr<const cpu::PackedMatrix> kept_right(const Tensor& right, const cpu::GemmCall& g) {
  if (right.dim() != 2 || right.numel() < kLeastPacked || right.numel() != g.n * g.k) return nullptr;
  const cpu::GemmTile* tile = cpu::gemm_b_tile(g);
  if (!tile) return nullptr;
  const DerivedForm form{DerivedKind::gemm_b, {reinterpret_cast<intptr_t>(tile), g.b_row, g.b_col}};
  return std::static_pointer_cast<const cpu::PackedMatrix>(find_derived(right, form, [&] {
    std::shared_ptr<const cpu::PackedMatrix> packed = cpu::pack_gemm_b(g, *tile);
    return Derived{packed, packed->bytes()};
  }));
}

namespace {

void run(Batches& batches, cpu::GemmCall& g, const Tensor& right) {
  fold(batches, g);
  const auto packed = kept_right(right, g);
  g.packed_b = packed.get();
  if (batches.count == 0) return cpu::gemm(g);
  for_each_gemm(batches, g, [](const cpu::GemmCall& one, int64_t n, int64_t a, int64_t b, int64_t c) {
    cpu::gemm_batched(one, n, a, b, c);
  });
}

void check_same_type(const char* op, const char* what, const Meta& a, const Meta& b) {
  DEFT_CHECK(b.defined, ValueError, "{}: {} is an undefined tensor; give it a value first", op, what);
  DEFT_CHECK(a.dtype == b.dtype, DTypeError, "{}: {} is {} but the first operand is {}; convert one of them with to()",
             op, what, name_of(b.dtype), name_of(a.dtype));
}

}  // namespace

// --- matmul ----------------------------------------------------------------------------------------------------

Meta Matmul::infer(const Meta& a, const Meta& b, NoParams&) {
  check_same_type("matmul", "the second operand", a, b);
  int ra = a.rank(), rb = b.rank();
  DEFT_CHECK(ra >= 1 && rb >= 1, ShapeError,
             "matmul: operands of shape {} and {} must have at least 1 dimension; use mul() for numbers",
             to_string(a.sizes), to_string(b.sizes));
  int64_t k = a.sizes.back(), k_b = rb == 1 ? b.sizes[0] : b.sizes[rb - 2];
  DEFT_CHECK(k == k_b, ShapeError, "matmul: inner sizes {} and {} of shapes {} and {} differ; transpose one of them", k,
             k_b, to_string(a.sizes), to_string(b.sizes));
  Shape sizes;
  if (ra > 2 || rb > 2) {
    Shape batch_a = a.sizes, batch_b = b.sizes;
    batch_a.resize(std::max(ra - 2, 0));
    batch_b.resize(std::max(rb - 2, 0));
    sizes = broadcast_shapes(batch_a, batch_b, "matmul");
  }
  if (ra > 1) sizes.push_back(a.sizes[ra - 2]);
  if (rb > 1) sizes.push_back(b.sizes[rb - 1]);
  return Meta::dense(sizes, a.dtype, a.device);
}

void Matmul::cpu(KernelCall& c) {
  if (c.out().meta().numel == 0) return;
  Batches batches;
  auto g = matmul_call<cpu::GemmCall>(c.in(0), c.in(1), c.out(), batches);
  run(batches, g, c.in(1));
}

namespace {

int64_t rows_of(const Tensor& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.dim(); ++i) rows *= x.sizes()[i];
  return rows;
}
// All dims but the last as one.
Tensor as_rows(const Tensor& x) { return x.dim() == 2 ? x : x.reshape({rows_of(x), x.sizes().back()}); }

// Whether an input is a transposed view, as in x.matmul(weight.t()), also behind a cast: the backward pass transposes
// its gradient back next, and a leaf would have to copy the result.
bool is_transposed(const VjpContext& c, int input) {
  Node* node = c.node.edges()[input].node;
  if (node && node->type == &op_def<Cast>.node) node = node->edges()[0].node;
  if (!node || node->type != &op_def<Permute>.node || node->has(kNodeReleased)) return false;
  const Shape& dims = node->payload_as<Permute::Params>().dims;
  const int rank = dims.size();
  for (int i = 0; i + 2 < rank; ++i) {
    if (dims[i] != i) return false;
  }
  return rank >= 2 && dims[rank - 2] == rank - 1;
}
// a^T b for the gradient of an input, computed as (b^T a)^T where the input is a transposed view.
Tensor transposed_matmul(const Tensor& a, const Tensor& b, bool transposed) {
  return transposed ? matmul(b.t(), a).t() : matmul(a.t(), b);
}

}  // namespace

void Matmul::vjp(VjpContext& c) {
  bool vector_a = c.input_sizes(0).size() == 1, vector_b = c.input_sizes(1).size() == 1;
  Tensor g = c.grad();
  if (vector_b) g = g.unsqueeze(-1);
  if (vector_a) g = g.unsqueeze(-2);
  if (c.needs(0)) {
    Tensor b = c.saved_input(1);
    if (vector_b) b = b.unsqueeze(-1);
    bool transposed = b.dim() == c.input_sizes(0).size() && is_transposed(c, 0);
    Tensor d = transposed ? matmul(b, g.t()).t() : matmul(g, b.t());
    c.grad_in(0) = vector_a ? d.squeeze(-2) : d;
  }
  if (c.needs(1)) {
    Tensor a = c.saved_input(0);
    if (vector_a) a = a.unsqueeze(0);
    // One long matmul instead of a batch of matmuls that are then summed.
    bool shared = c.input_sizes(1).size() <= 2 && a.dim() > 2;
    Tensor d = transposed_matmul(shared ? as_rows(a) : a, shared ? as_rows(g) : g, is_transposed(c, 1));
    c.grad_in(1) = vector_b ? d.squeeze(-1) : d;
  }
}

Tensor matmul(const Tensor& a, const Tensor& b, Site site) { return call<Matmul>(site, {}, a, b); }
Tensor Tensor::matmul(const Tensor& other, Site site) const { return call<Matmul>(site, {}, *this, other); }

namespace {

void check_ranks(const char* op, const Tensor& a, int rank_a, const Tensor& b, int rank_b) {
  detail::check_defined(a, op);
  detail::check_defined(b, op);
  DEFT_CHECK(a.dim() == rank_a && b.dim() == rank_b, ShapeError,
             "{}: operands of shape {} and {} must have {} and {} dimensions; use matmul() for others", op,
             to_string(a.sizes()), to_string(b.sizes()), rank_a, rank_b);
}

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b, Site site) {
  check_ranks("mm", a, 2, b, 2);
  return call<Matmul>(site, {}, a, b);
}
Tensor bmm(const Tensor& a, const Tensor& b, Site site) {
  check_ranks("bmm", a, 3, b, 3);
  DEFT_CHECK(a.sizes()[0] == b.sizes()[0], ShapeError,
             "bmm: batches of {} and {} matrices (shapes {} and {}) differ; use matmul() to broadcast", a.sizes()[0],
             b.sizes()[0], to_string(a.sizes()), to_string(b.sizes()));
  return call<Matmul>(site, {}, a, b);
}
Tensor mv(const Tensor& a, const Tensor& b, Site site) {
  check_ranks("mv", a, 2, b, 1);
  return call<Matmul>(site, {}, a, b);
}
Tensor dot(const Tensor& a, const Tensor& b, Site site) {
  check_ranks("dot", a, 1, b, 1);
  return call<Matmul>(site, {}, a, b);
}

// --- linear ----------------------------------------------------------------------------------------------------

Meta Linear::infer(const Meta& x, const Meta& weight, const Meta& bias, NoParams&) {
  check_same_type("linear", "the weight", x, weight);
  DEFT_CHECK(weight.rank() == 2, ShapeError, "linear: the weight must be [out, in], found shape {}",
             to_string(weight.sizes));
  DEFT_CHECK(x.rank() >= 1 && x.sizes.back() == weight.sizes[1], ShapeError,
             "linear: an input of shape {} does not fit a weight of shape {}: its last size must be {}",
             to_string(x.sizes), to_string(weight.sizes), weight.sizes[1]);
  if (bias.defined) {
    check_same_type("linear", "the bias", x, bias);
    DEFT_CHECK(bias.rank() == 1 && bias.sizes[0] == weight.sizes[0], ShapeError,
               "linear: a bias of shape {} does not fit a weight of shape {}; expected [{}]", to_string(bias.sizes),
               to_string(weight.sizes), weight.sizes[0]);
  }
  Shape sizes = x.sizes;
  sizes[x.rank() - 1] = weight.sizes[0];
  return Meta::dense(sizes, x.dtype, x.device);
}

void Linear::cpu(KernelCall& c) {
  if (c.out().meta().numel == 0) return;
  Tensor bias = c.has(2) ? as_dense(c.in(2)) : Tensor();
  Batches rows;
  auto g = linear_call<cpu::GemmCall>(c.in(0), c.in(1), bias, c.out(), rows);
  run(rows, g, c.in(1));
}

void Linear::vjp(VjpContext& c) {
  Tensor g = c.grad();
  if (c.needs(0)) c.grad_in(0) = matmul(g, c.saved_input(1));
  if (!c.needs(1) && !c.needs(2)) return;
  Tensor rows = as_rows(g);
  if (c.needs(1)) c.grad_in(1) = transposed_matmul(rows, as_rows(c.saved_input(0)), is_transposed(c, 1));
  if (c.needs(2)) c.grad_in(2) = rows.sum({0});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Site site) {
  return call<Linear>(site, {}, x, weight, bias);
}

// --- compositions ----------------------------------------------------------------------------------------------

Tensor lowered(const Tensor& x) {
  const bool cast = context().bits & kAutocast && (x.dtype() == DType::f32 || x.element_size() == 2);
  return cast && is_floating(x.dtype()) ? x.to(context().autocast_dtype) : x;
}

namespace {

Tensor scaled_sum(const Tensor& summand, const Tensor& product, Scalar beta, Scalar alpha, const char* op) {
  detail::check_defined(summand, op);
  Tensor x = lowered(summand);
  Shape both = broadcast_shapes(x.sizes(), product.sizes(), op);
  DEFT_CHECK(both == product.sizes(), ShapeError, "{}: a summand of shape {} does not broadcast to the product's {}",
             op, to_string(x.sizes()), to_string(product.sizes()));
  DEFT_CHECK(x.dtype() == product.dtype(), DTypeError,
             "{}: the summand is {} but the product {}; convert one of them with to()", op, name_of(x.dtype()),
             name_of(product.dtype()));
  Tensor y = alpha.to_double() == 1 ? product : mul(product, alpha);
  if (beta.to_double() == 0) {
    // No value of x is looked at, but its gradient is there: zeros.
    const bool recorded = x.requires_grad() && is_grad_enabled();
    return recorded ? where(full({}, false, {DType::boolean, x.device()}), x, y) : y;
  }
  return add(beta.to_double() == 1 ? x : mul(x, beta), y);
}

}  // namespace

Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, Site site) {
  SiteScope scope(site);
  check_ranks("addmm", a, 2, b, 2);
  return scaled_sum(x, matmul(a, b, site), beta, alpha, "addmm");
}

Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, Site site) {
  SiteScope scope(site);
  check_ranks("baddbmm", a, 3, b, 3);
  return scaled_sum(x, bmm(a, b, site), beta, alpha, "baddbmm");
}

Tensor outer(const Tensor& a, const Tensor& b, Site site) {
  SiteScope scope(site);
  check_ranks("outer", a, 1, b, 1);
  return mul(a.unsqueeze(1, site), b, site);
}

Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias, Site site) {
  SiteScope scope(site);
  detail::check_defined(a, "bilinear");
  detail::check_defined(b, "bilinear");
  detail::check_defined(weight, "bilinear");
  DEFT_CHECK(weight.dim() == 3, ShapeError, "bilinear: the weight must be [out, in1, in2], found shape {}",
             to_string(weight.sizes()));
  int64_t out = weight.sizes()[0], in1 = weight.sizes()[1], in2 = weight.sizes()[2];
  Shape lead_a = a.sizes(), lead_b = b.sizes();
  DEFT_CHECK(a.dim() >= 1 && b.dim() >= 1 && a.sizes().back() == in1 && b.sizes().back() == in2, ShapeError,
             "bilinear: inputs of shape {} and {} do not fit a weight of shape {}: their last sizes must be {} and {}",
             to_string(a.sizes()), to_string(b.sizes()), to_string(weight.sizes()), in1, in2);
  lead_a.erase(a.dim() - 1);
  lead_b.erase(b.dim() - 1);
  DEFT_CHECK(lead_a == lead_b, ShapeError, "bilinear: inputs of shape {} and {} differ before their last dimension",
             to_string(a.sizes()), to_string(b.sizes()));
  // [rows, out, in2] first, then each row against b.
  Tensor half = matmul(as_rows(a), weight.permute({1, 0, 2}).reshape({in1, out * in2}));
  Tensor y = matmul(half.reshape({rows_of(a), out, in2}), as_rows(b).unsqueeze(-1)).squeeze(-1);
  Shape sizes = lead_a;
  sizes.push_back(out);
  y = y.reshape(sizes);
  if (!bias.defined()) return y;
  DEFT_CHECK(bias.dim() == 1 && bias.sizes()[0] == out, ShapeError,
             "bilinear: a bias of shape {} does not fit; expected [{}]", to_string(bias.sizes()), out);
  DEFT_CHECK(bias.dtype() == a.dtype() || context().bits & kAutocast, DTypeError,
             "bilinear: the bias is {} but the inputs are {}; convert it with to()", name_of(bias.dtype()),
             name_of(a.dtype()));
  return add(y, bias.to(y.dtype()));
}

}  // namespace deft
