#include "ops/norm.h"

#include <algorithm>

#include "samples/reference.h"

namespace deft {

using namespace reference;

namespace {

double at_or(const Tensor& t, int64_t i, double missing) { return t.defined() ? t.data<double>()[i] : missing; }
Arg maybe(bool given, Arg a) { return given ? a : missing_arg(); }
Arg constant(Arg a) {
  a.grad = false;
  return a;
}
std::string python_or_none(bool given, const char* name) { return given ? name : "None"; }

// Mean and (biased) variance of the elements i for which key(i) is k, for all k.
struct Stats {
  Row count, mean, var;
  template <class Key>
  Stats(const Tensor& x, int64_t keys, const Key& key) : count(static_cast<size_t>(keys)), mean(count), var(count) {
    const double* p = x.data<double>();
    auto at = [&](int64_t i) { return static_cast<size_t>(key(i)); };
    std::vector<long double> sum(count.size());
    for (int64_t i = 0; i < x.numel(); ++i) ++count[at(i)], sum[at(i)] += p[i];
    for (size_t k = 0; k < count.size(); ++k) mean[k] = static_cast<double>(sum[k] / count[k]);
    for (int64_t i = 0; i < x.numel(); ++i) var[at(i)] += (p[i] - mean[at(i)]) * (p[i] - mean[at(i)]);
    for (size_t k = 0; k < count.size(); ++k) var[k] /= count[k];
  }
};

// (x - mean) / sqrt(var + eps) * weight + bias; key and channel say which entries belong to element i.
template <class Key, class Channel>
Tensor normalized(const Tensor& x, const Row& mean, const Row& var, double eps, const Tensor& weight,
                  const Tensor& bias, const Key& key, const Channel& channel) {
  Tensor y = zeros(x.sizes(), DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i) {
    auto k = static_cast<size_t>(key(i));
    double v = (x.data<double>()[i] - mean[k]) / std::sqrt(var[k] + eps);
    y.data<double>()[i] = v * at_or(weight, channel(i), 1) + at_or(bias, channel(i), 0);
  }
  return y;
}

int64_t product(const Shape& s, int from = 0) {
  int64_t n = 1;
  for (int i = from; i < s.size(); ++i) n *= s[i];
  return n;
}

Tensor naive_layer_norm(const Tensor& x, const Shape& shape, const Tensor& weight, const Tensor& bias, double eps) {
  int64_t n = product(shape), rows = n ? x.numel() / n : 0;
  auto key = [=](int64_t i) { return i / n; };
  Stats s(x, rows, key);
  return normalized(x, s.mean, s.var, eps, weight, bias, key, [=](int64_t i) { return i % n; });
}
Tensor naive_rms_norm(const Tensor& x, const Shape& shape, const Tensor& weight, double eps) {
  int64_t n = product(shape), rows = n ? x.numel() / n : 0;
  Row zero(static_cast<size_t>(rows)), squares(zero);
  for (int64_t i = 0; i < x.numel(); ++i)
    squares[static_cast<size_t>(i / n)] += x.data<double>()[i] * x.data<double>()[i] / static_cast<double>(n);
  return normalized(
      x, zero, squares, eps, weight, Tensor(), [=](int64_t i) { return i / n; }, [=](int64_t i) { return i % n; });
}
Tensor naive_group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  int64_t c = x.sizes()[1], s = product(x.sizes(), 2), block = c / groups * s;
  auto key = [=](int64_t i) { return i / block; };
  Stats stats(x, x.sizes()[0] * groups, key);
  return normalized(x, stats.mean, stats.var, eps, weight, bias, key, [=](int64_t i) { return i / s % c; });
}

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

}  // namespace

