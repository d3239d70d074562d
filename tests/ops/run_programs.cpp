// Runs the programs of tools/torch_fuzz: reads one JSON object per line from standard input, writes one per line.
//
// A program has inputs {name, dtype, sizes, data, grad} and steps {op, in, p, out}; every step's results are written,
// then the gradients of the inputs. An error ends the program and is part of its result.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "core/function.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

using json = nlohmann::json;

struct Call {
  const Tensors& in;
  const json& p;
  bool has(const char* key) const { return p.contains(key) && !p[key].is_null(); }
  int64_t i(const char* key, int64_t otherwise = 0) const { return has(key) ? p[key].get<int64_t>() : otherwise; }
  bool b(const char* key, bool otherwise = false) const { return has(key) ? p[key].get<bool>() : otherwise; }
  std::string s(const char* key) const { return p.at(key).get<std::string>(); }
  std::vector<int64_t> list(const char* key) const {
    return has(key) ? p[key].get<std::vector<int64_t>>() : std::vector<int64_t>();
  }
  std::optional<int64_t> maybe_i(const char* key) const {
    return has(key) ? std::optional(p[key].get<int64_t>()) : std::nullopt;
  }
  double d(const char* key, double otherwise = 0) const;
  std::optional<Scalar> number(const char* key) const;
  std::optional<double> maybe_d(const char* key) const { return has(key) ? std::optional(d(key)) : std::nullopt; }
};

double double_of(const json& v) {
  if (!v.is_string()) return v.get<double>();
  return v == "nan" ? NAN : v == "inf" ? INFINITY : -INFINITY;
}
double Call::d(const char* key, double otherwise) const { return has(key) ? double_of(p[key]) : otherwise; }
// A bool, a whole number or a float keeps its kind.
std::optional<Scalar> Call::number(const char* key) const {
  if (!has(key)) return {};
  const json& v = p[key];
  if (v.is_boolean()) return Scalar(v.get<bool>());
  if (v.is_number_integer()) return Scalar(v.get<int64_t>());
  return Scalar(double_of(v));
}

DType dtype_named(const std::string& name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  throw std::runtime_error("no type " + name);
}

template <class Names>
size_t index_in(const Names& names, const std::string& name) {
  for (size_t i = 0; i < std::size(names); ++i)
    if (names[i] == name) return i;
  throw std::runtime_error("unknown choice " + name);
}
Reduction reduction(const Call& c) {
  constexpr std::string_view kNames[] = {"none", "mean", "sum"};
  return static_cast<Reduction>(index_in(kNames, c.s("reduction")));
}
PadMode pad_mode(const Call& c) {
  constexpr std::string_view kNames[] = {"constant", "reflect", "replicate", "circular"};
  return static_cast<PadMode>(index_in(kNames, c.s("mode")));
}
ScatterReduce scatter_mode(const Call& c) {
  constexpr std::string_view kNames[] = {"assign", "sum", "prod", "amin", "amax", "mean"};
  return static_cast<ScatterReduce>(index_in(kNames, c.s("reduce")));
}

InterpolateMode interpolate_mode(const Call& c) {
  const std::string mode = c.s("mode");
  if (mode == "nearest") return InterpolateMode::nearest;
  if (mode == "nearest-exact") return InterpolateMode::nearest_exact;
  return mode == "bicubic" ? InterpolateMode::bicubic : InterpolateMode::linear;
}
// The inputs after the first, up to `end`, as indices.
std::vector<TensorIndex> places(const Call& c, size_t end) {
  std::vector<TensorIndex> all;
  if (c.s("how") == "columns") all.push_back(Slice());
  for (size_t i = 1; i < end; ++i) all.push_back(c.in[i]);
  return all;
}

using Op = std::function<Tensors(const Call&)>;
template <size_t N>
Tensors all_of(const std::array<Tensor, N>& a, size_t count = N) {
  return {a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count)};
}
Tensor second(const Call& c) { return c.in.size() > 1 ? c.in[1] : Tensor(); }
Tensor third(const Call& c) { return c.in.size() > 2 ? c.in[2] : Tensor(); }

