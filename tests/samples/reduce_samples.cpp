#include "ops/reduce.h"

#include <algorithm>
#include <limits>

#include "ops/binary.h"
#include "samples/reference.h"

namespace deft {

using namespace reference;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  std::string note;
  Shape sizes;
  std::vector<int64_t> dims;
  bool keepdim = false;
};

std::vector<Case> usual_cases() {
  return {{"all", {3, 5}, {}},
          {"all keepdim", {3, 5}, {}, true},
          {"dim=0", {4, 3}, {0}},
          {"dim=-1 keepdim", {2, 7}, {-1}, true},
          {"dim=1 middle", {2, 3, 4}, {1}},
          {"dims=0,2", {2, 3, 5}, {0, 2}},
          {"dims=-1,0 keepdim", {2, 3, 5}, {-1, 0}, true},
          {"dims=1,2,3", {2, 3, 2, 3}, {1, 2, 3}},
          {"per channel", {2, 3, 4, 2}, {0, 2, 3}, true},
          {"0-d", {}, {}},
          {"0-d dim=-1", {}, {-1}},
          {"one element", {1}, {0}},
          {"sizes of one", {1, 4, 1}, {0, 2}},
          {"five dims", {2, 1, 3, 2, 2}, {1, 3}},
          {"no rows", {0, 3}, {1}}};
}
std::vector<Case> large_cases() { return {{"long rows", {3, 517}, {1}}, {"long columns", {301, 5}, {0}}}; }
std::vector<Case> empty_cases() {
  return {{"over nothing", {3, 0}, {1}}, {"over nothing keepdim", {0, 2}, {0}, true}, {"nothing at all", {0}, {}}};
}
std::vector<Case> operator+(std::vector<Case> a, const std::vector<Case>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

using Call = std::function<Tensor(const Tensor&, IntList, bool)>;
using Fold = std::function<double(const Row&)>;

// "torch.sum(a, [0, 2], True)" where PyTorch takes lists; otherwise one dim or none.
std::string torch_call(const std::string& name, const Case& k, bool lists) {
  if (lists)
    return "torch." + name + "(a, " + python_list(complete_dims(k.sizes, k.dims)) + (k.keepdim ? ", True)" : ")");
  if (k.dims.empty() && !k.keepdim) return "torch." + name + "(a)";
  if (k.dims.size() != 1) return "";
  return "torch." + name + "(a, " + std::to_string(k.dims[0]) + (k.keepdim ? ", True)" : ")");
}

Sample reduce_sample(const Case& k, Arg arg, const Call& call, const Fold& fold, std::string torch) {
  arg.sizes = k.sizes;
  return {k.note,
          {arg},
          [=](const Tensors& t) -> Tensors { return {call(t[0], k.dims, k.keepdim)}; },
          [=](const Tensors& t) -> Tensors { return {reduce(t[0], k.dims, k.keepdim, fold)}; },
          torch};
}

OpSamples reductions(const char* op, DTypeSet dtypes, const std::vector<Case>& cases, Arg arg, const Call& call,
                     const Fold& fold, bool lists) {
  OpSamples s{.op = op, .dtypes = dtypes, .growth = 16};
  for (const Case& k : cases) s.good.push_back(reduce_sample(k, arg, call, fold, torch_call(op, k, lists)));
  std::string name = std::string(op) + ": ";
  auto bad = [&](std::string note, Shape sizes, std::vector<int64_t> dims, std::string error, std::string text) {
    s.bad.push_back(
        {note, {real(sizes)}, [=](const Tensors& t) -> Tensors { return {call(t[0], dims, false)}; }, error, text});
  };
  bad("dim too large", {2, 3}, {2}, "IndexError", name);
  bad("dim too small", {2, 3}, {-3}, "IndexError", name);
  bad("0-d dim=1", {}, {1}, "IndexError", name);
  bad("dim twice", {2, 3}, {1, -1}, "IndexError", "twice");
  s.bad.push_back({"undefined",
                   {missing_arg()},
                   [=](const Tensors& t) -> Tensors { return {call(t[0], {}, false)}; },
                   "ValueError",
                   "undefined"});
  return s;
}
void refuse_empty(OpSamples& s, const Call& call) {
  for (const Case& k : empty_cases())
    s.bad.push_back({k.note,
                     {real(k.sizes)},
                     [=](const Tensors& t) -> Tensors { return {call(t[0], k.dims, k.keepdim)}; },
                     "ValueError",
                     "is empty"});
}
void refuse_integers(OpSamples& s, const Call& call) {
  for (DType t : {DType::i64, DType::boolean})
    s.bad.push_back({"of " + std::string(name_of(t)),
                     {real({3})},
                     [=](const Tensors& x) -> Tensors { return {call(x[0].to(t), {}, false)}; },
                     "DTypeError",
                     "does not take"});
}

Arg plain() { return real({}); }
Arg distinct() {
  Arg a = real({});
  a.distinct = true;
  return a;
}
Arg not_for_gradients(Arg a) {
  a.grad = false;
  return a;
}

double sum_of(const Row& v) {
  long double s = 0;
  for (double x : v) s += x;
  return static_cast<double>(s);
}
double product_of(const Row& v) {
  double p = 1;
  for (double x : v) p *= x;
  return p;
}
double mean_of(const Row& v) { return sum_of(v) / static_cast<double>(v.size()); }
double variance_of(const Row& v, double correction) {
  double m = mean_of(v), s = 0;
  for (double x : v) s += (x - m) * (x - m);
  return s / std::max(0.0, static_cast<double>(v.size()) - correction);
}
double norm_of(const Row& v, double p) {
  double s = p == -kInf ? kInf : 0;
  for (double x : v) {
    double a = std::fabs(x);
    if (p == 0)
      s += a != 0;
    else if (p == kInf)
      s = std::max(s, a);
    else if (p == -kInf)
      s = std::min(s, a);
    else
      s += std::pow(a, p);
  }
  return p == 0 || std::isinf(p) ? s : std::pow(s, 1 / p);
}
template <class Better>
double index_of(const Row& v, Better better) {
  size_t best = 0;
  for (size_t i = 1; i < v.size(); ++i)
    if (better(v[i], v[best])) best = i;
  return static_cast<double>(best);
}
double argmax_of(const Row& v) { return index_of(v, std::greater<double>()); }
double argmin_of(const Row& v) { return index_of(v, std::less<double>()); }
double max_of(const Row& v) { return *std::max_element(v.begin(), v.end()); }
double min_of(const Row& v) { return *std::min_element(v.begin(), v.end()); }

// Row 1 of an input is taken from another one that is all zeros: factors that are zero, with gradients of their own.
Tensor with_zeros(const Tensor& x, const Tensor& z, std::vector<double> where) {
  Tensor at = tensor(where, {DType::f64}).to(x.dtype()).to(x.device());
  return x * eq(at, 0).to(at.dtype()) + z * at;
}

}  // namespace