OpSamples LayerNorm::samples() {
  OpSamples s{.op = "layer_norm", .growth = 32, .scale = 4};
  auto add = [&](std::string note, Shape sizes, Shape shape, bool w, bool b, double eps = 1e-5) {
    s.good.push_back({note,
                      {real(sizes), maybe(w, real(shape)), maybe(b, real(shape))},
                      [=](const Tensors& t) -> Tensors { return {layer_norm(t[0], shape, t[1], t[2], eps)}; },
                      [=](const Tensors& t) -> Tensors { return {naive_layer_norm(t[0], shape, t[1], t[2], eps)}; },
                      "torch.nn.functional.layer_norm(a, " + python_list({shape.begin(), shape.end()}) + ", " +
                          python_or_none(w, "b") + ", " + python_or_none(b, "c") + ", " + number(eps) + ")"});
  };
  add("rows", {3, 5}, {5}, true, true);
  add("no bias", {3, 5}, {5}, true, false);
  add("no weight", {3, 5}, {5}, false, true);
  add("neither", {3, 5}, {5}, false, false);
  add("vector", {7}, {7}, true, true);
  add("two dims", {2, 3, 4}, {3, 4}, true, true);
  add("all dims", {3, 4}, {3, 4}, true, true);
  add("three of four", {2, 2, 3, 2}, {2, 3, 2}, true, false);
  add("last of four", {2, 3, 2, 4}, {4}, true, true);
  add("eps=0.1", {3, 5}, {5}, true, true, 0.1);
  add("eps=1 neither", {2, 3}, {3}, false, false, 1);
  add("size one", {4, 1}, {1}, true, true);
  add("no rows", {0, 3}, {3}, true, true);
  add("empty rows", {3, 0}, {0}, true, true);
  add("long rows", {5, 261}, {261}, true, true);
  add("many rows", {131, 9}, {9}, true, true);
  auto bad = [&](std::string note, std::vector<Arg> args, Shape shape, std::string error, std::string text) {
    args.resize(3, missing_arg());
    s.bad.push_back(
        {note, args, [=](const Tensors& t) -> Tensors { return {layer_norm(t[0], shape, t[1], t[2])}; }, error, text});
  };
  bad("other sizes", {real({3, 5})}, {4}, "ShapeError", "layer_norm: normalized_shape");
  bad("too many dims", {real({5})}, {3, 5}, "ShapeError", "layer_norm: normalized_shape");
  bad("no dims", {real({3, 5})}, {}, "ValueError", "is empty");
  bad("0-d", {real({})}, {1}, "ShapeError", "layer_norm: ");
  bad("weight of other size", {real({3, 5}), real({4})}, {5}, "ShapeError", "the weight has shape [4], expected [5]");
  bad("bias of other size", {real({3, 5}), missing_arg(), real({3, 5})}, {5}, "ShapeError", "the bias has shape");
  bad("weight of other type", {real({3, 5}), index_arg({5}, 3)}, {5}, "DTypeError", "the weight is i64");
  return s;
}

