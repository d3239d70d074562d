// Steps over the whole op table: random_program(). Whatever the passes that promise the same bits do to them must not
// be seen.
#pragma once

#include <cstring>

#include "ops/all_ops.h"
#include "ops/op_table.h"
#include "ops/sample.h"
#include "random_program.h"

namespace deft::testing {

// Samples that a capture takes, and elementwise ops without parameters.
struct OpList {
  struct Call {
    const OpSamples* op;
    const Sample* sample;
  };
  std::vector<OpSamples> all = all_samples();
  std::vector<Call> calls;
  std::vector<const OpDef*> elementwise;
  OpList() {
    for (const OpSamples& op : all) {
      if (!supported(op.op)) continue;
      for (const Sample& s : op.good)
        if (elements(s) <= 20000) calls.push_back({&op, &s});
    }
    for (int i = 0; const OpDef* def = op_at(i); ++i)
      if (def->elementwise && def->params_bytes == 0) elementwise.push_back(def);
  }
  // The shape of these results depends on values; einsum's samples are many and each is one of the others.
  static bool supported(std::string_view op) {
    return op != "nonzero" && op != "masked_select" && op != "unique" && op != "masked_unpack";
  }
  static int64_t elements(const Sample& s) {
    int64_t n = 0;
    for (const Arg& a : s.args) n += checked_numel(a.sizes, DType::f64);
    return n;
  }
};
inline const OpList& op_list() {
  static const OpList list;
  return list;
}

class AnyStep {
 public:
  AnyStep(ProgramMaker& maker) : m_(maker), dice_(maker.dice) {}

  void add() {
    size_t before = m_.p.steps.size();
    using Kind = void (AnyStep::*)();
    static const std::vector<Kind> kinds = {
        &AnyStep::elementwise, &AnyStep::elementwise, &AnyStep::elementwise, &AnyStep::number,    &AnyStep::number,
        &AnyStep::written,     &AnyStep::written,     &AnyStep::view,        &AnyStep::view,      &AnyStep::view,
        &AnyStep::copies,      &AnyStep::reduced,     &AnyStep::product,     &AnyStep::sample,    &AnyStep::sample,
        &AnyStep::sample,      &AnyStep::random,      &AnyStep::created,     &AnyStep::repeated,  &AnyStep::filled,
        &AnyStep::parametric,  &AnyStep::moved,       &AnyStep::batch_norms, &AnyStep::converted, &AnyStep::convolved};
    (this->*dice_.of(kinds))();
    if (m_.p.steps.size() > before && dice_.chance(3))
      m_.p.steps.back().autocast = dice_.chance(50) ? DType::bf16 : DType::f32;
  }

  int leaf(const Shape& sizes, DType dtype) {
    static const std::vector<Layout> layouts = {Layout::contiguous,   Layout::contiguous, Layout::contiguous,
                                                Layout::transposed,   Layout::sliced,     Layout::expanded,
                                                Layout::channels_last};
    return m_.leaf({real(sizes), dtype, dice_.of(layouts)}, dice_.chance(40));
  }
  DType dtype() {
    static const std::vector<DType> types = {DType::f32, DType::f32,  DType::f32,  DType::f32,
                                             DType::f64, DType::bf16, DType::bf16, DType::f16,
                                             DType::i64, DType::i32,  DType::u8,   DType::boolean};
    return dice_.of(types);
  }
  Shape sizes() {
    Shape s;
    static const std::vector<int64_t> dims = {1, 2, 3, 4, 4, 5, 7, 8, 16, 33};
    int rank = static_cast<int>(dice_.between(0, 4));
    for (int i = 0; i < rank; ++i) s.push_back(rank > 2 ? dice_.between(1, 6) : dice_.of(dims));
    if (rank > 0 && dice_.chance(4)) s[static_cast<int>(dice_.below(rank))] = 0;
    if (dice_.chance(5)) s = dice_.chance(50) ? Shape{70, 70} : Shape{600, 33};
    return s;
  }