OpSamples Sum::samples() {
  auto s = reductions(
      "sum", kAllTypes, usual_cases() + large_cases() + empty_cases(), plain(),
      [](const Tensor& x, IntList d, bool k) { return sum(x, d, k); }, sum_of, true);
  s.scale = 16;  // terms that cancel
  s.good.push_back({"method",
                    {real({2, 3})},
                    [](const Tensors& t) -> Tensors { return {t[0].sum()}; },
                    [](const Tensors& t) -> Tensors { return {reduce(t[0], {}, false, sum_of)}; },
                    "a.sum()"});
  s.good.push_back({"sum_to_size",
                    {real({2, 3, 4})},
                    [](const Tensors& t) -> Tensors {
                      return {sum_to_size(t[0], {3, 1})};
                    },
                    [](const Tensors& t) -> Tensors {
                      return {reduce(t[0], {0, 2}, false, sum_of).view({3, 1})};
                    },
                    "a.sum_to_size(3, 1)"});
  for (Shape bad : {Shape{2, 4}, Shape{2, 2, 3, 4}})
    s.bad.push_back({"sum_to_size" + to_string(bad),
                     {real({2, 3, 4})},
                     [=](const Tensors& t) -> Tensors { return {sum_to_size(t[0], bad)}; },
                     "ShapeError",
                     "cannot be summed"});
  return s;
}

OpSamples Mean::samples() {
  Call call = [](const Tensor& x, IntList d, bool k) { return mean(x, d, k); };
  auto s = reductions("mean", kFloats, usual_cases() + large_cases() + empty_cases(), plain(), call, mean_of, true);
  refuse_integers(s, call);
  return s;
}