OpSamples RmsNorm::samples() {
  OpSamples s{.op = "rms_norm", .growth = 32, .scale = 2};
  auto add = [&](std::string note, Shape sizes, Shape shape, bool w, double eps = 1e-6) {
    std::string dims = python_list([&] {
      std::vector<int64_t> d;
      for (int i = -shape.size(); i < 0; ++i) d.push_back(i);
      return d;
    }());
    s.good.push_back(
        {note,
         {real(sizes), maybe(w, real(shape))},
         [=](const Tensors& t) -> Tensors { return {rms_norm(t[0], shape, t[1], eps)}; },
         [=](const Tensors& t) -> Tensors { return {naive_rms_norm(t[0], shape, t[1], eps)}; },
         "a * torch.rsqrt(a.pow(2).mean(" + dims + ", keepdim=True) + " + number(eps) + ")" + (w ? " * b" : "")});
  };
  add("rows", {3, 5}, {5}, true);
  add("no weight", {3, 5}, {5}, false);
  add("vector", {7}, {7}, true);
  add("two dims", {2, 3, 4}, {3, 4}, true);
  add("all dims", {3, 4}, {3, 4}, false);
  add("last of four", {2, 3, 2, 4}, {4}, true);
  add("eps=0.1", {3, 5}, {5}, true, 0.1);
  add("eps=1", {3, 5}, {5}, true, 1);
  add("no rows", {0, 3}, {3}, true);
  add("empty rows", {3, 0}, {0}, true);
  add("long rows", {5, 261}, {261}, true);
  add("many rows", {131, 9}, {9}, true);
  auto bad = [&](std::string note, std::vector<Arg> args, Shape shape, std::string error, std::string text) {
    args.resize(2, missing_arg());
    s.bad.push_back(
        {note, args, [=](const Tensors& t) -> Tensors { return {rms_norm(t[0], shape, t[1])}; }, error, text});
  };
  bad("other sizes", {real({3, 5})}, {4}, "ShapeError", "rms_norm: normalized_shape");
  bad("no dims", {real({3, 5})}, {}, "ValueError", "is empty");
  bad("weight of other size", {real({3, 5}), real({4})}, {5}, "ShapeError", "the weight has shape");
  bad("weight of other type", {real({3, 5}), boolean_arg({5})}, {5}, "DTypeError", "the weight is bool");
  return s;
}

OpSamples GroupNorm::samples() {
  OpSamples s{.op = "group_norm", .growth = 32, .scale = 4};
  auto add = [&](std::string note, Shape sizes, int64_t groups, bool w, bool b, double eps = 1e-5) {
    Shape c{sizes[1]};
    s.good.push_back({note,
                      {real(sizes), maybe(w, real(c)), maybe(b, real(c))},
                      [=](const Tensors& t) -> Tensors { return {group_norm(t[0], groups, t[1], t[2], eps)}; },
                      [=](const Tensors& t) -> Tensors { return {naive_group_norm(t[0], groups, t[1], t[2], eps)}; },
                      "torch.nn.functional.group_norm(a, " + std::to_string(groups) + ", " + python_or_none(w, "b") +
                          ", " + python_or_none(b, "c") + ", " + number(eps) + ")"});
  };
  add("two groups", {2, 4, 3}, 2, true, true);
  add("one group", {2, 3, 2, 2}, 1, true, true);
  add("group per channel", {2, 3, 5}, 3, true, true);
  add("no bias", {2, 4, 3}, 2, true, false);
  add("no weight", {2, 4, 3}, 2, false, true);
  s.good.back().torch.clear();  // PyTorch 1.13 throws
  add("neither", {2, 4, 3}, 2, false, false);
  add("images", {2, 4, 3, 3}, 2, true, true);
  add("volumes", {1, 2, 2, 3, 2}, 2, true, true);
  add("N,C", {3, 6}, 2, true, true);
  add("eps=0.1", {2, 4, 3}, 2, true, true, 0.1);
  add("one image", {1, 4, 5}, 4, true, true);
  add("no images", {0, 4, 3}, 2, true, true);
  add("no space", {2, 4, 0}, 2, true, true);
  s.good.back().torch.clear();  // PyTorch 1.13 leaves the gradient of the weight unset
  add("large", {3, 6, 17, 11}, 3, true, true);
  add("many channels", {2, 260, 5}, 4, true, true);
  auto bad = [&](std::string note, std::vector<Arg> args, int64_t groups, std::string error, std::string text) {
    args.resize(3, missing_arg());
    s.bad.push_back(
        {note, args, [=](const Tensors& t) -> Tensors { return {group_norm(t[0], groups, t[1], t[2])}; }, error, text});
  };
  bad("groups do not divide", {real({2, 4, 3})}, 3, "ValueError", "cannot be split into 3 groups");
  bad("no groups", {real({2, 4, 3})}, 0, "ValueError", "cannot be split");
  bad("vector", {real({4})}, 2, "ShapeError", "group_norm: the input has shape [4]");
  bad("one value per group", {real({1, 2, 1})}, 2, "ValueError", "one value per group");
  bad("weight of other size", {real({2, 4, 3}), real({2})}, 2, "ShapeError", "the weight has shape [2], expected [4]");
  bad("bias of other size", {real({2, 4, 3}), missing_arg(), real({3})}, 2, "ShapeError", "the bias has shape");
  bad("weight of other type", {real({2, 4, 3}), index_arg({4}, 3)}, 2, "DTypeError", "the weight is i64");
  return s;
}