void add_elementwise(std::map<std::string, Op>& ops) {
#define DEFT_UNARY(Type, function)                                               \
  ops[#function] = [](const Call& c) -> Tensors { return {function(c.in[0])}; }; \
  ops[#function "_"] = [](const Call& c) -> Tensors {                            \
    Tensor x = c.in[0];                                                          \
    return {function##_(x)};                                                     \
  };
#define DEFT_UNARY_P(Type, function)
#include "ops/unary.def"
#define DEFT_UNARY_P(Type, function)
#include "ops/activation.def"
#undef DEFT_UNARY
#define DEFT_BINARY(Type, function)                                 \
  ops[#function] = [](const Call& c) -> Tensors {                   \
    if (auto n = c.number("right")) return {function(c.in[0], *n)}; \
    if (auto n = c.number("left")) return {function(*n, c.in[0])};  \
    return {function(c.in[0], c.in[1])};                            \
  };                                                                \
  ops[#function "_"] = [](const Call& c) -> Tensors {               \
    Tensor x = c.in[0];                                             \
    if (auto n = c.number("right")) return {function##_(x, *n)};    \
    return {function##_(x, c.in[1])};                               \
  };
#include "ops/binary.def"
#undef DEFT_BINARY
  ops["clamp"] = [](const Call& c) -> Tensors { return {clamp(c.in[0], c.number("min"), c.number("max"))}; };
  ops["clamp_tensor"] = [](const Call& c) -> Tensors { return {clamp(c.in[0], c.in[1], third(c))}; };
  ops["celu"] = [](const Call& c) -> Tensors { return {celu(c.in[0], c.d("alpha"))}; };
  ops["hardshrink"] = [](const Call& c) -> Tensors { return {hardshrink(c.in[0], c.d("lambda"))}; };
  ops["softshrink"] = [](const Call& c) -> Tensors { return {softshrink(c.in[0], c.d("lambda"))}; };
  ops["softplus"] = [](const Call& c) -> Tensors { return {softplus(c.in[0], c.d("beta", 1), c.d("threshold", 20))}; };
  ops["hardtanh"] = [](const Call& c) -> Tensors { return {hardtanh(c.in[0], c.d("min", -1), c.d("max", 1))}; };
  ops["threshold"] = [](const Call& c) -> Tensors { return {threshold(c.in[0], c.d("threshold"), c.d("value"))}; };
  ops["leaky_relu"] = [](const Call& c) -> Tensors { return {leaky_relu(c.in[0], c.d("slope"))}; };
  ops["elu"] = [](const Call& c) -> Tensors { return {elu(c.in[0], c.d("alpha"))}; };
  ops["gelu"] = [](const Call& c) -> Tensors {
    return {gelu(c.in[0], c.b("tanh") ? GeluApproximation::tanh : GeluApproximation::none)};
  };
  ops["nan_to_num"] = [](const Call& c) -> Tensors {
    return {c.in[0].nan_to_num(c.d("nan"), c.maybe_d("posinf"), c.maybe_d("neginf"))};
  };
  ops["where"] = [](const Call& c) -> Tensors {
    if (auto n = c.number("right")) return {where(c.in[0], c.in[1], *n)};
    return {where(c.in[0], c.in[1], c.in[2])};
  };
  ops["lerp"] = [](const Call& c) -> Tensors { return {lerp(c.in[0], c.in[1], c.d("weight"))}; };
  ops["addcmul"] = [](const Call& c) -> Tensors { return {addcmul(c.in[0], c.in[1], c.in[2], c.d("value"))}; };
  ops["addcdiv"] = [](const Call& c) -> Tensors { return {addcdiv(c.in[0], c.in[1], c.in[2], c.d("value"))}; };
  ops["isclose"] = [](const Call& c) -> Tensors { return {isclose(c.in[0], c.in[1], 1e-2, 1e-3, c.b("equal_nan"))}; };
  ops["to"] = [](const Call& c) -> Tensors { return {c.in[0].to(dtype_named(c.s("dtype")))}; };
  ops["clone"] = [](const Call& c) -> Tensors { return {c.in[0].clone()}; };
  ops["full_like"] = [](const Call& c) -> Tensors { return {full_like(c.in[0], *c.number("value"))}; };
  ops["copy_"] = [](const Call& c) -> Tensors {
    Tensor x = c.in[0];
    return {x.copy_(c.in[1])};
  };
  ops["fill_"] = [](const Call& c) -> Tensors {
    Tensor x = c.in[0];
    return {x.fill_(*c.number("value"))};
  };
}

void add_reductions(std::map<std::string, Op>& ops) {
#define DEFT_REDUCE(function) \
  ops[#function] = [](const Call& c) -> Tensors { return {function(c.in[0], c.list("dims"), c.b("keepdim"))}; };
  DEFT_REDUCE(sum)
  DEFT_REDUCE(mean)
  DEFT_REDUCE(prod)
  DEFT_REDUCE(amax)
  DEFT_REDUCE(amin)
  DEFT_REDUCE(any)
  DEFT_REDUCE(all)
  DEFT_REDUCE(count_nonzero)
  DEFT_REDUCE(logsumexp)
  DEFT_REDUCE(nansum)
#undef DEFT_REDUCE
#define DEFT_ALONG(name, call) ops[name] = [](const Call& c) -> Tensors { return call; };
  DEFT_ALONG("var", {var(c.in[0], c.list("dims"), c.d("correction"), c.b("keepdim"))})
  DEFT_ALONG("std", {std(c.in[0], c.list("dims"), c.d("correction"), c.b("keepdim"))})
  DEFT_ALONG("var_mean", all_of(var_mean(c.in[0], c.list("dims"), c.d("correction"), c.b("keepdim"))))
  DEFT_ALONG("aminmax", all_of(aminmax(c.in[0], {c.i("dim")}, c.b("keepdim"))))
  DEFT_ALONG("softmin", {softmin(c.in[0], c.i("dim"))})
  DEFT_ALONG("diff", {diff(c.in[0], c.i("n"), c.i("dim"))})
  DEFT_ALONG("norm", {norm(c.in[0], c.d("p"), c.list("dims"), c.b("keepdim"))})
  DEFT_ALONG("normalize", {normalize(c.in[0], c.d("p"), c.i("dim"))})
  DEFT_ALONG("argmax", {argmax(c.in[0], c.maybe_i("dim"), c.b("keepdim"))})
  DEFT_ALONG("argmin", {argmin(c.in[0], c.maybe_i("dim"), c.b("keepdim"))})
  DEFT_ALONG("max_dim", all_of(max(c.in[0], c.i("dim"), c.b("keepdim"))))
  DEFT_ALONG("min_dim", all_of(min(c.in[0], c.i("dim"), c.b("keepdim"))))
  DEFT_ALONG("max", {max(c.in[0])})
  DEFT_ALONG("min", {min(c.in[0])})
  DEFT_ALONG("median", {median(c.in[0])})
  DEFT_ALONG("median_dim", all_of(median(c.in[0], c.i("dim"), c.b("keepdim")), 1))
  DEFT_ALONG("quantile", {quantile(c.in[0], c.d("q"), c.maybe_i("dim"), c.b("keepdim"))})
  DEFT_ALONG("cumsum", {cumsum(c.in[0], c.i("dim"))})
  DEFT_ALONG("cumprod", {cumprod(c.in[0], c.i("dim"))})
  DEFT_ALONG("softmax", {softmax(c.in[0], c.i("dim"))})
  DEFT_ALONG("log_softmax", {log_softmax(c.in[0], c.i("dim"))})
  DEFT_ALONG("sort", all_of(sort(c.in[0], c.i("dim"), c.b("descending")), 1))
  DEFT_ALONG("topk", all_of(topk(c.in[0], c.i("k"), c.i("dim"), c.b("largest")), 1))
  DEFT_ALONG("unique", {unique(c.in[0])[0]})
}

void add_shapes(std::map<std::string, Op>& ops) {
  DEFT_ALONG("reshape", {c.in[0].reshape(c.list("sizes"))})
  DEFT_ALONG("view", {c.in[0].view(c.list("sizes"))})
  DEFT_ALONG("flatten", {c.in[0].flatten(c.i("start"), c.i("end"))})
  DEFT_ALONG("unflatten", {c.in[0].unflatten(c.i("dim"), c.list("sizes"))})
  DEFT_ALONG("permute", {c.in[0].permute(c.list("dims"))})
  DEFT_ALONG("transpose", {c.in[0].transpose(c.i("a"), c.i("b"))})
  DEFT_ALONG("movedim", {movedim(c.in[0], c.i("a"), c.i("b"))})
  DEFT_ALONG("expand", {c.in[0].expand(c.list("sizes"))})
  DEFT_ALONG("squeeze", {c.has("dim") ? c.in[0].squeeze(c.i("dim")) : c.in[0].squeeze()})
  DEFT_ALONG("unsqueeze", {c.in[0].unsqueeze(c.i("dim"))})
  DEFT_ALONG("select", {c.in[0].select(c.i("dim"), c.i("index"))})
  DEFT_ALONG("narrow", {c.in[0].narrow(c.i("dim"), c.i("start"), c.i("length"))})
  DEFT_ALONG("slice", {c.in[0].slice(c.i("dim"), {c.maybe_i("start"), c.maybe_i("stop"), c.i("step", 1)})})
  DEFT_ALONG("diagonal", {c.in[0].diagonal(c.i("offset"), c.i("a"), c.i("b"))})
  DEFT_ALONG("unfold", {c.in[0].unfold(c.i("dim"), c.i("size"), c.i("step"))})
  DEFT_ALONG("cat", {cat(c.in, c.i("dim"))})
  DEFT_ALONG("stack", {stack(c.in, c.i("dim"))})
  DEFT_ALONG("hstack", {hstack(c.in)})
  DEFT_ALONG("vstack", {vstack(c.in)})
  DEFT_ALONG("repeat", {repeat(c.in[0], c.list("counts"))})
  DEFT_ALONG("tile", {tile(c.in[0], c.list("counts"))})
  DEFT_ALONG("repeat_interleave", {repeat_interleave(c.in[0], c.i("count"), c.i("dim"))})
  DEFT_ALONG("flip", {flip(c.in[0], c.list("dims"))})
  DEFT_ALONG("roll", {roll(c.in[0], c.i("shift"), c.i("dim"))})
  DEFT_ALONG("tril", {tril(c.in[0], c.i("diagonal"))})
  DEFT_ALONG("triu", {triu(c.in[0], c.i("diagonal"))})
  DEFT_ALONG("diag", {diag(c.in[0], c.i("diagonal"))})
  DEFT_ALONG("pad", {pad(c.in[0], c.list("amounts"), pad_mode(c), c.d("value"))})
}

void add_indexing(std::map<std::string, Op>& ops) {
  DEFT_ALONG("gather", {gather(c.in[0], c.i("dim"), c.in[1])})
  DEFT_ALONG("index_select", {index_select(c.in[0], c.i("dim"), c.in[1])})
  DEFT_ALONG("index_add", {index_add(c.in[0], c.i("dim"), c.in[1], c.in[2])})
  DEFT_ALONG("scatter", {scatter(c.in[0], c.i("dim"), c.in[1], c.in[2])})
  DEFT_ALONG("scatter_add", {scatter_add(c.in[0], c.i("dim"), c.in[1], c.in[2])})
  DEFT_ALONG("scatter_reduce",
             {scatter_reduce(c.in[0], c.i("dim"), c.in[1], c.in[2], scatter_mode(c), c.b("include_self"))})
  DEFT_ALONG("masked_fill", {masked_fill(c.in[0], c.in[1], *c.number("value"))})
  DEFT_ALONG("masked_select", {masked_select(c.in[0], c.in[1])})
  DEFT_ALONG("take", {take(c.in[0], c.in[1])})
  DEFT_ALONG("embedding", {embedding(c.in[0], c.in[1], c.maybe_i("padding"))})
  DEFT_ALONG("nonzero", {nonzero(c.in[0])})
  DEFT_ALONG("one_hot", {one_hot(c.in[0], c.i("classes"))})
  DEFT_ALONG("index", {index(c.in[0], places(c, c.in.size()))})
  DEFT_ALONG("index_put", {index_put(c.in[0], places(c, c.in.size() - 1), c.in.back(), c.b("accumulate"))})
  DEFT_ALONG("scatter_number", {scatter(c.in[0], c.i("dim"), c.in[1], *c.number("value"))})
}

void add_products(std::map<std::string, Op>& ops) {
  DEFT_ALONG("matmul", {matmul(c.in[0], c.in[1])})
  DEFT_ALONG("bmm", {bmm(c.in[0], c.in[1])})
  DEFT_ALONG("dot", {dot(c.in[0], c.in[1])})
  DEFT_ALONG("mv", {mv(c.in[0], c.in[1])})
  DEFT_ALONG("outer", {outer(c.in[0], c.in[1])})
  DEFT_ALONG("linear", {linear(c.in[0], c.in[1], third(c))})
  DEFT_ALONG("bilinear", {bilinear(c.in[0], c.in[1], c.in[2])})
  DEFT_ALONG("addmm", {addmm(c.in[0], c.in[1], c.in[2], *c.number("beta"), *c.number("alpha"))})
  DEFT_ALONG("baddbmm", {baddbmm(c.in[0], c.in[1], c.in[2], *c.number("beta"), *c.number("alpha"))})
  DEFT_ALONG("tensordot", {tensordot(c.in[0], c.in[1], c.i("dims"))})
  DEFT_ALONG("einsum", {einsum(c.s("equation"), c.in)})
}

void add_losses(std::map<std::string, Op>& ops) {
  DEFT_ALONG("mse_loss", {mse_loss(c.in[0], c.in[1], reduction(c))})
  DEFT_ALONG("l1_loss", {l1_loss(c.in[0], c.in[1], reduction(c))})
  DEFT_ALONG("smooth_l1_loss", {smooth_l1_loss(c.in[0], c.in[1], reduction(c), c.d("beta"))})
  DEFT_ALONG("huber_loss", {huber_loss(c.in[0], c.in[1], reduction(c), c.d("delta"))})
  DEFT_ALONG("bce", {binary_cross_entropy(c.in[0], c.in[1], {}, reduction(c))})
  DEFT_ALONG("bce_with_logits", {binary_cross_entropy_with_logits(c.in[0], c.in[1], {}, {}, reduction(c))})
  DEFT_ALONG("kl_div", {kl_div(c.in[0], c.in[1], static_cast<KlReduction>(reduction(c)), c.b("log"))})
  DEFT_ALONG("cosine_similarity", {cosine_similarity(c.in[0], c.in[1], c.i("dim"))})
  DEFT_ALONG("cosine_embedding_loss", {cosine_embedding_loss(c.in[0], c.in[1], c.in[2], c.d("margin"), reduction(c))})
  DEFT_ALONG("nll_loss", {nll_loss(c.in[0], c.in[1], {third(c), c.i("ignore"), reduction(c)})})
  DEFT_ALONG("cross_entropy",
             {cross_entropy(c.in[0], c.in[1], {third(c), c.i("ignore"), reduction(c), c.d("smoothing")})})
}

void add_windows(std::map<std::string, Op>& ops) {
  DEFT_ALONG("conv1d", {conv1d(c.in[0], c.in[1], third(c), c.list("stride"), c.list("padding"), c.list("dilation"),
                               c.i("groups"))})
  DEFT_ALONG("conv2d", {conv2d(c.in[0], c.in[1], third(c), c.list("stride"), c.list("padding"), c.list("dilation"),
                               c.i("groups"))})
  DEFT_ALONG("conv_transpose2d", {conv_transpose2d(c.in[0], c.in[1], third(c), c.list("stride"), c.list("padding"),
                                                   c.list("extra"), c.i("groups"), c.list("dilation"))})
  DEFT_ALONG("max_pool2d", {max_pool2d(c.in[0], c.list("kernel"), c.list("stride"), c.list("padding"),
                                       c.list("dilation"), c.b("ceil"))})
  DEFT_ALONG("avg_pool2d", {avg_pool2d(c.in[0], c.list("kernel"), c.list("stride"), c.list("padding"), c.b("ceil"),
                                       c.b("count_pad"))})
  DEFT_ALONG("adaptive_avg_pool2d", {adaptive_avg_pool2d(c.in[0], c.list("sizes"))})
  DEFT_ALONG("adaptive_max_pool2d", {adaptive_max_pool2d(c.in[0], c.list("sizes"))})
  DEFT_ALONG("interpolate", {interpolate(c.in[0], c.list("sizes"), interpolate_mode(c), c.b("corners"))})
  DEFT_ALONG("im2col", {unfold(c.in[0], c.list("kernel"), c.list("dilation"), c.list("padding"), c.list("stride"))})
  DEFT_ALONG("col2im", {fold(c.in[0], c.list("sizes"), c.list("kernel"), c.list("dilation"), c.list("padding"),
                             c.list("stride"))})
}

void add_layers(std::map<std::string, Op>& ops) {
  DEFT_ALONG("layer_norm", {layer_norm(c.in[0], c.list("sizes"), second(c), {}, c.d("eps"))})
  DEFT_ALONG("rms_norm", {rms_norm(c.in[0], c.list("sizes"), second(c), c.d("eps"))})
  DEFT_ALONG("group_norm", {group_norm(c.in[0], c.i("groups"), second(c), {}, c.d("eps"))})
  DEFT_ALONG("instance_norm", {instance_norm(c.in[0], {}, {}, second(c), {}, true, 0.1, c.d("eps"))})
  DEFT_ALONG("attention",
             {scaled_dot_product_attention(c.in[0], c.in[1], c.in[2], {}, 0, c.b("causal"), {}, c.b("gqa"))})
  ops["batch_norm"] = [](const Call& c) -> Tensors {
    Tensor weight = c.in.size() > 3 ? c.in[3] : Tensor(), bias = c.in.size() > 4 ? c.in[4] : Tensor();
    return {batch_norm(c.in[0], c.in[1], c.in[2], weight, bias, c.b("training"), 0.1, 1e-2), c.in[1], c.in[2]};
  };
#undef DEFT_ALONG
}

const std::map<std::string, Op>& ops() {
  static const auto* all = [] {
    auto* made = new std::map<std::string, Op>;
    add_elementwise(*made);
    add_reductions(*made);
    add_shapes(*made);
    add_indexing(*made);
    add_products(*made);
    add_losses(*made);
    add_windows(*made);
    add_layers(*made);
    return made;
  }();
  return *all;
}

json data_of(const Tensor& t) {
  json data = json::array();
  if (!is_floating(t.dtype())) return t.to_vector<int64_t>();
  for (double v : t.detach().to_vector<double>()) {
    if (std::isfinite(v))
      data.push_back(v);
    else
      data.push_back(std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
  }
  return data;
}
json describe(const Tensor& t) {
  return {{"dtype", name_of(t.dtype())},
          {"sizes", std::vector<int64_t>(t.sizes().begin(), t.sizes().end())},
          {"grad", t.requires_grad()},
          {"data", data_of(t)}};
}

Tensor make_input(const json& in) {
  DType dtype = dtype_named(in["dtype"]);
  auto sizes = in["sizes"].get<std::vector<int64_t>>();
  Tensor t;
  if (is_floating(dtype)) {
    std::vector<double> data;
    for (const json& v : in["data"]) data.push_back(double_of(v));
    t = tensor(data);
  } else {
    t = tensor(in["data"].get<std::vector<int64_t>>());
  }
  t = t.to(dtype).reshape(sizes);
  if (in["grad"].get<bool>()) t.requires_grad_();
  return t;
}

// The same weights as in tools/torch_fuzz: no two neighbours alike.
Tensor weights_like(const Tensor& y) {
  std::vector<double> w(static_cast<size_t>(y.numel()));
  for (size_t i = 0; i < w.size(); ++i) w[i] = (static_cast<double>(i * 7 % 5) - 1.5) / 2;
  return tensor(w).to(y.dtype()).reshape(y.sizes());
}

json run(const json& program) {
  json result = {{"id", program["id"]}, {"values", json::array()}, {"grads", json::object()}};
  std::map<std::string, Tensor> named;
  int step = -1;
  try {
    for (const json& in : program["inputs"]) named[in["name"]] = make_input(in);
    for (const json& s : program["steps"]) {
      ++step;
      Tensors in;
      for (const json& name : s["in"]) in.push_back(named.at(name));
      Tensors out = ops().at(s["op"])({in, s["p"]});
      json values = json::array();
      for (size_t i = 0; i < s["out"].size(); ++i) {
        named[s["out"][i]] = out.at(i);
        values.push_back(describe(out[i]));
      }
      result["values"].push_back(values);
    }
    ++step;
    Tensor last = named.at(program["backward"]);
    if (last.requires_grad()) last.backward(weights_like(last));
    for (const json& in : program["inputs"])
      if (Tensor g = named[in["name"]].grad(); g.defined()) result["grads"][std::string(in["name"])] = describe(g);
  } catch (const Error& e) {
    result["error"] = {{"step", step}, {"text", e.what()}};
  }
  return result;
}

}  // namespace
}  // namespace deft

int main() {
  std::string line;
  while (std::getline(std::cin, line)) std::cout << deft::run(nlohmann::json::parse(line)).dump() << "\n" << std::flush;
}