 private:
  int64_t dim_of(const Tensor& x) { return x.dim() ? dice_.below(x.dim()) : 0; }
  int floating() {
    for (int tries = 0; tries < 8; ++tries)
      if (int s = m_.any(); is_floating(m_.at(s).dtype())) return s;
    return leaf(sizes(), DType::f32);
  }
  int of_rank(int least) {
    for (int tries = 0; tries < 8; ++tries)
      if (int s = m_.any(); m_.at(s).dim() >= least) return s;
    Shape s = sizes();
    while (s.size() < least) s.push_back(dice_.between(1, 4));
    return leaf(s, dtype());
  }
  // Something that broadcasts with `a`: one of the same shape, a part of it, or a new one.
  int partner(int a) {
    const Shape like = m_.at(a).sizes();
    for (int tries = 0; tries < 6; ++tries)
      if (int s = m_.any(); m_.at(s).sizes() == like) return s;
    Shape s = like;
    if (s.size() && dice_.chance(40)) s[static_cast<int>(dice_.below(s.size()))] = 1;
    while (s.size() && dice_.chance(25)) s.erase(0);
    return leaf(s, dice_.chance(70) ? m_.at(a).dtype() : dtype());
  }

  void elementwise() {
    const OpDef* def = dice_.of(op_list().elementwise);
    // Mostly those that keep values finite, so that there is something to see.
    static const std::vector<const char*> usual = {"add",  "sub",  "mul", "tanh", "sigmoid", "relu",  "maximum",
                                                   "sin",  "abs",  "neg", "div",  "exp",     "gt",    "where",
                                                   "silu", "sqrt", "cos", "atan", "minimum", "square"};
    if (dice_.chance(60)) def = find_op(dice_.of(usual));
    if (!def || def->params_bytes) return;
    std::vector<int> in{m_.any()};
    for (int i = 1; i < def->info.inputs; ++i) in.push_back(partner(in[0]));
    if (def->elementwise->condition && m_.at(in[0]).dtype() != DType::boolean) return;
    m_.step({.text = def->info.name,
             .in = in,
             .out = {},
             .run =
                 [def](const Tensors& x) {
                   std::vector<const Tensor*> pointers;
                   for (const Tensor& t : x) pointers.push_back(&t);
                   Tensor out;
                   dispatch(*def, pointers.data(), static_cast<int>(x.size()), &out, nullptr, Site::current());
                   return Tensors{out};
                 }},
            1);
  }
  void written() {
    const OpDef* def = dice_.of(op_list().elementwise);
    int target = m_.any();
    std::vector<int> in{target};
    for (int i = 1; i < def->info.inputs; ++i) in.push_back(partner(target));
    m_.step({.text = std::string(def->info.name) + "_",
             .in = in,
             .out = {},
             .run =
                 [def](const Tensors& x) {
                   std::vector<const Tensor*> pointers;
                   for (const Tensor& t : x) pointers.push_back(&t);
                   dispatch_inplace(*def, pointers.data(), static_cast<int>(x.size()), nullptr, Site::current());
                   return Tensors{};
                 },
             .writes = true},
            0);
  }
  void number() {
    double v = static_cast<double>(dice_.between(-6, 6)) / 4;
    Scalar s = dice_.chance(30) ? Scalar(dice_.between(-2, 3)) : Scalar(v);
    int a = m_.any();
    std::string text = fmt::format("{}", s.is_floating() ? v : static_cast<double>(s.to_int64()));
    switch (dice_.below(8)) {
      case 0:
        return one("+ " + text, a, [s](const Tensor& x) { return x + s; });
      case 1:
        return one("* " + text, a, [s](const Tensor& x) { return x * s; });
      case 2:
        return one("< " + text, a, [s](const Tensor& x) { return x < s; });
      case 3:
        return one(text + " -", a, [v](const Tensor& x) { return v - x; });
      case 4:
        return one("clamp " + text, a, [s](const Tensor& x) { return x.clamp(s); });
      case 5:
        return one("maximum " + text, a, [s](const Tensor& x) { return x.maximum(s); });
      case 6:
        return in_place("add_ " + text, a, [s](Tensor x) { x.add_(s); });
      default:
        return in_place("mul_ " + text, a, [s](Tensor x) { x.mul_(s); });
    }
  }
  void parametric() {
    int a = floating(), b = partner(a);
    switch (dice_.below(7)) {
      case 0:
        return one("gelu", a, [](const Tensor& x) { return gelu(x); });
      case 1:
        return one("gelu(tanh)", a, [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); });
      case 2:
        return one("leaky_relu", a, [](const Tensor& x) { return leaky_relu(x, 0.125); });
      case 3:
        return one("softplus", a, [](const Tensor& x) { return softplus(x, 2); });
      case 4:
        return one("elu", a, [](const Tensor& x) { return elu(x, 0.5); });
      case 5:
        return two("lerp", a, b, [](const Tensor& x, const Tensor& y) { return lerp(x, y, 0.25); });
      default:
        return two("addcmul", a, b, [](const Tensor& x, const Tensor& y) { return addcmul(x, y, y, 0.5); });
    }
  }