namespace {

// A call f(inputs, mean, var) on copies of the running statistics (inputs 3 and 4).
template <class F>
Sample running_sample(std::string note, std::vector<Arg> args, const F& f, SampleFn expect, std::string torch) {
  return {note, args,
          [=](const Tensors& t) -> Tensors {
            Tensor mean = t[3].defined() ? t[3].clone() : Tensor(), var = t[4].defined() ? t[4].clone() : Tensor();
            return {f(t, mean, var)};
          },
          [=](const Tensors& t) -> Tensors { return {expect(t)[0]}; }, torch};
}
// The same for what the call leaves in the statistics. It has no gradient, so neither have the inputs.
template <class F>
Sample statistics_sample(std::string note, std::vector<Arg> args, const F& f, SampleFn expect) {
  for (Arg& a : args) a.grad = false;
  return {note + " statistics", args,
          [=](const Tensors& t) -> Tensors {
            Tensor mean = t[3].clone(), var = t[4].clone();
            f(t, mean, var);
            return {mean, var};
          },
          [=](const Tensors& t) -> Tensors {
            Tensors all = expect(t);
            return {all[1], all[2]};
          }};
}

Tensors naive_batch_norm(const Tensors& t, bool training, double momentum, double eps) {
  const Tensor& x = t[0];
  int64_t c = x.sizes()[1], s = product(x.sizes(), 2);
  auto channel = [=](int64_t i) { return i / s % c; };
  Stats stats(x, c, channel);
  Tensor mean = t[3].defined() ? t[3].clone() : Tensor(), var = t[4].defined() ? t[4].clone() : Tensor();
  if (!training)
    for (int64_t k = 0; k < c; ++k) {
      stats.mean[static_cast<size_t>(k)] = mean.data<double>()[k];
      stats.var[static_cast<size_t>(k)] = var.data<double>()[k];
    }
  Tensor y = normalized(x, stats.mean, stats.var, eps, t[1], t[2], channel, channel);
  if (!mean.defined()) return {y};
  for (int64_t k = 0; training && x.numel() && k < c; ++k) {
    auto at = static_cast<size_t>(k);
    double unbiased = stats.var[at] * stats.count[at] / (stats.count[at] - 1);
    mean.data<double>()[k] = (1 - momentum) * mean.data<double>()[k] + momentum * stats.mean[at];
    var.data<double>()[k] = (1 - momentum) * var.data<double>()[k] + momentum * unbiased;
  }
  return {y, mean, var};
}

// Instance norm moves the running statistics by the average over the images.
Tensors naive_instance_norm(const Tensors& t, bool use_input, double momentum, double eps) {
  if (!use_input) return naive_batch_norm(t, false, momentum, eps);
  const Tensor& x = t[0];
  int64_t n = x.sizes()[0], c = x.sizes()[1], s = product(x.sizes(), 2);
  auto key = [=](int64_t i) { return i / s; };
  Stats stats(x, n * c, key);
  Tensor y = normalized(x, stats.mean, stats.var, eps, t[1], t[2], key, [=](int64_t i) { return i / s % c; });
  if (!t[3].defined()) return {y};
  Tensor mean = t[3].clone(), var = t[4].clone();
  for (int64_t k = 0; k < c; ++k) {
    double m = 0, v = 0;
    for (int64_t i = 0; i < n; ++i) {
      auto at = static_cast<size_t>(i * c + k);
      m += stats.mean[at] / static_cast<double>(n);
      v += stats.var[at] * stats.count[at] / (stats.count[at] - 1) / static_cast<double>(n);
    }
    mean.data<double>()[k] += momentum * (m - mean.data<double>()[k]);
    var.data<double>()[k] += momentum * (v - var.data<double>()[k]);
  }
  return {y, mean, var};
}

std::vector<Arg> norm_args(Shape sizes, bool w, bool b, bool running) {
  Shape c{sizes[1]};
  return {real(sizes), maybe(w, real(c)), maybe(b, real(c)), maybe(running, constant(real(c))),
          maybe(running, constant(real(c, 0.5, 2)))};
}

}  // namespace