OpSamples Prod::samples() {
  auto s = reductions(
      "prod", kAllTypes, usual_cases() + empty_cases(), real({}, -1.6, 1.6),
      [](const Tensor& x, IntList d, bool k) { return prod(x, d, k); }, product_of, false);
  auto zeros_at = [&](std::string note, std::vector<double> where, std::vector<int64_t> dims) {
    s.good.push_back({note,
                      {real({3, 4}), real({3, 1}, 0, 0)},
                      [=](const Tensors& t) -> Tensors { return {prod(with_zeros(t[0], t[1], where), dims)}; },
                      [=](const Tensors& t) -> Tensors {
                        return {reduce(with_zeros(t[0], t[1], where), dims, false, product_of)};
                      }});
  };
  zeros_at("one zero in a row", {0, 1, 0, 0}, {1});
  zeros_at("two zeros in a row", {0, 1, 0, 1}, {1});
  zeros_at("three zeros in a row", {1, 1, 0, 1}, {-1});
  zeros_at("zeros in a column", {1, 0, 0, 0}, {0});
  zeros_at("zeros over all", {1, 0, 0, 0}, {});
  return s;
}

OpSamples Amax::samples() {
  Call call = [](const Tensor& x, IntList d, bool k) { return amax(x, d, k); };
  auto s = reductions("amax", kAllTypes, usual_cases() + large_cases(), distinct(), call, max_of, true);
  refuse_empty(s, call);
  return s;
}
OpSamples Amin::samples() {
  Call call = [](const Tensor& x, IntList d, bool k) { return amin(x, d, k); };
  auto s = reductions("amin", kAllTypes, usual_cases() + large_cases(), distinct(), call, min_of, true);
  refuse_empty(s, call);
  return s;
}
OpSamples Aminmax::samples() {
  OpSamples s{.op = "aminmax", .dtypes = kAllTypes};
  for (const Case& k : usual_cases()) {
    Arg arg = distinct();
    arg.sizes = k.sizes;
    s.good.push_back({k.note,
                      {arg},
                      [=](const Tensors& t) -> Tensors {
                        auto [low, high] = aminmax(t[0], k.dims, k.keepdim);
                        return {low, high};
                      },
                      [=](const Tensors& t) -> Tensors {
                        return {reduce(t[0], k.dims, k.keepdim, min_of), reduce(t[0], k.dims, k.keepdim, max_of)};
                      }});
  }
  s.bad.push_back(
      {"empty", {real({0})}, [](const Tensors& t) -> Tensors { return {aminmax(t[0])[0]}; }, "ValueError", "is empty"});
  return s;
}

