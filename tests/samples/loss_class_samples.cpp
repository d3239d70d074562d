#include "ops/gather_scatter.h"
#include "ops/view.h"
#include "samples/loss_common.h"

namespace deft {

using namespace loss_reference;

namespace {

// Rows of classes of a [N, C, ...] or [C] tensor: element (row, class) is at base(row) + class * step.
struct ClassRows {
  int64_t classes, step, rows;
  Shape sizes;  // of the target
  explicit ClassRows(const Shape& x) : step(1), rows(1), sizes(x) {
    int d = x.size() == 1 ? 0 : 1;
    classes = x[d];
    for (int i = d + 1; i < x.size(); ++i) step *= x[i];
    sizes.erase(d);
    for (int64_t n : sizes) rows *= n;
  }
  int64_t base(int64_t row) const { return row / step * step * classes + row % step; }
  Values row(const Tensor& x, int64_t r) const {
    Values v;
    for (int64_t c = 0; c < classes; ++c) v.push_back(x.data<double>()[base(r) + c * step]);
    return v;
  }
};

Values log_softmax_of(Values v) {
  double most = -HUGE_VAL, sum = 0;
  for (double x : v) most = std::max(most, x);
  for (double x : v) sum += std::exp(x - most);
  for (double& x : v) x -= most + std::log(sum);
  return v;
}

struct ClassSetting {
  Reduction reduction = Reduction::mean;
  int64_t ignore = -100;
  double smoothing = 0;
  bool logits = false;  // cross_entropy
};

double weight_of(const Tensor& w, int64_t c) { return w.defined() ? w.data<double>()[c] : 1; }

Tensors naive_classes(const Tensor& x, const Tensor& target, const Tensor& weight, const ClassSetting& o) {
  ClassRows rows(x.sizes());
  Values losses;
  double count = 0;
  for (int64_t r = 0; r < rows.rows; ++r) {
    int64_t t = target.data<int64_t>()[r];
    if (t == o.ignore) {
      losses.push_back(0);
      continue;
    }
    Values v = rows.row(x, r);
    if (o.logits) v = log_softmax_of(v);
    double spread = 0;
    for (int64_t c = 0; c < rows.classes; ++c) spread -= v[static_cast<size_t>(c)] * weight_of(weight, c);
    double loss = -v[static_cast<size_t>(t)] * weight_of(weight, t);
    if (o.smoothing > 0) loss = (1 - o.smoothing) * loss + o.smoothing / static_cast<double>(rows.classes) * spread;
    losses.push_back(loss);
    count += weight_of(weight, t);
  }
  return reduced_values(losses, rows.sizes, o.reduction, count);
}

Tensors naive_probabilities(const Tensor& x, const Tensor& target, const Tensor& weight, const ClassSetting& o) {
  ClassRows rows(x.sizes());
  Values losses;
  for (int64_t r = 0; r < rows.rows; ++r) {
    Values v = log_softmax_of(rows.row(x, r)), p = rows.row(target, r);
    double loss = 0;
    for (size_t c = 0; c < v.size(); ++c) {
      double q = p[c] * (1 - o.smoothing) + o.smoothing / static_cast<double>(rows.classes);
      loss -= q * v[c] * weight_of(weight, static_cast<int64_t>(c));
    }
    losses.push_back(loss);
  }
  return reduced_values(losses, rows.sizes, o.reduction);
}

Tensor call_classes(const Tensor& x, const Tensor& target, const Tensor& weight, const ClassSetting& o) {
  ClassLossOptions options{
      .weight = weight, .ignore_index = o.ignore, .reduction = o.reduction, .label_smoothing = o.smoothing};
  return o.logits ? cross_entropy(x, target, options) : nll_loss(x, target, options);
}

std::string torch_classes(const std::string& x, const std::string& target, const ClassSetting& o) {
  std::string s = (o.logits ? "F.cross_entropy(" : "F.nll_loss(") + x + ", " + target + ", c, " + python(o.reduction);
  if (o.ignore != -100) s += ", ignore_index=" + std::to_string(o.ignore);
  if (o.smoothing > 0) s += ", label_smoothing=" + std::to_string(o.smoothing);
  return s + ")";
}

Shape without_classes(Shape sizes) {
  sizes.erase(sizes.size() == 1 ? 0 : 1);
  return sizes;
}

void add_classes(OpSamples& s, const std::string& note, Shape sizes, ClassSetting o, bool weighted = false) {
  int64_t classes = sizes[sizes.size() == 1 ? 0 : 1];
  s.good.push_back({note + " " + name_of(o.reduction),
                    {o.logits ? real(sizes) : real(sizes, -3, 0), index_arg(without_classes(sizes), classes),
                     weighted ? constant(real({classes}, 0.2, 2)) : missing_arg()},
                    [=](const Tensors& t) { return Tensors{call_classes(t[0], t[1], t[2], o)}; },
                    [=](const Tensors& t) { return naive_classes(t[0], t[1], t[2], o); },
                    torch_classes("a", "b", o)});
}

// Rows of the ignored class 1 hold -inf everywhere.
Tensor with_infinite_rows(const Tensor& x, const Tensor& target) {
  return masked_fill(x, unsqueeze(target.eq(1), x.dim() == 1 ? 0 : 1), -HUGE_VAL);
}

void add_infinite_rows(OpSamples& s, Shape sizes, ClassSetting o, bool weighted) {
  o.ignore = 1;
  std::string rows = "a.masked_fill((b == 1).unsqueeze(1), -math.inf)";
  add_classes(s, std::string("ignored rows of -inf") + (weighted ? " weighted" : ""), sizes, o, weighted);
  s.good.back().call = [o](const Tensors& t) {
    return Tensors{call_classes(with_infinite_rows(t[0], t[1]), t[1], t[2], o)};
  };
  s.good.back().torch = torch_classes(rows, "b", o);
}

// Targets of class 0 become the ignored number -100.
void add_default_ignored(OpSamples& s, Shape sizes, ClassSetting o) {
  auto mask = [](const Tensor& b) { return masked_fill(b, b.eq(0), -100); };
  add_classes(s, "ignored by default", sizes, o);
  s.good.back().call = [=](const Tensors& t) { return Tensors{call_classes(t[0], mask(t[1]), t[2], o)}; };
  s.good.back().expect = [=](const Tensors& t) { return naive_classes(t[0], mask(t[1]), t[2], o); };
  s.good.back().torch = torch_classes("a", "b.masked_fill(b == 0, -100)", o);
}

void add_class_cases(OpSamples& s, bool logits) {
  for (Reduction r : kReductions) {
    ClassSetting o{.reduction = r, .logits = logits}, ignoring{.reduction = r, .ignore = 1, .logits = logits};
    add_classes(s, "matrix", {6, 4}, o);
    add_classes(s, "one row of classes", {5}, o);
    add_classes(s, "lines", {2, 3, 5}, o);
    add_classes(s, "image", {2, 3, 2, 4}, o);
    add_classes(s, "weights", {7, 4}, o, true);
    add_classes(s, "image weights", {2, 3, 3, 2}, o, true);
    add_classes(s, "ignoring", {9, 3}, ignoring);
    add_classes(s, "ignoring weights", {9, 3}, ignoring, true);
    add_classes(s, "image ignoring", {2, 3, 3, 2}, ignoring);
    add_infinite_rows(s, {12, 3}, ignoring, false);
    add_infinite_rows(s, {3, 4, 2, 3}, ignoring, true);
    add_default_ignored(s, {9, 3}, o);
    add_classes(s, "no rows", {0, 3}, o);
  }
  add_classes(s, "one class", {3, 1}, {.logits = logits});
  add_classes(s, "all ignored", {3, 1}, {.reduction = Reduction::sum, .ignore = 0, .logits = logits});
  add_classes(s, "all ignored", {3, 1}, {.ignore = 0, .logits = logits});
  s.good.back().args[0].grad = false;  // 0 / 0
  add_classes(s, "long", {64, 130}, {.logits = logits});
}

void add_bad_classes(OpSamples& s, const std::string& op, bool logits) {
  auto bad = [&](std::string note, std::vector<Arg> args, std::string error, std::string text) {
    args.resize(3, missing_arg());
    s.bad.push_back(
        {note, args,
         [=](const Tensors& t) { return Tensors{call_classes(t[0], t[1], t[2], {.ignore = 7, .logits = logits})}; },
         error, text});
  };
  Arg beyond{.sizes = {4}, .kind = Arg::Kind::index, .low = 3, .high = 3, .grad = false};
  Arg below{.sizes = {4}, .kind = Arg::Kind::index, .low = -1, .high = -1, .grad = false};
  bad("0-d", {real({}), index_arg({}, 2)}, "ShapeError", op + ": needs [N, C, ...] or [C]");
  bad("no classes", {real({3, 0}), index_arg({3}, 2)}, "ShapeError", "needs at least one class");
  bad("target count", {real({3, 4}), index_arg({4}, 2)}, "ShapeError", "needs a target of shape [3], found [4]");
  bad("target rank", {real({3, 4}), index_arg({3, 1}, 2)}, "ShapeError", op + ": an input of shape [3, 4]");
  bad("target of one row", {real({4}), index_arg({1}, 2)}, "ShapeError", "needs a target of shape []");
  bad("weight count", {real({3, 4}), index_arg({3}, 2), real({3})}, "ShapeError", "4 classes need as many weights");
  bad("weight rank", {real({3, 4}), index_arg({3}, 2), real({1, 4})}, "ShapeError", "4 classes need as many weights");
  bad("target beyond", {real({4, 3}), beyond}, "IndexError", "target 3 at element 0 is not one of the 3 classes");
  bad("target below", {real({4, 3}), below}, "IndexError", "target -1 at element 0");
  bad("target bool", {real({3, 4}), boolean_arg({3})}, "DTypeError", "class numbers are i64");
  bad("integers", {index_arg({3, 4}, 3), index_arg({3}, 2)}, "DTypeError", op + ": needs a floating input");
  bad("no input", {missing_arg(), index_arg({3}, 2)}, "ValueError", "undefined");
  bad("no target", {real({3, 4}), missing_arg()}, "ValueError", "undefined");
}

}  // namespace

OpSamples NllLoss::samples() {
  OpSamples s{.op = "nll_loss", .growth = 16};
  add_class_cases(s, false);
  add_bad_classes(s, "nll_loss", false);
  s.bad.push_back({"probabilities",
                   {real({3, 4}), real({3, 4})},
                   [](const Tensors& t) { return Tensors{nll_loss(t[0], t[1])}; },
                   "DTypeError",
                   "nll_loss: class numbers are i64"});
  return s;
}

OpSamples CrossEntropy::samples() {
  OpSamples s{.op = "cross_entropy", .growth = 16, .scale = 2};
  add_class_cases(s, true);
  auto add_probabilities = [&](const std::string& note, Shape sizes, ClassSetting o, bool weighted = false) {
    int64_t classes = sizes[sizes.size() == 1 ? 0 : 1];
    s.good.push_back({"probabilities " + note + " " + name_of(o.reduction),
                      {real(sizes), probability(sizes), weighted ? constant(real({classes}, 0.2, 2)) : missing_arg()},
                      [=](const Tensors& t) { return Tensors{call_classes(t[0], t[1], t[2], o)}; },
                      [=](const Tensors& t) { return naive_probabilities(t[0], t[1], t[2], o); },
                      torch_classes("a", "b", o)});
  };
  for (Reduction r : kReductions) {
    ClassSetting o{.reduction = r, .logits = true}, smooth{.reduction = r, .smoothing = 0.3, .logits = true};
    ClassSetting both{.reduction = r, .ignore = 1, .smoothing = 0.1, .logits = true};
    add_classes(s, "smoothed", {6, 4}, smooth);
    add_classes(s, "smoothed one row", {5}, smooth);
    add_classes(s, "smoothed image weights", {2, 3, 2, 2}, smooth, true);
    add_classes(s, "smoothed ignoring", {9, 3}, both);
    add_classes(s, "smoothed ignoring weights", {9, 3}, both, true);
    add_probabilities("matrix", {5, 4}, o);
    add_probabilities("one row", {5}, o);
    add_probabilities("image", {2, 3, 2, 3}, o);
    add_probabilities("weights", {4, 5}, o, true);
    add_probabilities("smoothed", {4, 3}, smooth);
    add_probabilities("smoothed image weights", {2, 3, 2, 2}, smooth, true);
  }
  add_classes(s, "smoothed entirely", {4, 3}, {.smoothing = 1, .logits = true});
  add_bad_classes(s, "cross_entropy", true);
  for (double smoothing : {-0.1, 1.1})
    s.bad.push_back(
        {"smoothing " + std::to_string(smoothing),
         {real({3, 4}), index_arg({3}, 4)},
         [=](const Tensors& t) { return Tensors{cross_entropy(t[0], t[1], {.label_smoothing = smoothing})}; },
         "ValueError",
         "label_smoothing lies in [0, 1]"});
  // As plans from files may have it.
  s.bad.push_back({"target of another length",
                   {real({3, 4}), index_arg({2}, 4)},
                   [](const Tensors& t) {
                     return Tensors{call<CrossEntropyClasses>(Site::current(), {}, t[0], t[1], Tensor())[0]};
                   },
                   "ShapeError",
                   "expected an i64 for each row"});
  s.bad.push_back({"probabilities of another shape",
                   {real({3, 4}), real({3})},
                   [](const Tensors& t) { return Tensors{cross_entropy(t[0], t[1])}; },
                   "ShapeError",
                   "do not match logits of shape [3, 4]"});
  return s;
}

}  // namespace deft
