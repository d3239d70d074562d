#include "ops/attention.h"

#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/matmul.h"
#include "ops/random.h"
#include "ops/sample.h"
#include "ops/view.h"

namespace deft {

namespace {

struct Setting {
  bool causal = false;
  std::optional<double> scale = {};
  double dropout = 0;
};

// Batches spelled out by expand(); then one query at a time. Scores of -inf and false take no part.
Tensor naive_weights(const Tensor& q, const Tensor& k, const Tensor& mask, const Setting& s, const Shape& batch) {
  auto full = [&](const Tensor& t) {
    Shape sizes = batch;
    sizes.push_back(t.sizes()[t.dim() - 2]);
    sizes.push_back(t.sizes()[t.dim() - 1]);
    return t.expand(sizes).contiguous();
  };
  Tensor qs = full(q), ks = full(k);
  int64_t l = q.size(-2), e = q.size(-1), keys = k.size(-2);
  Shape sizes = batch;
  sizes.push_back(l);
  sizes.push_back(keys);
  Tensor w = zeros(sizes, DType::f64), allowed;
  if (mask.defined()) allowed = mask.to(DType::f64).expand(sizes).contiguous();
  bool additive = mask.defined() && mask.dtype() != DType::boolean;
  double factor = s.scale.value_or(1 / std::sqrt(static_cast<double>(e)));
  const double *a = qs.data<double>(), *b = ks.data<double>(), *m = mask.defined() ? allowed.data<double>() : nullptr;
  int64_t rows = keys ? w.numel() / keys : 0;
  for (int64_t r = 0; r < rows; ++r) {
    double* out = w.data<double>() + r * keys;
    double total = 0, most = -INFINITY;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < keys; ++j) {
        double score = 0;
        for (int64_t i = 0; i < e; ++i) score += a[r * e + i] * b[(r / l * keys + j) * e + i];
        score = score * factor + (additive ? m[r * keys + j] : 0);
        bool hidden = (s.causal && j > r % l) || (m && !additive && m[r * keys + j] == 0) || score == -INFINITY;
        if (pass == 0 && !hidden) most = std::max(most, score);
        if (pass == 1 && !hidden) total += out[j] = std::exp(score - most);
      }
    for (int64_t j = 0; j < keys; ++j) out[j] = total > 0 ? out[j] / total : 0;
  }
  return w;
}

Tensors naive_attention(const Tensors& t, const Tensor& mask, const Setting& s) {
  Shape batch;
  int most = 0;
  for (int i = 0; i < 3; ++i) most = std::max(most, t[static_cast<size_t>(i)].dim() - 2);
  batch.resize(most, 1);
  for (int i = 0; i < 3; ++i) {
    const Tensor& x = t[static_cast<size_t>(i)];
    for (int d = 0; d < x.dim() - 2; ++d)
      if (x.sizes()[d] != 1) batch[most - (x.dim() - 2) + d] = x.sizes()[d];
  }
  Tensor w = naive_weights(t[0], t[1], mask, s, batch);
  if (s.dropout > 0) w = dropout(w, s.dropout);
  Shape sizes = batch;
  int64_t l = t[0].size(-2), keys = t[1].size(-2), e = t[2].size(-1);
  sizes.push_back(keys);
  sizes.push_back(e);
  Tensor v = t[2].expand(sizes).contiguous();
  sizes[sizes.size() - 2] = l;
  Tensor y = zeros(sizes, DType::f64);
  for (int64_t r = 0; e && r < y.numel() / e; ++r)
    for (int64_t j = 0; j < keys; ++j)
      for (int64_t i = 0; i < e; ++i)
        y.data<double>()[r * e + i] += w.data<double>()[r * keys + j] * v.data<double>()[(r / l * keys + j) * e + i];
  return {y};
}

std::string python(const Setting& s, bool masked, bool additive) {
  std::string factor = s.scale ? std::to_string(*s.scale) : "a.shape[-1] ** -0.5";
  std::string scores = "a @ b.transpose(-2, -1) * " + factor;
  if (s.causal)
    scores = "(" + scores + ").masked_fill(torch.ones(a.shape[-2], b.shape[-2]).triu(1).bool(), float('-inf'))";
  if (masked) scores = additive ? scores + " + d" : "(" + scores + ").masked_fill(~d, float('-inf'))";
  std::string weights = "torch.softmax(" + scores + ", -1)";
  if (masked) weights += ".nan_to_num(0)";
  return weights + " @ c";
}

Sample sample(std::string note, Shape q, Shape k, Shape v, Arg mask = missing_arg(), Setting s = {}) {
  bool masked = mask.kind != Arg::Kind::missing;
  return {note,
          {real(q), real(k), real(v), mask},
          [s](const Tensors& t) -> Tensors {
            return {scaled_dot_product_attention(t[0], t[1], t[2], t[3], s.dropout, s.causal, s.scale)};
          },
          [s](const Tensors& t) { return naive_attention(t, t[3], s); },
          s.dropout > 0 ? "" : python(s, masked, masked && mask.kind == Arg::Kind::real)};
}

Arg constant(Shape sizes) {
  Arg a = real(sizes);
  a.grad = false;
  return a;
}

// The additive mask has -inf wherever the fifth argument is true: some queries see nothing.
Sample blind_sample() {
  Sample s = sample("additive with -inf", {2, 3, 2}, {2, 2, 2}, {2, 2, 3}, real({2, 3, 2}));
  s.args.push_back(boolean_arg({2, 3, 2}));
  s.call = [](const Tensors& t) -> Tensors {
    return {scaled_dot_product_attention(t[0], t[1], t[2], masked_fill(t[3], t[4], -INFINITY))};
  };
  s.expect = [](const Tensors& t) { return naive_attention(t, masked_fill(t[3], t[4], -INFINITY), {}); };
  s.torch = "";
  return s;
}

BadSample bad(std::string note, Arg q, Arg k, Arg v, Arg mask, Setting s, std::string error, std::string text) {
  return {note,
          {q, k, v, mask},
          [s](const Tensors& t) -> Tensors {
            return {scaled_dot_product_attention(t[0], t[1], t[2], t[3], s.dropout, s.causal, s.scale)};
          },
          error,
          text};
}

}  // namespace