namespace {

using ArgCall = Tensor (*)(const Tensor&, std::optional<int64_t>, bool, Site);

OpSamples arg_samples(const char* op, ArgCall f, const Fold& fold) {
  OpSamples s{.op = op, .dtypes = kNumbers, .grad = false};
  auto add = [&](std::string note, Shape sizes, std::optional<int64_t> dim, bool keepdim, Arg arg) {
    arg.sizes = sizes;
    std::vector<int64_t> dims;
    if (dim) dims.push_back(*dim);
    std::string torch =
        std::string("torch.") + op + "(a, " + (dim ? std::to_string(*dim) : "None") + (keepdim ? ", True)" : ")");
    s.good.push_back({note,
                      {arg},
                      [=](const Tensors& t) -> Tensors { return {f(t[0], dim, keepdim, Site::current())}; },
                      [=](const Tensors& t) -> Tensors { return {reduce(t[0], dims, keepdim, fold)}; },
                      torch});
  };
  add("all", {3, 5}, {}, false, distinct());
  add("all keepdim", {3, 5}, {}, true, distinct());
  add("dim=0", {7, 3}, 0, false, distinct());
  add("dim=-1", {2, 3, 5}, -1, false, distinct());
  add("dim=1 keepdim", {2, 3, 5}, 1, true, distinct());
  add("ties", {4, 9}, 1, false, real({}, -1, 1));
  add("0-d", {}, {}, false, distinct());
  add("0-d dim=0", {}, 0, false, distinct());
  add("one element", {1}, 0, false, distinct());
  add("long", {2, 1050}, 1, false, real({}));
  add("no rows", {0, 3}, 1, false, distinct());
  auto bad = [&](std::string note, Shape sizes, std::optional<int64_t> dim, std::string error, std::string text) {
    s.bad.push_back({note,
                     {real(sizes)},
                     [=](const Tensors& t) -> Tensors { return {f(t[0], dim, false, Site::current())}; },
                     error,
                     text});
  };
  bad("dim too large", {2, 3}, 2, "IndexError", op);
  bad("over nothing", {2, 0}, 1, "ValueError", "is empty");
  bad("all of nothing", {0}, {}, "ValueError", "is empty");
  bad("0-d dim=1", {}, 1, "IndexError", op);
  return s;
}

using DimCall = std::array<Tensor, 2> (*)(const Tensor&, int64_t, bool, Site);

OpSamples dim_samples(const char* op, DimCall f, const Fold& value, const Fold& index) {
  OpSamples s{.op = op, .dtypes = kAllTypes};
  auto add = [&](std::string note, Shape sizes, int64_t dim, bool keepdim, Arg arg) {
    arg.sizes = sizes;
    std::string torch = std::string("torch.") + op + "(a, " + std::to_string(dim) + (keepdim ? ", True)" : ")");
    s.good.push_back({note,
                      {arg},
                      [=](const Tensors& t) -> Tensors {
                        auto r = f(t[0], dim, keepdim, Site::current());
                        return {r[0], r[1]};
                      },
                      [=](const Tensors& t) -> Tensors {
                        return {reduce(t[0], {dim}, keepdim, value), reduce(t[0], {dim}, keepdim, index)};
                      },
                      torch});
  };
  add("dim=0", {7, 3}, 0, false, distinct());
  add("dim=-1", {2, 3, 5}, -1, false, distinct());
  add("dim=1 keepdim", {2, 3, 5}, 1, true, distinct());
  add("dim=-2", {2, 3, 4, 2}, -2, false, distinct());
  add("ties", {4, 9}, 1, false, not_for_gradients(real({}, -1, 1)));
  add("0-d", {}, 0, false, distinct());
  add("one element", {1}, 0, true, distinct());
  add("long", {2, 1050}, 1, false, real({}));
  add("no rows", {0, 3}, 1, false, distinct());
  auto bad = [&](std::string note, Shape sizes, int64_t dim, std::string error, std::string text) {
    s.bad.push_back({note,
                     {real(sizes)},
                     [=](const Tensors& t) -> Tensors { return {f(t[0], dim, false, Site::current())[0]}; },
                     error,
                     text});
  };
  bad("dim too large", {2, 3}, 2, "IndexError", op);
  bad("dim too small", {2, 3}, -3, "IndexError", op);
  bad("over nothing", {2, 0}, 1, "ValueError", "is empty");
  return s;
}

}  // namespace

OpSamples ArgMax::samples() { return arg_samples("argmax", &argmax, argmax_of); }
OpSamples ArgMin::samples() { return arg_samples("argmin", &argmin, argmin_of); }
OpSamples MaxDim::samples() { return dim_samples("max", &max, max_of, argmax_of); }
OpSamples MinDim::samples() { return dim_samples("min", &min, min_of, argmin_of); }

namespace {

// About half of the elements become zero.
Tensor thinned(const Tensor& x) { return x.mul(x.gt(0)); }

OpSamples counting(const char* op, const Call& call, const Fold& fold, bool lists) {
  auto s = reductions(
      op, kAllTypes, usual_cases() + large_cases() + empty_cases(), plain(),
      [=](const Tensor& x, IntList d, bool k) { return call(thinned(x), d, k); },
      [=](const Row& v) {
        Row thin;
        for (double x : v) thin.push_back(x > 0 ? x : 0);
        return fold(thin);
      },
      lists);
  for (Sample& k : s.good)
    if (!k.torch.empty()) k.torch.replace(k.torch.find("(a"), 2, "(a * (a > 0)");
  s.grad = false;
  return s;
}
double count_of(const Row& v) {
  return static_cast<double>(v.size()) - static_cast<double>(std::count(v.begin(), v.end(), 0.0));
}

}  // namespace