  void view() {
    int a = of_rank(1);
    const Tensor x = m_.at(a);
    int64_t d = dim_of(x), n = x.size(d), from = n ? dice_.below(n) : 0;
    int64_t length = n - from ? dice_.between(1, n - from) : 0, other = dim_of(x);
    switch (dice_.below(11)) {
      case 0:
      case 1:
        return one(fmt::format("narrow({}, {}, {})", d, from, length), a,
                   [=](const Tensor& t) { return t.narrow(d, from, length); });
      case 2:
        return one(fmt::format("slice({}, {}::2)", d, from), a,
                   [=](const Tensor& t) { return t.slice(d, Slice(from, {}, 2)); });
      case 3:
        return one(fmt::format("select({}, {})", d, from), a, [=](const Tensor& t) { return t.select(d, from); });
      case 4:
        return one(fmt::format("transpose({}, {})", d, other), a,
                   [=](const Tensor& t) { return t.transpose(d, other); });
      case 5:
        return one("flatten", a, [=](const Tensor& t) { return t.flatten(); });
      case 6:
        return one(fmt::format("unsqueeze({})", d), a, [=](const Tensor& t) { return t.unsqueeze(d); });
      case 7: {
        Shape wide = x.sizes();
        wide.insert(0, dice_.between(1, 3));
        return one("expand(" + to_string(wide) + ")", a, [=](const Tensor& t) { return t.expand(wide); });
      }
      case 8: {
        Shape folded = x.sizes();
        folded.insert(static_cast<int>(d), 1);
        if (n % 2 == 0) folded[static_cast<int>(d)] = 2, folded[static_cast<int>(d) + 1] = n / 2;
        return one("view(" + to_string(folded) + ")", a, [=](const Tensor& t) { return t.view(folded); });
      }
      case 9:
        return one(fmt::format("diagonal({}, {})", d, other), a,
                   [=](const Tensor& t) { return t.diagonal(0, d, other); });
      default:
        return several(fmt::format("chunk(2, {})", d), a, 2, [=](const Tensor& t) { return t.chunk(2, d); });
    }
  }
  void copies() {
    int a = m_.any(), rank = m_.at(a).dim();
    switch (dice_.below(6)) {
      case 0:
        return one("clone", a, [](const Tensor& t) { return t.clone(); });
      case 1:
        return one("contiguous", a, [](const Tensor& t) { return t.contiguous(); });
      case 2:
        return one("detach", a, [](const Tensor& t) { return t.detach(); });
      case 3:
        if (rank == 4)
          return one("channels_last", a, [](const Tensor& t) { return t.contiguous(MemoryFormat::channels_last); });
        return one("reshape(-1)", a, [](const Tensor& t) { return t.reshape({-1}); });
      case 4: {
        int b = partner(a);
        return in_place2("copy_", a, b, [](Tensor x, const Tensor& y) { x.copy_(y); });
      }
      default: {
        int b = partner(a);
        if (!(m_.at(b).sizes() == m_.at(a).sizes()) || rank == 0) return;
        int64_t d = dim_of(m_.at(a));
        return two(fmt::format("cat({})", d), a, b, [=](const Tensor& x, const Tensor& y) { return cat({x, y}, d); });
      }
    }
  }
  void converted() {
    DType to = dtype();
    one(fmt::format("to({})", name_of(to)), m_.any(), [to](const Tensor& t) { return t.to(to); });
  }
  void filled() {
    int a = m_.any();
    switch (dice_.below(4)) {
      case 0:
        return in_place("zero_", a, [](Tensor x) { x.zero_(); });
      case 1:
        return in_place("fill_ 2", a, [](Tensor x) { x.fill_(2); });
      case 2: {
        int b = partner(a);
        return in_place2("masked_fill_(0.5)", a, b, [](Tensor x, const Tensor& y) { x.masked_fill_(y > 0, 0.5); });
      }
      default: {
        if (m_.at(a).dim() == 0 || m_.at(a).size(0) == 0) return;
        int64_t row = dice_.below(m_.at(a).size(0));
        return in_place("index_put_ row", a, [row](Tensor x) { x.index_put_({row}, 1); });
      }
    }
  }
  void moved() {
    int a = of_rank(1);
    int64_t d = dim_of(m_.at(a));
    switch (dice_.below(4)) {
      case 0:
        return one("flip", a, [d](const Tensor& t) { return flip(t, {d}); });
      case 1:
        return one("roll", a, [d](const Tensor& t) { return roll(t, {1}, {d}); });
      case 2:
        return several("sort", a, 2, [d](const Tensor& t) {
          auto [values, indices] = sort(t, d);
          return Tensors{values, indices};
        });
      default:
        return one("cumsum", a, [d](const Tensor& t) { return t.cumsum(d); });
    }
  }
  void reduced() {
    int a = floating();
    int64_t d = dim_of(m_.at(a));
    bool keep = dice_.chance(50);
    switch (dice_.below(6)) {
      case 0:
        return one(fmt::format("sum({}, {})", d, keep), a, [=](const Tensor& t) { return t.sum({d}, keep); });
      case 1:
        return one("mean", a, [](const Tensor& t) { return t.mean(); });
      case 2:
        return one(fmt::format("amax({}, {})", d, keep), a, [=](const Tensor& t) { return t.amax({d}, keep); });
      case 3:
        return one(fmt::format("softmax({})", d), a, [=](const Tensor& t) { return t.softmax(d); });
      case 4:
        return one(fmt::format("argmax({})", d), a, [=](const Tensor& t) { return t.argmax(d, keep); });
      default:
        return one(fmt::format("var({})", d), a, [=](const Tensor& t) { return t.var({d}, 0, keep); });
    }
  }
  // Also with weights that the program made or wrote.
  void product() {
    int a = of_rank(1);
    const Tensor x = m_.at(a);
    int64_t k = x.size(-1), n = dice_.of(std::vector<int64_t>{1, 3, 8, 33, 70});
    int w = -1;
    for (int tries = 0; tries < 8 && w < 0; ++tries)
      if (int s = m_.any(); m_.at(s).dim() == 2 && m_.at(s).size(1) == k && m_.at(s).dtype() == x.dtype()) w = s;
    if (w < 0) w = leaf({n, k}, x.dtype());
    n = m_.at(w).size(0);
    if (dice_.chance(30))
      return two("matmul(x, w.t())", a, w, [](const Tensor& l, const Tensor& r) { return matmul(l, r.t()); });
    if (dice_.chance(50)) return two("linear", a, w, [](const Tensor& l, const Tensor& r) { return linear(l, r); });
    int b = leaf({n}, x.dtype());
    m_.step({.text = "linear",
             .in = {a, w, b},
             .out = {},
             .run = [](const Tensors& t) { return Tensors{linear(t[0], t[1], t[2])}; }},
            1);
  }
  void convolved() {
    int a = -1;
    for (int tries = 0; tries < 8 && a < 0; ++tries)
      if (int s = m_.any(); m_.at(s).dim() == 4 && is_floating(m_.at(s).dtype())) a = s;
    if (a < 0) a = leaf({dice_.between(1, 2), dice_.between(1, 4), 6, 5}, dice_.chance(80) ? DType::f32 : DType::bf16);
    int64_t channels = m_.at(a).size(1), stride = dice_.between(1, 2), side = dice_.chance(50) ? 1 : 3;
    int w = leaf({dice_.between(1, 8), channels, side, side}, m_.at(a).dtype());
    two(fmt::format("conv2d(stride {})", stride), a, w,
        [stride, side](const Tensor& x, const Tensor& y) { return conv2d(x, y, {}, {stride}, {side / 2}); });
  }
  // In training its running statistics are written by the op itself.
  void batch_norms() {
    int a = of_rank(2);
    const Tensor x = m_.at(a);
    if (!is_floating(x.dtype())) return;
    int64_t c = x.size(1);
    DType t = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
    int mean = m_.leaf({real({c}), t, Layout::contiguous}, true), var = m_.leaf({real({c}, 0.5, 2), t}, true);
    bool training = dice_.chance(50);
    m_.step(
        {.text = training ? "batch_norm(training)" : "batch_norm",
         .in = {a, mean, var},
         .out = {},
         .run = [training](const Tensors& v) { return Tensors{batch_norm(v[0], v[1], v[2], {}, {}, training, 0.25)}; }},
        1);
  }
  void random() {
    int a = floating();
    Shape s = m_.at(a).sizes();
    switch (dice_.below(5)) {
      case 0:
      case 1:
        return one("dropout", a, [](const Tensor& t) { return dropout(t, 0.5, true); });
      case 2:
        return one("dropout(eval)", a, [](const Tensor& t) { return dropout(t, 0.5, false); });
      case 3:
        return none("randn" + to_string(s), [s] { return randn(s); });
      default:
        return one("bernoulli", a, [](const Tensor& t) { return bernoulli(t.sigmoid()); });
    }
  }
  void created() {
    Shape s = sizes();
    DType t = dtype();
    switch (dice_.below(6)) {
      case 0:
        return none("zeros" + to_string(s), [=] { return zeros(s, t); });
      case 1:
        return none("full" + to_string(s), [=] { return full(s, 1, t); });
      case 2:
        return none("arange(12)", [] { return arange(12); });
      case 3:
        return none("tensor{1, 2, 3}", [] { return tensor<float>({1, 2, 3}); });
      case 4:
        return one("zeros_like", m_.any(), [](const Tensor& x) { return zeros_like(x); });
      default:
        return none("eye(4)", [] { return eye(4); });
    }
  }
  void repeated() {
    if (!m_.p.steps.empty()) m_.again(Step(m_.dice.of(m_.p.steps)));
  }
  void sample() {
    const OpList::Call& call = dice_.of(op_list().calls);
    DType t = DType::f32;
    for (int tries = 0; tries < 4; ++tries)
      if (DType other = dtype(); call.op->dtypes.contains(other)) t = other;
    if (!call.op->dtypes.contains(t)) t = call.op->dtypes.contains(DType::i64) ? DType::i64 : DType::boolean;
    sample(call, t);
  }

