#include "ops/gather_scatter.h"
#include "samples/loss_common.h"

namespace deft {

using namespace loss_reference;

namespace {

// --- pairs of numbers ------------------------------------------------------------------------------------------

using PairCall = std::function<Tensor(const Tensor&, const Tensor&, Reduction)>;
using Term = double (*)(double x, double t, double option);

// `torch`: the call up to the closing bracket.
void add_pairs(OpSamples& s, const std::string& note, PairCall call, Term term, double option,
               const std::string& torch) {
  auto add = [&](std::string shape_note, Shape sizes, Reduction r) {
    s.good.push_back({shape_note + note + " " + name_of(r),
                      {real(sizes), real(sizes)},
                      [=](const Tensors& t) { return Tensors{call(t[0], t[1], r)}; },
                      [=](const Tensors& t) {
                        Values v;
                        for (int64_t i = 0; i < t[0].numel(); ++i) v.push_back(term(at(t[0], i), at(t[1], i), option));
                        return reduced_values(v, sizes, r);
                      },
                      torch + ", " + python(r) + ")"});
  };
  for (Reduction r : kReductions) {
    add("matrix", {5, 7}, r);
    add("0-d", {}, r);
    add("empty", {0, 3}, r);
    add("image", {2, 3, 4, 2}, r);
  }
  add("size one", {1, 1}, Reduction::mean);
  add("vector", {13}, Reduction::none);
  add("long", {3, 700}, Reduction::mean);
}

void add_bad_pairs(OpSamples& s, const std::string& op, PairCall call) {
  auto bad = [&](std::string note, std::vector<Arg> args, SampleFn f, std::string error, std::string text) {
    s.bad.push_back({note, std::move(args), std::move(f), error, text});
  };
  SampleFn plain = [=](const Tensors& t) { return Tensors{call(t[0], t[1], Reduction::mean)}; };
  bad("shapes differ", {real({2, 3}), real({3, 2})}, plain, "ShapeError", "[3, 2]");
  bad(
      "integers", {real({2, 3}), real({2, 3})},
      [=](const Tensors& t) { return Tensors{call(t[0].to(DType::i64), t[1], Reduction::mean)}; }, "DTypeError",
      op + ": needs a floating input");
  bad("no input", {missing_arg(), real({2})}, plain, "ValueError", "undefined");
  bad("no target", {real({2}), missing_arg()}, plain, "ValueError", "undefined");
}

}  // namespace

// By the losses that are made of it on the CPU; the rest is in their samples.
OpSamples PairLoss::samples() {
  OpSamples s{.op = "pair_loss", .growth = 64};
  struct Case {
    const char* note;
    bool target_grad;
    Reduction reduction;
    Tensor (*loss)(const Tensor& x, const Tensor& target);
    Term term;
  };
  const Case cases[] = {
      {"squared", true, Reduction::mean, [](const Tensor& x, const Tensor& t) { return mse_loss(x, t); },
       [](double x, double t, double) { return (x - t) * (x - t); }},
      {"absolute sum", true, Reduction::sum,
       [](const Tensor& x, const Tensor& t) { return l1_loss(x, t, Reduction::sum); },
       [](double x, double t, double) { return std::fabs(x - t); }},
      {"huber", true, Reduction::mean,
       [](const Tensor& x, const Tensor& t) { return smooth_l1_loss(x, t, Reduction::mean, 0.5); },
       [](double x, double t, double) {
         double d = std::fabs(x - t);
         return d <= 0.5 ? d * d : d - 0.25;
       }},
      {"logistic", false, Reduction::mean,
       [](const Tensor& x, const Tensor& t) { return binary_cross_entropy_with_logits(x, t); },
       [](double x, double t, double) { return x * (1 - t) + std::log1p(std::exp(-x)); }}};
  for (const Case& c : cases)
    for (Shape sizes : {Shape{3, 5}, Shape{2, 3, 4, 3}, Shape{700}})
      s.good.push_back({c.note + (" " + std::to_string(sizes.size())) + "-d",
                        {real(sizes), c.target_grad ? real(sizes) : constant(real(sizes))},
                        [loss = c.loss](const Tensors& t) { return Tensors{loss(t[0], t[1])}; },
                        [c, sizes](const Tensors& t) {
                          Values v;
                          for (int64_t i = 0; i < t[0].numel(); ++i) v.push_back(c.term(at(t[0], i), at(t[1], i), 0));
                          return reduced_values(v, sizes, c.reduction);
                        }});
  s.bad.push_back({"shapes differ",
                   {real({2, 3}), real({3, 2})},
                   [](const Tensors& t) { return Tensors{call<PairLoss>(Site::current(), {}, t[0], t[1])}; },
                   "ShapeError",
                   "pair_loss: the input is"});
  const auto backward = [](const Tensors& t) {
    return Tensors{call<PairLossBackward>(Site::current(), {}, t[0], t[1], t[2])};
  };
  s.bad.push_back({"backward, shapes differ",
                   {real({}), real({2, 3}), real({3, 2})},
                   backward,
                   "ShapeError",
                   "pair_loss: the input is"});
  s.bad.push_back({"backward, gradients for each",
                   {real({2, 3}), real({2, 3}), real({2, 3})},
                   backward,
                   "ShapeError",
                   "pair_loss_backward: the gradient is"});
  return s;
}

OpSamples MseLoss::samples() {
  OpSamples s{.op = "mse_loss", .growth = 16};
  PairCall call = [](const Tensor& x, const Tensor& t, Reduction r) { return mse_loss(x, t, r); };
  add_pairs(
      s, "", call, [](double x, double t, double) { return (x - t) * (x - t); }, 0, "F.mse_loss(a, b");
  add_bad_pairs(s, "mse_loss", call);
  return s;
}

OpSamples L1Loss::samples() {
  OpSamples s{.op = "l1_loss", .growth = 16};
  PairCall call = [](const Tensor& x, const Tensor& t, Reduction r) { return l1_loss(x, t, r); };
  add_pairs(
      s, "", call, [](double x, double t, double) { return std::fabs(x - t); }, 0, "F.l1_loss(a, b");
  add_bad_pairs(s, "l1_loss", call);
  return s;
}

OpSamples SmoothL1Loss::samples() {
  OpSamples s{.op = "smooth_l1_loss", .growth = 16};
  auto with = [](double beta) -> PairCall {
    return [beta](const Tensor& x, const Tensor& t, Reduction r) { return smooth_l1_loss(x, t, r, beta); };
  };
  Term term = [](double x, double t, double beta) {
    double d = std::fabs(x - t);
    return d < beta ? d * d / (2 * beta) : d - beta / 2;
  };
  add_pairs(s, "", with(1), term, 1, "F.smooth_l1_loss(a, b");
  for (double beta : {0.0, 0.3, 2.5})
    add_pairs(s, " beta=" + std::to_string(beta), with(beta), term, beta,
              "F.smooth_l1_loss(a, b, beta=" + std::to_string(beta));
  add_bad_pairs(s, "smooth_l1_loss", with(1));
  for (double beta : {-1.0, static_cast<double>(NAN)})
    s.bad.push_back({"beta " + std::to_string(beta),
                     {real({2}), real({2})},
                     [=](const Tensors& t) { return Tensors{with(beta)(t[0], t[1], Reduction::mean)}; },
                     "ValueError",
                     "beta must not be negative"});
  return s;
}

OpSamples HuberLoss::samples() {
  OpSamples s{.op = "huber_loss", .growth = 16};
  auto with = [](double delta) -> PairCall {
    return [delta](const Tensor& x, const Tensor& t, Reduction r) { return huber_loss(x, t, r, delta); };
  };
  Term term = [](double x, double t, double delta) {
    double d = std::fabs(x - t);
    return d <= delta ? d * d / 2 : delta * (d - delta / 2);
  };
  add_pairs(s, "", with(1), term, 1, "F.huber_loss(a, b");
  for (double delta : {0.3, 2.5})
    add_pairs(s, " delta=" + std::to_string(delta), with(delta), term, delta,
              "F.huber_loss(a, b, delta=" + std::to_string(delta));
  add_bad_pairs(s, "huber_loss", with(1));
  for (double delta : {0.0, -1.0})
    s.bad.push_back({"delta " + std::to_string(delta),
                     {real({2}), real({2})},
                     [=](const Tensors& t) { return Tensors{with(delta)(t[0], t[1], Reduction::mean)}; },
                     "ValueError",
                     "delta must be positive"});
  return s;
}

// --- probabilities and logits ----------------------------------------------------------------------------------

namespace {

double bce_term(double x, double t) {
  return -(t * std::max(std::log(x), -100.0) + (1 - t) * std::max(std::log1p(-x), -100.0));
}
double logits_term(double x, double t, double pos) {
  double softplus = std::max(-x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
  return (1 - t) * x + (1 + (pos - 1) * t) * softplus;
}

// Every value of x becomes 0 or 1, with gradient 0 times that of the loss: finite only if the latter is.
Tensor saturated(const Tensor& x) { return (x > 0.5).to(x.dtype()) + x * 0.0; }

}  // namespace

OpSamples BceLoss::samples() {
  OpSamples s{.op = "binary_cross_entropy", .growth = 16};
  auto add = [&](std::string note, Shape sizes, Arg weight, Reduction r, bool edges = false) {
    std::string x = edges ? "(a > 0.5).to(a) + a * 0" : "a";
    std::string torch = "F.binary_cross_entropy(" + x + ", b, c, " + python(r) + ")";
    s.good.push_back(
        {note + " " + name_of(r),
         {probability(sizes), probability(sizes), constant(weight)},
         [=](const Tensors& t) { return Tensors{binary_cross_entropy(edges ? saturated(t[0]) : t[0], t[1], t[2], r)}; },
         [=](const Tensors& t) {
           Values v;
           for (int64_t i = 0; i < t[0].numel(); ++i) {
             double p = at(t[0], i);
             if (edges) p = p > 0.5;
             v.push_back(bce_term(p, at(t[1], i)) * (t[2].defined() ? t[2].data<double>()[i % t[2].numel()] : 1));
           }
           return reduced_values(v, sizes, r);
         },
         torch});
  };
  for (Reduction r : kReductions) {
    add("matrix", {4, 6}, missing_arg(), r);
    add("0-d", {}, missing_arg(), r);
    add("empty", {0, 2}, missing_arg(), r);
    add("weights", {3, 5}, real({3, 5}, 0.2, 2), r);
    add("weights of columns", {3, 5}, real({5}, 0.2, 2), r);
    add("zeros and ones", {4, 3}, missing_arg(), r, true);
    // The reference's gradient with respect to the target is infinite there.
    s.good.back().args[1].grad = false;
  }
  add("image", {2, 1, 3, 4}, missing_arg(), Reduction::mean);
  add("long", {3, 700}, missing_arg(), Reduction::mean);
  add_bad_pairs(s, "binary_cross_entropy",
                [](const Tensor& x, const Tensor& t, Reduction r) { return binary_cross_entropy(x, t, {}, r); });
  for (auto [low, high] : {std::pair{1.5, 2.0}, std::pair{-2.0, -0.1}})
    s.bad.push_back({"outside",
                     {real({2, 3}, low, high), probability({2, 3})},
                     [](const Tensors& t) { return Tensors{binary_cross_entropy(t[0], t[1])}; },
                     "ValueError",
                     "probabilities in [0, 1]"});
  return s;
}

OpSamples BceLogitsLoss::samples() {
  OpSamples s{.op = "binary_cross_entropy_with_logits", .growth = 16};
  auto add = [&](std::string note, Shape sizes, Arg weight, Arg pos, Reduction r, double range = 3) {
    s.good.push_back(
        {note + " " + name_of(r),
         {real(sizes, -range, range), probability(sizes), constant(weight), constant(pos)},
         [=](const Tensors& t) { return Tensors{binary_cross_entropy_with_logits(t[0], t[1], t[2], t[3], r)}; },
         [=](const Tensors& t) {
           auto cyclic = [](const Tensor& w, int64_t i) { return w.defined() ? w.data<double>()[i % w.numel()] : 1; };
           Values v;
           for (int64_t i = 0; i < t[0].numel(); ++i)
             v.push_back(logits_term(at(t[0], i), at(t[1], i), cyclic(t[3], i)) * cyclic(t[2], i));
           return reduced_values(v, sizes, r);
         },
         "F.binary_cross_entropy_with_logits(a, b, c, pos_weight=d, " + python(r) + ")"});
  };
  Arg none = missing_arg();
  for (Reduction r : kReductions) {
    add("matrix", {4, 6}, none, none, r);
    add("0-d", {}, none, none, r);
    add("empty", {0, 2}, none, none, r);
    add("weights", {3, 5}, real({3, 5}, 0.2, 2), none, r);
    add("weights of columns", {3, 5}, real({5}, 0.2, 2), none, r);
    add("positive weights", {3, 5}, none, real({5}, 0.2, 3), r);
    add("both weights", {2, 3, 4}, real({4}, 0.2, 2), real({3, 4}, 0.2, 3), r);
  }
  add("image", {2, 1, 3, 4}, none, none, Reduction::mean);
  add("large logits", {4, 5}, none, none, Reduction::none, 300);
  s.good.back().args[0].grad = false;
  add("long", {3, 700}, none, none, Reduction::mean);
  add_bad_pairs(s, "binary_cross_entropy_with_logits", [](const Tensor& x, const Tensor& t, Reduction r) {
    return binary_cross_entropy_with_logits(x, t, {}, {}, r);
  });
  return s;
}

// --- distributions and angles ----------------------------------------------------------------------------------

OpSamples KlDiv::samples() {
  OpSamples s{.op = "kl_div", .growth = 16};
  auto add = [&](std::string note, Shape sizes, KlReduction r, bool log_target, bool zeros_too = false) {
    constexpr const char* names[] = {"none", "mean", "sum", "batchmean"};
    std::string name = names[static_cast<int>(r)], b = zeros_too ? "b.masked_fill(b < 0.5, 0)" : "b";
    s.good.push_back(
        {note + (log_target ? " log_target " : " ") + name,
         {real(sizes, -3, 0), log_target ? real(sizes, -3, 0) : probability(sizes)},
         [=](const Tensors& t) {
           return Tensors{kl_div(t[0], zeros_too ? masked_fill(t[1], t[1] < 0.5, 0) : t[1], r, log_target)};
         },
         [=](const Tensors& t) {
           Values v;
           for (int64_t i = 0; i < t[0].numel(); ++i) {
             double x = at(t[0], i), p = at(t[1], i);
             if (zeros_too && p < 0.5) p = 0;
             v.push_back(log_target ? std::exp(p) * (p - x) : p > 0 ? p * (std::log(p) - x) : 0);
           }
           Reduction plain = r == KlReduction::none  ? Reduction::none
                             : r == KlReduction::sum ? Reduction::sum
                                                     : Reduction::mean;
           double count = static_cast<double>(r == KlReduction::batchmean ? sizes[0] : t[0].numel());
           return reduced_values(v, sizes, plain, count);
         },
         "F.kl_div(a, " + b + ", reduction='" + name + "', log_target=" + (log_target ? "True)" : "False)")});
    if (zeros_too) s.good.back().args[1].grad = false;
  };
  for (KlReduction r : {KlReduction::none, KlReduction::mean, KlReduction::sum, KlReduction::batchmean}) {
    for (bool log_target : {false, true}) {
      add("matrix", {4, 5}, r, log_target);
      add("image", {2, 3, 2, 2}, r, log_target);
      add("no rows", {0, 3}, r, log_target);
    }
    add("zeros", {4, 5}, r, false, true);
  }
  add("0-d", {}, KlReduction::mean, false);
  add("vector", {7}, KlReduction::batchmean, false);
  add("long", {3, 700}, KlReduction::mean, true);
  PairCall call = [](const Tensor& x, const Tensor& t, Reduction) { return kl_div(x, t); };
  add_bad_pairs(s, "kl_div", call);
  s.bad.push_back({"batchmean of 0-d",
                   {real({}), real({})},
                   [](const Tensors& t) { return Tensors{kl_div(t[0], t[1], KlReduction::batchmean)}; },
                   "ShapeError",
                   "kl_div: batchmean needs a batch dimension"});
  return s;
}

namespace {

// Element i of a tensor broadcast to `sizes`.
double broadcast_at(const Tensor& t, const Shape& sizes, int64_t flat) {
  int64_t from = 0, step = 1;
  for (int d = sizes.size() - 1, k = t.dim() - 1; k >= 0; --d, --k) {
    from += t.sizes()[k] == 1 ? 0 : flat % sizes[d] * step;
    step *= t.sizes()[k];
    flat /= sizes[d];
  }
  return t.data<double>()[from];
}

// f(sum a b, sum a a, sum b b) along dim d of the common shape.
Tensor naive_angles(const Tensor& a, const Tensor& b, const Shape& sizes, int d,
                    const std::function<double(double, double, double)>& f) {
  Shape out = sizes;
  out.erase(d);
  int64_t step = 1, rows = 1;
  for (int i = d + 1; i < sizes.size(); ++i) step *= sizes[i];
  for (int64_t n : out) rows *= n;
  Values v;
  for (int64_t r = 0; r < rows; ++r) {
    double ab = 0, aa = 0, bb = 0;
    for (int64_t k = 0; k < sizes[d]; ++k) {
      int64_t i = (r / step * sizes[d] + k) * step + r % step;
      double x = broadcast_at(a, sizes, i), y = broadcast_at(b, sizes, i);
      ab += x * y, aa += x * x, bb += y * y;
    }
    v.push_back(f(ab, aa, bb));
  }
  return tensor_of(v, out);
}

}  // namespace

OpSamples CosineSimilarity::samples() {
  OpSamples s{.op = "cosine_similarity", .growth = 32};
  auto add = [&](std::string note, Shape a, Shape b, Shape both, int64_t dim, double eps = 1e-8, bool zero = false) {
    // PyTorch 1.13 differentiates as if eps were not reached; there only results are compared.
    bool exact = eps == 1e-8;
    std::string x = zero ? "a * 0" : exact ? "a" : "a.detach()", y = exact ? "b" : "b.detach()";
    s.good.push_back(
        {note,
         {real(a), real(b)},
         [=](const Tensors& t) { return Tensors{cosine_similarity(zero ? t[0] * 0.0 : t[0], t[1], dim, eps)}; },
         [=](const Tensors& t) {
           int d = static_cast<int>(dim < 0 ? dim + both.size() : dim);
           return Tensors{naive_angles(t[0], t[1], both, d, [=](double ab, double aa, double bb) {
             return zero ? 0 : ab / (std::max(std::sqrt(aa), eps) * std::max(std::sqrt(bb), eps));
           })};
         },
         "F.cosine_similarity(" + x + ", " + y + ", " + std::to_string(dim) + ", " +
             (exact ? "1e-8" : std::to_string(eps)) + ")"});
  };
  add("rows", {4, 5}, {4, 5}, {4, 5}, 1);
  add("columns", {4, 5}, {4, 5}, {4, 5}, 0);
  add("dim=-1", {2, 3, 4}, {2, 3, 4}, {2, 3, 4}, -1);
  add("channels", {2, 3, 2, 4}, {2, 3, 2, 4}, {2, 3, 2, 4}, 1);
  add("vectors", {7}, {7}, {7}, 0);
  add("size one", {3, 1}, {3, 1}, {3, 1}, 1);
  add("one against many", {1, 6}, {4, 6}, {4, 6}, 1);
  add("each with each", {3, 1, 4}, {1, 5, 4}, {3, 5, 4}, 2);
  add("fewer dims", {3, 4}, {4}, {3, 4}, 1);
  add("no rows", {0, 4}, {0, 4}, {0, 4}, 1);
  add("large eps", {3, 4}, {3, 4}, {3, 4}, 1, 30);
  add("eps reached by some", {6, 2}, {6, 2}, {6, 2}, 1, 1.5);
  add("zero vectors", {3, 4}, {3, 4}, {3, 4}, 1, 1e-8, true);
  s.good.back().args[1].grad = false;
  add("long", {3, 700}, {3, 700}, {3, 700}, 1);
  for (Sample& sample : s.good)  // where eps is reached, the gradient is PyTorch's: that of lengths without it
    if (sample.note == "large eps" || sample.note == "eps reached by some")
      for (Arg& arg : sample.args) arg.grad = false;
  auto bad = [&](std::string note, Arg a, Arg b, int64_t dim, std::string error, std::string text) {
    s.bad.push_back(
        {note, {a, b}, [=](const Tensors& t) { return Tensors{cosine_similarity(t[0], t[1], dim)}; }, error, text});
  };
  bad("shapes", real({2, 3}), real({2, 4}), 1, "ShapeError", "cosine_similarity: ");
  bad("dim", real({2, 3}), real({2, 3}), 2, "IndexError", "cosine_similarity: ");
  bad("dim too negative", real({2, 3}), real({2, 3}), -3, "IndexError", "cosine_similarity: ");
  bad("integers", index_arg({2, 3}, 5), real({2, 3}), 1, "DTypeError", "cosine_similarity: needs floating inputs");
  bad("second integers", real({2, 3}), index_arg({2, 3}, 5), 1, "DTypeError",
      "cosine_similarity: needs floating inputs");
  bad("no first", missing_arg(), real({2, 3}), 1, "ValueError", "undefined");
  bad("no second", real({2, 3}), missing_arg(), 1, "ValueError", "undefined");
  return s;
}

OpSamples CosineEmbeddingLoss::samples() {
  OpSamples s{.op = "cosine_embedding_loss", .growth = 32};
  auto add = [&](std::string note, Shape sizes, double margin, Reduction r, bool zero = false) {
    Shape pairs = sizes;
    pairs.erase(sizes.size() - 1);
    std::string x = zero ? "a * 0" : "a";
    // Targets -1, 0 (neither) and 1.
    s.good.push_back(
        {note + " margin=" + std::to_string(margin).substr(0, 4) + " " + name_of(r),
         {real(sizes), real(sizes), {.sizes = pairs, .kind = Arg::Kind::index, .low = -1, .high = 1, .grad = false}},
         [=](const Tensors& t) {
           return Tensors{cosine_embedding_loss(zero ? t[0] * 0.0 : t[0], t[1], t[2], margin, r)};
         },
         [=](const Tensors& t) {
           Tensor cosine = naive_angles(t[0], t[1], sizes, sizes.size() - 1, [=](double ab, double aa, double bb) {
             return zero ? 0 : ab / std::sqrt((aa + 1e-12) * (bb + 1e-12));
           });
           Values v;
           for (int64_t i = 0; i < cosine.numel(); ++i) {
             double c = at(cosine, i);
             int64_t target = t[2].data<int64_t>()[i];
             v.push_back(target == 1 ? 1 - c : target == -1 ? std::max(0.0, c - margin) : 0);
           }
           return reduced_values(v, pairs, r);
         },
         "F.cosine_embedding_loss(" + x + ", b, c, " + std::to_string(margin) + ", " + python(r) + ")"});
  };
  for (Reduction r : kReductions) {
    add("pairs", {9, 4}, 0, r);
    add("pairs", {8, 3}, 0.3, r);
    add("pairs", {8, 3}, -0.5, r);
    add("one pair", {5}, 0.1, r);
    add("no pairs", {0, 3}, 0, r);
    add("zero vectors", {4, 3}, -0.2, r, true);
    s.good.back().args[1].grad = false;
  }
  add("long", {7, 300}, 0, Reduction::mean);
  auto bad = [&](std::string note, Arg a, Arg b, Arg target, std::string error, std::string text) {
    s.bad.push_back({note,
                     {a, b, target},
                     [](const Tensors& t) { return Tensors{cosine_embedding_loss(t[0], t[1], t[2])}; },
                     error,
                     text});
  };
  bad("rank", real({2, 3, 4}), real({2, 3, 4}), real({2, 3}), "ShapeError",
      "cosine_embedding_loss: needs [N, D] or [D]");
  bad("0-d", real({}), real({}), real({}), "ShapeError", "cosine_embedding_loss: needs [N, D] or [D]");
  bad("ranks differ", real({2, 3}), real({3}), real({2}), "ShapeError", "differ in rank");
  bad("target", real({2, 3}), real({2, 3}), real({3}), "ShapeError", "2 pairs need a target of shape [2], found [3]");
  bad("lengths", real({2, 3}), real({2, 4}), real({2}), "ShapeError", "");
  bad("integers", real({2, 3}), index_arg({2, 3}, 4), real({2}), "DTypeError",
      "cosine_embedding_loss: needs floating inputs");
  bad("no first", missing_arg(), real({2, 3}), real({2}), "ValueError", "undefined");
  bad("no second", real({2, 3}), missing_arg(), real({2}), "ValueError", "undefined");
  bad("no target", real({2, 3}), real({2, 3}), missing_arg(), "ValueError", "undefined");
  return s;
}

}  // namespace deft
