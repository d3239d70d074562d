#include "ops/loss.h"

#include "base/check.h"
#include "core/describe.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/index.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/ternary.h"
#include "ops/unary.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

namespace {

Tensor reduced(const Tensor& loss, Reduction reduction) {
  switch (reduction) {
    case Reduction::none:
      return loss;
    case Reduction::sum:
      return sum(loss);
    default:
      return mean(loss);
  }
}

void check_pair(const char* op, const Tensor& x, const Tensor& target) {
  detail::check_defined(x, op);
  detail::check_defined(target, op);
  DEFT_CHECK(x.sizes() == target.sizes(), ShapeError, "{}: the input has shape {}, the target {}; they must match", op,
             to_string(x.sizes()), to_string(target.sizes()));
  DEFT_CHECK(is_floating(x.dtype()), DTypeError, "{}: needs a floating input, found {}", op, describe(x.meta()));
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction, Site site) {
  SiteScope scope(site);
  check_pair("mse_loss", x, target);
  return reduced(square(x - target), reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, Site site) {
  SiteScope scope(site);
  check_pair("l1_loss", x, target);
  return reduced(abs(x - target), reduction);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction, double delta, Site site) {
  SiteScope scope(site);
  check_pair("huber_loss", x, target);
  DEFT_CHECK(delta > 0, ValueError, "huber_loss: delta must be positive, found {}", delta);
  Tensor diff = x - target, d = abs(diff);
  Tensor near = square(diff) * 0.5, far = (d - 0.5 * delta) * delta;
  return reduced(where(d <= delta, near, far), reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, double beta, Site site) {
  SiteScope scope(site);
  check_pair("smooth_l1_loss", x, target);
  DEFT_CHECK(beta >= 0, ValueError, "smooth_l1_loss: beta must not be negative, found {}", beta);
  if (beta == 0) return l1_loss(x, target, reduction);
  Tensor diff = x - target, d = abs(diff);
  Tensor near = square(diff) * (0.5 / beta), far = d - 0.5 * beta;
  return reduced(where(d < beta, near, far), reduction);
}

namespace {

constexpr double kEdge = ProbabilityEdges::kEdge;

Tensor probability_loss(const Tensor& x, const Tensor& target) {
  return -(target * log(x) + (1.0 - target) * log1p(-x));
}

// Near 0 and 1 the logarithms stop at -100 and the slope is (x - target) / kEdge: finite, where theirs is not.
Tensor probability_loss_with_edges(const Tensor& x, const Tensor& target, const Tensor& edge) {
  Tensor at = x.detach();
  Tensor flat = -(target * log(at).clamp(-100.0) + (1.0 - target) * log1p(-at).clamp(-100.0));
  Tensor slope = (at - target.detach()) * (1 / kEdge);
  return where(edge, flat + (x - at) * slope, probability_loss(masked_fill(x, edge, 0.5), target));
}

// f16 and bf16 as f32: small constants vanish in them.
Tensor widened(const Tensor& x) { return x.element_size() < 4 ? x.to(DType::f32) : x; }

// Undefined where no element is near 0 or 1. A device is not waited for to find out.
Tensor probability_edges(const Tensor& x) {
  if (!x.device().is_cpu()) return call<ProbabilityEdges>(Site::current(), {}, x);
  Tensor edge = x * (1.0 - x) <= kEdge;
  if (!any(edge).item<bool>()) return {};
  DEFT_CHECK(!any((x < 0.0) | (x > 1.0)).item<bool>(), ValueError, "{}", ProbabilityEdges::kText);
  return edge;
}

}  // namespace

Meta ProbabilityEdges::infer(const Meta& x, NoParams&) { return Meta::dense(x.sizes, DType::boolean, x.device); }

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight, Reduction reduction,
                            Site site) {
  SiteScope scope(site);
  check_pair("binary_cross_entropy", input, target);
  Tensor x = widened(input);
  Tensor edge = probability_edges(x);
  Tensor loss = edge.defined() ? probability_loss_with_edges(x, target, edge) : probability_loss(x, target);
  if (weight.defined()) loss = loss * weight;
  loss = reduced(loss, reduction);
  return x.is_same(input) ? loss : loss.to(input.dtype());
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight,
                                        const Tensor& pos_weight, Reduction reduction, Site site) {
  SiteScope scope(site);
  check_pair("binary_cross_entropy_with_logits", x, target);
  // (1 - t) x + w softplus(-x), where w = 1 + (pos_weight - 1) t; softplus never overflows.
  Tensor soft = -log_sigmoid(x);
  if (pos_weight.defined()) soft = soft * ((pos_weight - 1.0) * target + 1.0);
  Tensor loss = (1.0 - target) * x + soft;
  if (weight.defined()) loss = loss * weight;
  return reduced(loss, reduction);
}

// --- class numbers ---------------------------------------------------------------------------------------------

namespace {

struct ClassShape {
  int class_dim;
  int64_t classes;
};

ClassShape check_classes(const char* op, const Tensor& x, const Tensor& target, const Tensor& weight) {
  detail::check_defined(x, op);
  detail::check_defined(target, op);
  DEFT_CHECK(x.dim() >= 1, ShapeError, "{}: needs [N, C, ...] or [C], found shape {}", op, to_string(x.sizes()));
  DEFT_CHECK(is_floating(x.dtype()), DTypeError, "{}: needs a floating input, found {}", op, describe(x.meta()));
  int d = x.dim() == 1 ? 0 : 1;
  int64_t classes = x.sizes()[d];
  DEFT_CHECK(classes > 0, ShapeError, "{}: needs at least one class, found shape {}", op, to_string(x.sizes()));
  if (weight.defined())
    DEFT_CHECK(weight.dim() == 1 && weight.numel() == classes, ShapeError,
               "{}: {} classes need as many weights, found shape {}", op, classes, to_string(weight.sizes()));
  return {d, classes};
}

// Class numbers to read at, and which are ignored.
struct Targets {
  Tensor safe, ignored;
};

Targets checked_targets(const char* op, const Tensor& x, const Tensor& target, ClassShape c, int64_t ignore_index,
                        bool cross_entropy) {
  DEFT_CHECK(target.dtype() == DType::i64, DTypeError, "{}: class numbers are i64, found {}; convert them with to()",
             op, describe(target.meta()));
  Shape want = x.sizes();
  want.erase(c.class_dim);
  DEFT_CHECK(target.sizes() == want, ShapeError, "{}: an input of shape {} needs a target of shape {}, found {}", op,
             to_string(x.sizes()), to_string(want), to_string(target.sizes()));
  auto [safe, ignored] = call<ClassTargets>(Site::current(), {c.classes, ignore_index, cross_entropy}, target);
  return {safe, ignored};
}

// Weight of every element: that of its class, 0 where ignored.
Tensor element_weights(const Tensor& x, const Tensor& safe_target, const Tensor& ignored, const Tensor& weight) {
  Tensor w = weight.defined() ? take(weight, safe_target) : ones(safe_target.sizes(), {x.dtype(), x.device()});
  return masked_fill(w, ignored, 0);
}

// -log_probs at the targets, times w.
Tensor picked_loss(const Tensor& log_probs, const Tensor& safe_target, const Tensor& ignored, const Tensor& w,
                   int class_dim) {
  Tensor picked = squeeze(gather(log_probs, class_dim, unsqueeze(safe_target, class_dim)), class_dim);
  // Ignored elements must not let an infinity through: 0 * inf is NaN.
  return -masked_fill(picked, ignored, 0) * w;
}

Tensor class_mean(const Tensor& loss, const Tensor& weights, Reduction reduction) {
  if (reduction == Reduction::mean) return sum(loss) / sum(weights);
  return reduced(loss, reduction);
}

}  // namespace

std::array<Meta, 2> ClassTargets::infer(const Meta& target, const Params&) {
  return {Meta::dense(target.sizes, DType::i64, target.device),
          Meta::dense(target.sizes, DType::boolean, target.device)};
}
void ClassTargets::cpu(KernelCall& c) {
  const Params& p = c.params<ClassTargets>();
  Tensor target = as_dense(c.in());
  const int64_t* t = target.data<int64_t>();
  int64_t* safe = c.out(0).data<int64_t>();
  bool* ignored = c.out(1).data<bool>();
  for (int64_t i = 0; i < target.numel(); ++i) {
    ignored[i] = t[i] == p.ignore_index;
    DEFT_CHECK((t[i] >= 0 && t[i] < p.classes) || ignored[i], IndexError,
               "{}: target {} at element {} is not one of the {} classes nor the ignored {}",
               p.cross_entropy ? "cross_entropy" : "nll_loss", t[i], i, p.classes, p.ignore_index);
    safe[i] = ignored[i] ? 0 : t[i];
  }
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const ClassLossOptions& options, Site site) {
  SiteScope scope(site);
  ClassShape c = check_classes("nll_loss", log_probs, target, options.weight);
  auto [safe, ignored] = checked_targets("nll_loss", log_probs, target, c, options.ignore_index, false);
  Tensor w = element_weights(log_probs, safe, ignored, options.weight);
  return class_mean(picked_loss(log_probs, safe, ignored, w, c.class_dim), w, options.reduction);
}

namespace {

Tensor cross_entropy_probabilities(const Tensor& logits, const Tensor& target, const ClassLossOptions& o,
                                   ClassShape c) {
  DEFT_CHECK(target.sizes() == logits.sizes(), ShapeError,
             "cross_entropy: probabilities of shape {} do not match logits of shape {}", to_string(target.sizes()),
             to_string(logits.sizes()));
  Tensor p = target;
  if (o.label_smoothing > 0) p = p * (1 - o.label_smoothing) + o.label_smoothing / static_cast<double>(c.classes);
  Tensor terms = log_softmax(logits, c.class_dim) * p;
  if (o.weight.defined()) {
    Shape wide;
    for (int i = 0; i < logits.dim(); ++i) wide.push_back(i == c.class_dim ? c.classes : 1);
    terms = terms * o.weight.reshape(wide);
  }
  Tensor loss = -sum(terms, {c.class_dim});
  if (o.reduction != Reduction::mean) return reduced(loss, o.reduction);
  return sum(loss) / static_cast<double>(logits.numel() / c.classes);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossOptions& o, Site site) {
  SiteScope scope(site);
  ClassShape c = check_classes("cross_entropy", logits, target, o.weight);
  double smooth = o.label_smoothing;
  DEFT_CHECK(smooth >= 0 && smooth <= 1, ValueError, "cross_entropy: label_smoothing lies in [0, 1], found {}", smooth);
  if (is_floating(target.dtype())) return cross_entropy_probabilities(logits, target, o, c);
  auto [safe, ignored] = checked_targets("cross_entropy", logits, target, c, o.ignore_index, true);
  Tensor log_probs = log_softmax(logits, c.class_dim);
  Tensor w = element_weights(logits, safe, ignored, o.weight);
  Tensor loss = picked_loss(log_probs, safe, ignored, w, c.class_dim);
  if (smooth > 0) {
    Tensor terms = log_probs;
    if (o.weight.defined()) {
      Shape wide;
      for (int i = 0; i < logits.dim(); ++i) wide.push_back(i == c.class_dim ? c.classes : 1);
      terms = terms * o.weight.reshape(wide);
    }
    Tensor spread = masked_fill(-sum(terms, {c.class_dim}), ignored, 0);
    loss = loss * (1 - smooth) + spread * (smooth / static_cast<double>(c.classes));
  }
  return class_mean(loss, w, o.reduction);
}

// --- distributions and angles ----------------------------------------------------------------------------------

Tensor kl_div(const Tensor& x, const Tensor& target, KlReduction reduction, bool log_target, Site site) {
  SiteScope scope(site);
  check_pair("kl_div", x, target);
  Tensor loss = log_target ? exp(target) * (target - x) : xlogy(target, target) - target * x;
  switch (reduction) {
    case KlReduction::none:
      return loss;
    case KlReduction::sum:
      return sum(loss);
    case KlReduction::batchmean:
      DEFT_CHECK(x.dim() >= 1, ShapeError, "kl_div: batchmean needs a batch dimension, found a 0-d tensor");
      return sum(loss) / static_cast<double>(x.sizes()[0]);
    default:
      return mean(loss);
  }
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim, double eps, Site site) {
  SiteScope scope(site);
  detail::check_defined(a, "cosine_similarity");
  detail::check_defined(b, "cosine_similarity");
  DEFT_CHECK(is_floating(a.dtype()) && is_floating(b.dtype()), DTypeError,
             "cosine_similarity: needs floating inputs, found {} and {}", describe(a.meta()), describe(b.meta()));
  Shape both = broadcast_shapes(a.sizes(), b.sizes(), "cosine_similarity");
  int64_t d = normalize_dim(dim, both.size(), "cosine_similarity");
  Tensor x = widened(a.expand(both)), y = widened(b.expand(both));
  // norm() has a zero gradient at zero vectors, where that of sqrt() is infinite.
  Tensor cosine = sum(x * y, {d}) / (norm(x, 2, {d}).clamp(eps) * norm(y, 2, {d}).clamp(eps));
  return cosine.to(promote(a.dtype(), b.dtype()));
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin, Reduction reduction,
                             Site site) {
  SiteScope scope(site);
  detail::check_defined(a, "cosine_embedding_loss");
  detail::check_defined(b, "cosine_embedding_loss");
  detail::check_defined(target, "cosine_embedding_loss");
  DEFT_CHECK(a.dim() == 1 || a.dim() == 2, ShapeError, "cosine_embedding_loss: needs [N, D] or [D], found shape {}",
             to_string(a.sizes()));
  DEFT_CHECK(a.dim() == b.dim(), ShapeError, "cosine_embedding_loss: shapes {} and {} differ in rank",
             to_string(a.sizes()), to_string(b.sizes()));
  DEFT_CHECK(is_floating(a.dtype()) && is_floating(b.dtype()), DTypeError,
             "cosine_embedding_loss: needs floating inputs, found {} and {}", describe(a.meta()), describe(b.meta()));
  constexpr double kEps = 1e-12;  // as in PyTorch, which adds it to the squared lengths
  Tensor x = widened(a), y = widened(b);
  Tensor lengths = (sum(x * x, {-1}) + kEps) * (sum(y * y, {-1}) + kEps);
  Tensor cosine = sum(x * y, {-1}) / sqrt(lengths);
  DEFT_CHECK(target.sizes() == cosine.sizes(), ShapeError,
             "cosine_embedding_loss: {} pairs need a target of shape {}, found {}", cosine.numel(),
             to_string(cosine.sizes()), to_string(target.sizes()));
  Tensor same = 1.0 - cosine, different = (cosine - margin).clamp(0.0);
  Tensor loss = where(eq(target, 1), same, masked_fill(different, ne(target, -1), 0));
  return reduced(loss, reduction).to(promote(a.dtype(), b.dtype()));
}

}  // namespace deft