 public:
  // A call as the samples of an op have it, on what is there where that fits.
  void sample(const OpList::Call& call, DType t) {
    std::vector<int> in;
    std::vector<bool> missing;
    for (const Arg& a : call.sample->args) {
      missing.push_back(a.kind == Arg::Kind::missing);
      if (missing.back()) continue;
      int found = -1;
      for (int tries = 0; tries < 8 && found < 0 && m_.count() && a.kind == Arg::Kind::real && !a.distinct; ++tries)
        if (int s = m_.any(); m_.at(s).sizes() == a.sizes && m_.at(s).dtype() == t) found = s;
      Layout layout = call.op->any_layout && dice_.chance(30) ? Layout::sliced : Layout::contiguous;
      in.push_back(found >= 0 ? found : m_.leaf({a, t, layout}, dice_.chance(40)));
    }
    SampleFn f = call.sample->call;
    auto run = [f, missing](const Tensors& given) {
      Tensors all;
      size_t next = 0;
      for (bool none_here : missing) all.push_back(none_here ? Tensor() : given[next++]);
      return f(all);
    };
    // Some give no result for some outputs: only what is there gets a slot.
    m_.step({.text = fmt::format("{}[{}]", call.op->op, call.sample->note), .in = in, .out = {}, .run = run}, 1);
  }

