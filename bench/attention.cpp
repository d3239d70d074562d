// deft bench attention: 12 heads of 64, batch 1, through the public op.
#include <fmt/format.h>

#include <cmath>

#include "bench/engine.h"
#include "deft/deft.h"

namespace deft::bench {

namespace {

struct Heads {
  int64_t heads, length, features;
};

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  return scaled_dot_product_attention(q, k, v, {}, 0, causal);
}

Tensor head_of(const Tensor& x) { return x.narrow(1, 0, 1); }
double largest(const Tensor& x) { return x.abs().amax().item(); }

// The first head written out in f64, with what the bounds need of it.
struct Exact {
  Exact(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& gradient, bool causal)
      : q(head_of(query).to(f64)), k(head_of(key).to(f64)), v(head_of(value).to(f64)), g(head_of(gradient).to(f64)) {
    scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    Tensor hidden = causal ? triu(ones({q.size(-2), k.size(-2)}, {f64}), 1) * -1e9 : zeros({1, 1}, {f64});
    p = (q.matmul(k.transpose(-2, -1)) * scale + hidden).softmax(-1);
    y = p.matmul(v);
    dv = p.transpose(-2, -1).matmul(g);
    dp = g.matmul(v.transpose(-2, -1));
    Tensor ds = p * (dp - (p * dp).sum({-1}, true)) * scale;
    dq = ds.matmul(k);
    dk = ds.transpose(-2, -1).matmul(q);
  }
  Tensor q, k, v, g, p, y, dv, dp, dq, dk;
  double scale;
};

// With u the rounding of sums, r that of the type probabilities and results are stored in:
// - a score is off by at most e = features * u * max sum |q| |k| * scale, a probability by 2 e + (length + 8) u + r of
//   itself, call it p;
// - a row of y is a mean of rows of v: (p + length * u) * max |v| + r * max |y|;
// - dv, dk sum over queries: the largest column of probabilities takes the place of 1;
// - dp is off by features * u * max sum |g| |v| + r * max |dp|, which p - times the mean of dp doubles.
struct Bounds {
  Bounds(const Exact& e, DType dtype) {
    const double u = 0x1p-23, length = static_cast<double>(e.k.size(-2)), features = static_cast<double>(e.q.size(-1));
    const double r = dtype == bf16 ? 0x1p-8 : 0x1p-24;
    double score = features * u * largest(e.q.abs().matmul(e.k.abs().transpose(-2, -1))) * e.scale;
    double p = 2 * score + (length + 8) * u + r, column = largest(e.p.sum({-2}));
    double dp = features * u * largest(e.g.abs().matmul(e.v.abs().transpose(-2, -1))) + r * largest(e.dp);
    double ds = e.scale * (2 * p * 2 * largest(e.dp) + 2 * dp + length * u * 2 * largest(e.dp));
    y = (p + length * u) * largest(e.v) + r * largest(e.y);
    dv = column * (p + r + length * u) * largest(e.g) + r * largest(e.dv);
    dq = (ds + r * e.scale * 2 * largest(e.dp)) * largest(e.k) + r * largest(e.dq);
    dk = column * (ds + r * e.scale * 2 * largest(e.dp)) * largest(e.q) + r * largest(e.dk);
  }
  double y, dq, dk, dv;
};

double error_of(const Tensor& found, const Tensor& exact) { return largest(head_of(found).to(f64) - exact); }

void measure(EngineRun& run, const Heads& h, DType dtype, const char* type, bool causal) {
  const char* variant = causal ? "causal" : "full";
  const bool forward = run.wanted("forward", type), backward = run.wanted("backward", type);
  if ((!forward && !backward) || !run.go_on(fmt::format("attention {} {} {}", type, h.length, variant))) return;
  const Shape shape = {1, h.heads, h.length, h.features};
  Tensor q = randn(shape).to(dtype), k = randn(shape).to(dtype), v = randn(shape).to(dtype), g = randn(shape).to(dtype);
  Exact exact(q, k, v, g, causal);
  Bounds bounds(exact, dtype);
  std::string sizes = fmt::format("{} 1x{}x{}x{} {}", type, h.heads, h.length, h.features, variant);
  EngineRow row{.name = "attention " + sizes,
                .family = "forward",
                .dtype = type,
                .variant = variant,
                // Two GEMMs; a causal one needs the pairs up to the diagonal only.
                .flops = 4.0 * static_cast<double>(h.heads * h.features) * static_cast<double>(h.length) *
                         static_cast<double>(causal ? (h.length + 1) / 2 : h.length),
                .arithmetic = dtype == bf16 ? Arithmetic::bf16 : Arithmetic::f32};
  if (forward) {
    NoGradGuard guard;
    double size = largest(exact.y);
    row.accuracy = {error_of(attention(q, k, v, causal), exact.y) / size, bounds.y / size};
    run.add(row, [&] { Tensor y = attention(q, k, v, causal); });
  }
  if (!backward || !run.go_on("attention_backward " + sizes)) return;
  for (Tensor* x : {&q, &k, &v}) x->requires_grad_();
  Tensor y = attention(q, k, v, causal);
  auto gradients = [&] { return grad({y}, {q, k, v}, {g}, {.retain_graph = true}); };
  std::vector<Tensor> d = gradients();
  row.name = "attention_backward " + sizes;
  row.family = "backward";
  row.flops *= 2.5;  // five GEMMs: scores again, dv, dp, dq, dk
  // Each gradient against its own bound; the one nearest to it is shown.
  row.accuracy = {};
  for (auto [found, wanted, bound] : {std::tuple{d[0], exact.dq, bounds.dq}, std::tuple{d[1], exact.dk, bounds.dk},
                                      std::tuple{d[2], exact.dv, bounds.dv}}) {
    Accuracy one = {error_of(found, wanted) / largest(wanted), bound / largest(wanted)};
    if (row.accuracy.bound == 0 || one.error / one.bound > row.accuracy.error / row.accuracy.bound) row.accuracy = one;
  }
  run.add(row, [&] { gradients(); });
}

Report measure_attention(const EngineOptions& options) {
  EngineRun run(options);
  std::vector<Heads> sizes = {{12, 128, 64}, {12, 512, 64}, {12, 2048, 64}};
  if (options.quick) sizes = {{2, 16, 8}};
  const std::pair<const char*, DType> types[] = {{"f32", f32}, {"bf16", bf16}};
  for (auto [name, dtype] : types)
    for (const Heads& h : sizes)
      for (bool causal : {false, true}) measure(run, h, dtype, name, causal);
  auto rows = [](const char* dtype, const char* family) {
    return [=](const Json& row) { return row["dtype"] == dtype && row["family"] == family; };
  };
  run.add_bar({"f32 attention", "% of FMA peak", 60, 80}, rows("f32", "forward"));
  run.add_bar({"f32 attention backward", "% of FMA peak", 50, 80}, rows("f32", "backward"));
  return run.finish();
}

}  // namespace

EngineBench attention_bench() {
  return {"attention", "Attention, 12 heads of 64", {"forward", "backward"}, {"f32", "bf16"}, measure_attention};
}

}  // namespace deft::bench