OpSamples BatchNorm::samples() {
  OpSamples s{.op = "batch_norm", .growth = 32, .scale = 4};
  auto add = [&](std::string note, Shape sizes, bool training, bool w, bool b, bool running, double momentum = 0.1,
                 double eps = 1e-5) {
    std::string torch = "torch.nn.functional.batch_norm(a, ";
    torch += running ? "d.clone(), e.clone(), " : "None, None, ";
    torch += python_or_none(w, "b") + ", " + python_or_none(b, "c") + (training ? ", True, " : ", False, ");
    torch += number(momentum) + ", " + number(eps) + ")";
    auto args = norm_args(sizes, w, b, running);
    auto call = [=](const Tensors& t, Tensor& mean, Tensor& var) {
      return batch_norm(t[0], mean, var, t[1], t[2], training, momentum, eps);
    };
    auto expect = [=](const Tensors& t) { return naive_batch_norm(t, training, momentum, eps); };
    s.good.push_back(running_sample(note, args, call, expect, torch));
    if (running) s.good.push_back(statistics_sample(note, args, call, expect));
  };
  add("N,C training", {6, 3}, true, true, true, true);
  add("N,C,L training", {3, 2, 4}, true, true, true, true);
  add("images training", {2, 3, 2, 3}, true, true, true, true);
  add("volumes training", {2, 2, 2, 2, 3}, true, true, true, true);
  add("N,C eval", {4, 3}, false, true, true, true);
  add("images eval", {2, 3, 2, 3}, false, true, true, true);
  add("no running statistics", {2, 3, 4}, true, true, true, false);
  add("no bias", {3, 2, 4}, true, true, false, true);
  add("no weight", {3, 2, 4}, true, false, true, true);
  add("neither", {3, 2, 4}, true, false, false, true);
  add("eval neither", {3, 2, 4}, false, false, false, true);
  add("momentum=0.5", {3, 2, 4}, true, true, true, true, 0.5);
  add("momentum=1", {3, 2, 4}, true, true, true, true, 1);
  add("momentum=0", {3, 2, 4}, true, true, true, true, 0);
  add("eps=0.1", {3, 2, 4}, true, true, true, true, 0.1, 0.1);
  add("eval eps=1", {3, 2, 4}, false, true, true, true, 0.1, 1);
  add("one value eval", {1, 3}, false, true, true, true);
  add("one channel", {2, 1, 5}, true, true, true, true);
  add("no images eval", {0, 3, 2}, false, true, true, true);
  add("no images training", {0, 3, 2}, true, true, true, true);
  add("large images", {3, 5, 13, 11}, true, true, true, true);
  add("many rows", {1500, 7}, true, true, true, true);
  add("many channels", {5, 261}, true, true, true, true);
  auto bad = [&](std::string note, std::vector<Arg> args, bool training, std::string error, std::string text) {
    args.resize(5, missing_arg());
    s.bad.push_back({note, args,
                     [=](const Tensors& t) -> Tensors { return {batch_norm(t[0], t[3], t[4], t[1], t[2], training)}; },
                     error, text});
  };
  Arg none = missing_arg();
  bad("one value per channel", {real({1, 3, 1})}, true, "ValueError", "one value per channel (shape [1, 3, 1])");
  bad("eval without statistics", {real({2, 3})}, false, "ValueError", "needs running_mean and running_var");
  bad("only the mean", {real({2, 3}), none, none, real({3})}, true, "ValueError", "only one of running_mean");
  bad("vector", {real({3})}, true, "ShapeError", "batch_norm: the input has shape [3]");
  bad("weight of other size", {real({2, 3}), real({2})}, true, "ShapeError", "the weight has shape [2], expected [3]");
  bad("bias of other size", {real({2, 3}), none, real({1})}, true, "ShapeError", "the bias has shape");
  bad("mean of other size", {real({2, 3}), none, none, real({2}), real({3})}, true, "ShapeError",
      "running_mean has shape [2]");
  bad("variance of other size", {real({2, 3}), none, none, real({3}), real({1})}, true, "ShapeError",
      "running_var has shape");
  bad("mean of other type", {real({2, 3}), none, none, index_arg({3}, 2), real({3})}, true, "DTypeError",
      "running_mean is i64");
  bad("weight of other type", {real({2, 3}), index_arg({3}, 2)}, true, "DTypeError", "the weight is i64");
  return s;
}