 private:
  using One = std::function<Tensor(const Tensor&)>;
  void none(const std::string& text, std::function<Tensor()> f) {
    m_.step({.text = text, .in = {}, .out = {}, .run = [f](const Tensors&) { return Tensors{f()}; }}, 1);
  }
  void one(const std::string& text, int a, One f) {
    m_.step({.text = text, .in = {a}, .out = {}, .run = [f](const Tensors& x) { return Tensors{f(x[0])}; }}, 1);
  }
  void two(const std::string& text, int a, int b, std::function<Tensor(const Tensor&, const Tensor&)> f) {
    m_.step({.text = text, .in = {a, b}, .out = {}, .run = [f](const Tensors& x) { return Tensors{f(x[0], x[1])}; }},
            1);
  }
  void several(const std::string& text, int a, int outputs, std::function<Tensors(const Tensor&)> f) {
    m_.step({.text = text, .in = {a}, .out = {}, .run = [f](const Tensors& x) { return f(x[0]); }}, outputs);
  }
  void in_place(const std::string& text, int a, std::function<void(Tensor)> f) {
    in_place2(text, a, -1, [f](const Tensor& x, const Tensor&) { f(x); });
  }
  void in_place2(const std::string& text, int a, int b, std::function<void(Tensor, const Tensor&)> f) {
    std::vector<int> in{a};
    if (b >= 0) in.push_back(b);
    m_.step({.text = text,
             .in = in,
             .out = {},
             .run =
                 [f](const Tensors& x) {
                   f(x[0], x.size() > 1 ? x[1] : Tensor());
                   return Tensors{};
                 },
             .writes = true},
            0);
  }