OpSamples Any::samples() {
  return counting(
      "any", [](const Tensor& x, IntList d, bool k) { return any(x, d, k); },
      [](const Row& v) { return static_cast<double>(count_of(v) > 0); }, false);
}
OpSamples All::samples() {
  return counting(
      "all", [](const Tensor& x, IntList d, bool k) { return all(x, d, k); },
      [](const Row& v) { return static_cast<double>(count_of(v) == static_cast<double>(v.size())); }, false);
}
OpSamples CountNonzero::samples() {
  auto s = counting(
      "count_nonzero", [](const Tensor& x, IntList d, bool k) { return count_nonzero(x, d, k); }, count_of, false);
  for (Sample& k : s.good)
    if (k.torch.find("True") != k.torch.npos) k.torch.clear();  // has no keepdim in PyTorch
  return s;
}

namespace {

using VarCall = std::function<Tensor(const Tensor&, IntList, double, bool)>;

OpSamples variances(const char* op, const VarCall& call, const std::function<double(double)>& f) {
  Call usual = [=](const Tensor& x, IntList d, bool k) { return call(x, d, 0, k); };
  auto s = reductions(
      op, kFloats, usual_cases() + large_cases(), distinct(), usual, [=](const Row& v) { return f(variance_of(v, 0)); },
      true);
  for (size_t i = 0; i < s.good.size(); ++i) {
    Sample& k = s.good[i];
    k.torch.clear();
    // One value has no spread: its standard deviation is at a kink.
    if (k.note == "0-d" || k.note == "0-d dim=-1" || k.note == "one element") k.args[0].grad = false;
  }
  auto add = [&](std::string note, Shape sizes, std::vector<int64_t> dims, double correction, bool keepdim, bool grad) {
    Arg arg = grad ? distinct() : not_for_gradients(distinct());
    arg.sizes = sizes;
    std::string torch = std::string("torch.") + op + "(a, " + python_list(complete_dims(sizes, dims)) +
                        ", correction=" + std::to_string(static_cast<int>(correction)) +
                        (keepdim ? ", keepdim=True)" : ")");
    s.good.push_back({note,
                      {arg},
                      [=](const Tensors& t) -> Tensors { return {call(t[0], dims, correction, keepdim)}; },
                      [=](const Tensors& t) -> Tensors {
                        return {
                            reduce(t[0], dims, keepdim, [=](const Row& v) { return f(variance_of(v, correction)); })};
                      },
                      correction == std::floor(correction) ? torch : ""});
  };
  add("sample", {3, 5}, {1}, 1, false, true);
  add("sample all", {2, 4}, {}, 1, false, true);
  add("correction=2 keepdim", {4, 3}, {0}, 2, true, true);
  add("correction=0.5", {4, 3}, {0}, 0.5, false, true);
  add("correction=0", {3, 5}, {-1}, 0, false, true);
  add("one value", {3, 1}, {1}, 1, false, false);
  add("correction beyond the count", {3, 2}, {1}, 3, false, false);
  add("over nothing", {3, 0}, {1}, 1, false, false);
  refuse_integers(s, usual);
  return s;
}

}  // namespace

OpSamples Var::samples() {
  return variances(
      "var", [](const Tensor& x, IntList d, double c, bool k) { return var(x, d, c, k); }, [](double v) { return v; });
}
OpSamples Std::samples() {
  return variances(
      "std", [](const Tensor& x, IntList d, double c, bool k) { return deft::std(x, d, c, k); },
      [](double v) { return std::sqrt(v); });
}
OpSamples VarMean::samples() {
  OpSamples s{.op = "var_mean", .growth = 16};
  for (const Case& k : usual_cases()) {
    Arg arg = distinct();
    arg.sizes = k.sizes;
    s.good.push_back({k.note,
                      {arg},
                      [=](const Tensors& t) -> Tensors {
                        auto r = var_mean(t[0], k.dims, 0, k.keepdim);
                        return {r[0], r[1]};
                      },
                      [=](const Tensors& t) -> Tensors {
                        return {reduce(t[0], k.dims, k.keepdim, [](const Row& v) { return variance_of(v, 0); }),
                                reduce(t[0], k.dims, k.keepdim, mean_of)};
                      },
                      "torch.var_mean(a, " + python_list(complete_dims(k.sizes, k.dims)) +
                          ", correction=0, keepdim=" + (k.keepdim ? "True)" : "False)")});
  }
  s.bad.push_back({"dim",
                   {real({3})},
                   [](const Tensors& t) -> Tensors { return {var_mean(t[0], {1})[0]}; },
                   "IndexError",
                   "var: "});
  return s;
}