OpSamples InstanceNorm::samples() {
  OpSamples s{.op = "instance_norm", .growth = 32, .scale = 4};
  auto add = [&](std::string note, Shape sizes, bool use_input, bool w, bool b, bool running, double momentum = 0.1,
                 double eps = 1e-5) {
    std::string torch = "torch.nn.functional.instance_norm(a, ";
    torch += running ? "d.clone(), e.clone(), " : "None, None, ";
    torch += python_or_none(w, "b") + ", " + python_or_none(b, "c") + (use_input ? ", True, " : ", False, ");
    torch += number(momentum) + ", " + number(eps) + ")";
    auto args = norm_args(sizes, w, b, running);
    auto call = [=](const Tensors& t, Tensor& mean, Tensor& var) {
      return instance_norm(t[0], mean, var, t[1], t[2], use_input, momentum, eps);
    };
    auto expect = [=](const Tensors& t) { return naive_instance_norm(t, use_input, momentum, eps); };
    s.good.push_back(running_sample(note, args, call, expect, torch));
    if (running) s.good.push_back(statistics_sample(note, args, call, expect));
  };
  add("N,C,L", {2, 3, 4}, true, true, true, false);
  add("images", {2, 3, 2, 3}, true, true, true, false);
  add("neither", {2, 3, 4}, true, false, false, false);
  add("no bias", {2, 3, 4}, true, true, false, false);
  add("running statistics", {2, 3, 4}, true, true, true, true);
  add("running, momentum=0.5", {3, 2, 5}, true, true, true, true, 0.5);
  add("running, no weight", {3, 2, 2, 3}, true, false, false, true);
  add("statistics given", {2, 3, 4}, false, true, true, true);
  add("eps=0.1", {2, 3, 4}, true, true, true, false, 0.1, 0.1);
  add("volumes", {1, 2, 2, 3, 2}, true, true, true, false);
  add("large", {3, 5, 13, 11}, true, true, true, true);
  auto bad = [&](std::string note, std::vector<Arg> args, bool use_input, std::string error, std::string text) {
    args.resize(3, missing_arg());
    s.bad.push_back({note, args,
                     [=](const Tensors& t) -> Tensors { return {instance_norm(t[0], {}, {}, t[1], t[2], use_input)}; },
                     error, text});
  };
  bad("N,C", {real({2, 3})}, true, "ShapeError", "instance_norm: the input has shape [2, 3]");
  bad("one value", {real({2, 3, 1})}, true, "ValueError", "one value per channel");
  bad("no statistics", {real({2, 3, 4})}, false, "ValueError", "needs running_mean");
  bad("weight of other size", {real({2, 3, 4}), real({2})}, true, "ShapeError", "the weight has shape");
  return s;
}

}  // namespace deft