  ProgramMaker& m_;
  Dice& dice_;
};

inline Program sample_program(const OpList::Call& call, DType dtype) {
  ProgramMaker m(seed_of(fmt::format("{} {} {}", call.op->op, call.sample->note, name_of(dtype))));
  NoGradGuard no_grad;
  RngScope rng({1, 7});
  AnyStep(m).sample(call, dtype);
  if (!m.p.steps.empty()) m.p.results = m.p.steps[0].out;
  return m.p;
}

// Compiled without the passes that round differently it must give the same bits.
inline Program random_program(uint64_t seed) {
  ProgramMaker m(seed);
  Dice& dice = m.dice;
  m.p.inference = dice.chance(30);
  if (dice.chance(15)) m.p.autocast = dice.chance(80) ? DType::bf16 : DType::f16;
  AnyStep steps(m);
  DType common = steps.dtype();
  Shape shape = steps.sizes();
  for (int64_t i = dice.between(1, 3); i > 0; --i)
    steps.leaf(dice.chance(60) ? shape : steps.sizes(), dice.chance(60) ? common : steps.dtype());
  if (m.p.inputs.empty()) m.leaf({real(shape), common, Layout::contiguous}, false);
  if (dice.chance(10)) {
    Leaf twin = m.p.inputs[0];
    twin.layout = m.p.inputs[0].layout = Layout::contiguous;
    twin.shares = 0;
    m.leaf(twin, false);
  }
  {
    InferenceModeGuard inference(m.p.inference);
    NoGradGuard no_grad;
    RngScope rng({seed, 7});
    std::optional<AutocastGuard> autocast;
    if (m.p.autocast != DType::boolean) autocast.emplace(m.p.autocast);
    for (int64_t n = dice.between(2, 24); n > 0; --n) steps.add();
  }
  m.choose_results(4);
  return m.p;
}

}  // namespace deft::testing