OpSamples Norm::samples() {
  Arg arg = real({});
  arg.away_from = 0;
  auto s = reductions(
      "norm", kFloats, usual_cases() + large_cases() + empty_cases(), arg,
      [](const Tensor& x, IntList d, bool k) { return norm(x, 2, d, k); }, [](const Row& v) { return norm_of(v, 2); },
      false);
  for (Sample& k : s.good) k.torch.clear();
  auto add = [&](std::string note, double p, Shape sizes, std::vector<int64_t> dims, bool keepdim, Arg a) {
    a.sizes = sizes;
    std::string order = p == kInf ? "float('inf')" : p == -kInf ? "float('-inf')" : std::to_string(p);
    s.good.push_back({note,
                      {a},
                      [=](const Tensors& t) -> Tensors { return {norm(t[0], p, dims, keepdim)}; },
                      [=](const Tensors& t) -> Tensors {
                        return {reduce(t[0], dims, keepdim, [=](const Row& v) { return norm_of(v, p); })};
                      },
                      "torch.linalg.vector_norm(a, " + order + ", " + python_list(complete_dims(sizes, dims)) +
                          (keepdim ? ", True)" : ")")});
  };
  Arg positive = real({}, 0.2, 2);
  positive.distinct = true;
  add("p=1", 1, {3, 5}, {1}, false, arg);
  add("p=1 all", 1, {2, 3}, {}, true, arg);
  add("p=0", 0, {3, 5}, {1}, false, not_for_gradients(arg));
  add("p=inf", kInf, {3, 5}, {1}, false, positive);
  add("p=-inf", -kInf, {3, 5}, {0}, true, positive);
  add("p=3", 3, {3, 5}, {-1}, false, arg);
  add("p=4 keepdim", 4, {3, 4}, {0}, true, arg);
  add("p=1.5", 1.5, {2, 3, 3}, {0, 2}, false, arg);
  add("p=0.5", 0.5, {3, 3}, {1}, false, arg);
  add("p=-2", -2, {3, 3}, {1}, false, arg);
  add("0-d p=3", 3, {}, {}, false, arg);
  auto bad = [&](std::string note, double p, Shape sizes, std::string text) {
    s.bad.push_back(
        {note, {real(sizes)}, [=](const Tensors& t) -> Tensors { return {norm(t[0], p)}; }, "ValueError", text});
  };
  bad("p is NaN", NAN, {3}, "NaN");
  bad("p=inf over nothing", kInf, {0}, "is empty");
  bad("p=-1 over nothing", -1, {0}, "is empty");
  return s;
}

OpSamples LogSumExp::samples() {
  auto s = reductions(
      "logsumexp", kAllTypes, usual_cases() + large_cases() + empty_cases(), plain(),
      [](const Tensor& x, IntList d, bool k) { return logsumexp(x, d, k); },
      [](const Row& v) {
        double sum = 0;
        for (double x : v) sum += std::exp(x);
        return std::log(sum);
      },
      true);
  s.good.push_back({"no overflow",
                    {real({2, 4})},
                    [](const Tensors& t) -> Tensors { return {logsumexp(t[0] * 60, {1})}; },
                    [](const Tensors& t) -> Tensors {
                      return {reduce(t[0], {1}, false, [](const Row& v) {
                        double m = 60 * max_of(v), sum = 0;
                        for (double x : v) sum += std::exp(60 * x - m);
                        return m + std::log(sum);
                      })};
                    },
                    "torch.logsumexp(a * 60, 1)"});
  s.good.back().args[0].grad = false;
  return s;
}

OpSamples Nansum::samples() {
  OpSamples s{.op = "nansum", .dtypes = kAllTypes, .growth = 16};
  for (const Case& k : usual_cases())
    s.good.push_back(reduce_sample(
        k, plain(), [](const Tensor& x, IntList d, bool kd) { return nansum(x, d, kd); }, sum_of,
        torch_call("nansum", k, true)));
  s.bad.push_back(
      {"dim", {real({3})}, [](const Tensors& t) -> Tensors { return {nansum(t[0], {1})}; }, "IndexError", "sum: "});
  return s;
}

}  // namespace deft