OpSamples ScaledDotProductAttention::samples() {
  OpSamples s{.op = "scaled_dot_product_attention", .growth = 32, .scale = 2};
  s.good = {
      sample("2d", {3, 4}, {5, 4}, {5, 2}),
      sample("3d", {2, 3, 4}, {2, 5, 4}, {2, 5, 4}),
      sample("4d", {2, 2, 3, 2}, {2, 2, 3, 2}, {2, 2, 3, 2}),
      sample("scale", {2, 3, 4}, {2, 5, 4}, {2, 5, 2}, missing_arg(), {.scale = 2.0}),
      sample("scale 0", {2, 4}, {3, 4}, {3, 2}, missing_arg(), {.scale = 0.0}),
      sample("causal", {2, 4, 3}, {2, 4, 3}, {2, 4, 2}, missing_arg(), {.causal = true}),
      sample("causal more keys", {2, 3}, {5, 3}, {5, 2}, missing_arg(), {.causal = true}),
      sample("causal fewer keys", {5, 3}, {2, 3}, {2, 2}, missing_arg(), {.causal = true}),
      sample("bool mask", {2, 3, 2}, {2, 4, 2}, {2, 4, 3}, boolean_arg({2, 3, 4})),
      sample("bool mask shared", {2, 3, 2}, {2, 2, 2}, {2, 2, 3}, boolean_arg({3, 2})),
      sample("bool mask of keys", {2, 2, 3, 2}, {2, 2, 2, 2}, {2, 2, 2, 2}, boolean_arg({2, 1, 1, 2})),
      sample("bool mask of one key", {3, 2}, {1, 2}, {1, 3}, boolean_arg({3, 1})),
      sample("bool mask 0d", {3, 2}, {2, 2}, {2, 3}, boolean_arg({})),
      sample("additive mask", {2, 3, 2}, {2, 4, 2}, {2, 4, 3}, real({2, 3, 4})),
      sample("additive mask shared", {2, 3, 2}, {2, 4, 2}, {2, 4, 3}, real({4})),
      sample("additive mask 0d", {3, 2}, {4, 2}, {4, 3}, real({})),
      blind_sample(),
      sample("additive mask without gradient", {2, 3, 2}, {2, 4, 2}, {2, 4, 3}, constant({2, 3, 4})),
      sample("broadcast keys", {2, 3, 4}, {1, 5, 4}, {5, 2}),
      sample("broadcast queries", {3, 4}, {2, 5, 4}, {2, 5, 2}),
      sample("dropout", {2, 3, 4}, {2, 5, 4}, {2, 5, 2}, missing_arg(), {.dropout = 0.5}),
      sample("dropout causal", {2, 4, 3}, {2, 4, 3}, {2, 4, 2}, missing_arg(), {.causal = true, .dropout = 0.3}),
      sample("dropout bool mask", {2, 3, 2}, {2, 4, 2}, {2, 4, 3}, boolean_arg({2, 3, 4}), {.dropout = 0.3}),
      sample("dropout additive mask", {2, 3, 2}, {2, 4, 2}, {2, 4, 3}, real({2, 3, 4}), {.dropout = 0.3}),
      sample("dropout broadcast values", {3, 4}, {5, 4}, {2, 5, 2}, missing_arg(), {.dropout = 0.3}),
      sample("dropout one query", {2, 1, 4}, {2, 9, 4}, {2, 9, 2}, missing_arg(), {.dropout = 0.3}),
      sample("dropout blocks", {200, 3}, {213, 3}, {213, 2}, missing_arg(), {.dropout = 0.1}),
      sample("dropout 1", {2, 4}, {3, 4}, {3, 2}, missing_arg(), {.dropout = 1.0}),
      sample("one", {1, 1}, {1, 1}, {1, 1}),
      sample("one key", {2, 3, 4}, {2, 1, 4}, {2, 1, 3}),
      sample("larger", {2, 17, 9}, {2, 19, 9}, {2, 19, 7}),
      sample("blocks of queries", {200, 4}, {30, 4}, {30, 3}),
      sample("blocks of keys", {2, 14, 4}, {2, 530, 4}, {2, 530, 3}),
      sample("blocks causal", {210, 3}, {220, 3}, {220, 2}, missing_arg(), {.causal = true}),
      sample("blocks masked", {2, 20, 3}, {2, 200, 3}, {2, 200, 2}, boolean_arg({20, 200})),
      sample("no keys", {3, 4}, {0, 4}, {0, 2}),
      sample("no keys, mask", {3, 4}, {0, 4}, {0, 2}, boolean_arg({3, 0})),
      sample("no queries", {0, 4}, {5, 4}, {5, 2}),
      sample("batch 0", {0, 3, 4}, {0, 5, 4}, {0, 5, 2}),
  };
  Arg q = real({2, 3, 4}), k = real({2, 5, 4}), v = real({2, 5, 2}), none = missing_arg();
  s.bad = {
      bad("query rank", real({4}), k, v, none, {}, "ShapeError", "need at least 2 dimensions, found shape [4]"),
      bad("features", q, real({2, 5, 3}), v, none, {}, "ShapeError", "query [2, 3, 4] and key [2, 5, 3]"),
      bad("rows", q, k, real({2, 4, 2}), none, {}, "ShapeError", "key [2, 5, 4] and value [2, 4, 2]"),
      bad("batch", q, real({3, 5, 4}), real({3, 5, 2}), none, {}, "ShapeError", "do not broadcast"),
      bad("mask size", q, k, v, boolean_arg({3, 4}), {}, "ShapeError", "do not broadcast"),
      bad("mask larger", q, k, v, boolean_arg({2, 2, 3, 5}), {}, "ShapeError", "a mask of shape [2, 2, 3, 5]"),
      bad("mask dtype", q, k, v, index_arg({3, 5}, 2), {}, "DTypeError", "the mask is i64"),
      bad("mask and causal", q, k, v, boolean_arg({3, 5}), {.causal = true}, "ValueError", "attn_mask or is_causal"),
      bad("dropout", q, k, v, none, {.dropout = 1.5}, "ValueError", "dropout_p must lie in [0, 1]"),
      bad("dtypes", q, index_arg({2, 5, 4}, 3), v, none, {}, "DTypeError", "does not take i64"),
      bad("integers", index_arg({2, 3, 4}, 3), k, v, none, {}, "DTypeError",
          "scaled_dot_product_attention: does not take i64"),
      bad("no key", q, none, v, none, {}, "ValueError", "undefined tensor"),
      {"two types",
       {q, k, v},
       [](const Tensors& t) -> Tensors { return {scaled_dot_product_attention(t[0], t[1].to(DType::bf16), t[2])}; },
       "DTypeError",
       "convert them to one type"},
  };
  return s;
}

}  // namespace deft
