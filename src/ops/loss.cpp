#include "ops/loss.h"

#include <atomic>
#include <numeric>

#include "base/check.h"
#include "base/note.h"
#include "core/describe.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/norm/cross_entropy.h"
#include "kernels/cpu/norm/pair_loss.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/gather_scatter.h"
#include "ops/norm_common.h"
#include "ops/reduce.h"
#include "ops/reduce_common.h"
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

void check_same_shape(const char* op, const Tensor& x, const Tensor& target) {
  detail::check_defined(x, op);
  detail::check_defined(target, op);
  DEFT_CHECK(x.sizes() == target.sizes(), ShapeError, "{}: the input has shape {}, the target {}; they must match", op,
             to_string(x.sizes()), to_string(target.sizes()));
  DEFT_CHECK(is_floating(x.dtype()), DTypeError, "{}: needs a floating input, found {}", op, describe(x.meta()));
}

void warn_of_broadcasting(const char* op, const Tensor& x, const Tensor& target) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  print_note(
      "deft: {}: a target of shape {} is broadcast with an input of shape {}, which is rarely meant; "
      "give both one shape (said once)\n",
      op, to_string(target.sizes()), to_string(x.sizes()));
}

// Input and target of one shape. Others are broadcast, and the first time it is said.
struct BroadcastPair {
  Tensor x, target;
  BroadcastPair(const char* op, const Tensor& a, const Tensor& b, bool warns = true) : x(a), target(b) {
    detail::check_defined(a, op);
    detail::check_defined(b, op);
    if (!(a.sizes() == b.sizes())) {
      Shape both = broadcast_shapes(a.sizes(), b.sizes(), op);
      if (warns) warn_of_broadcasting(op, a, b);
      x = a.expand(both);
      target = b.expand(both);
    }
    check_same_shape(op, x, target);
  }
};

// f16 and bf16 as f32: small constants vanish in them.
Tensor widened(const Tensor& x) { return x.element_size() < 4 ? x.to(DType::f32) : x; }

// Losses made of other ops are f32 under autocast, like those that are ops of their own.
Tensor ranged(const Tensor& x) {
  bool low = context().bits & kAutocast && is_floating(x.dtype()) && x.element_size() < 4;
  return low ? x.to(DType::f32) : x;
}
Tensor narrowed(const Tensor& loss, DType dtype) { return context().bits & kAutocast ? loss : loss.to(dtype); }

// Each number of its own.
Tensor pair_losses(const PairLoss::Params& p, const Tensor& x, const Tensor& target) {
  switch (p.kind) {
    case PairLoss::Kind::squared:
      return square(x - target);
    case PairLoss::Kind::absolute:
      return abs(x - target);
    case PairLoss::Kind::huber:
      return huber(x - target, p.width, p.scale);
    default:
      return (1.0 - target) * x - log_sigmoid(x);
  }
}

bool is_one_pass(const PairLoss::Params& p, const Tensor& x, const Tensor& target) {
  bool same = x.device().is_cpu() && target.device().is_cpu() && x.dtype() == target.dtype();
  return same && (p.kind != PairLoss::Kind::logistic || !target.requires_grad());
}

Tensor pair_loss(PairLoss::Params p, const Tensor& x, const Tensor& target, Reduction reduction, Site site) {
  p.mean = reduction == Reduction::mean;
  if (reduction != Reduction::none && is_one_pass(p, x, target)) return call<PairLoss>(site, p, x, target);
  return reduced(pair_losses(p, ranged(x), ranged(target)), reduction);
}

// What pair_loss() gives, bit by bit, keeping the difference instead of both inputs: those may be written in place
// before backward.
Tensor l1_of_difference(const Tensor& x, const Tensor& target, Reduction reduction, const Site& site) {
  constexpr PairLoss::Params kAbsolute{PairLoss::Kind::absolute};
  if (reduction == Reduction::none || !is_one_pass(kAbsolute, x, target))
    return pair_loss(kAbsolute, x, target, reduction, site);
  Tensor difference = widened(x) - widened(target);
  return narrowed(pair_loss(kAbsolute, difference, zeros_like(difference), reduction, site), x.dtype());
}

// Both of one memory order; x is as it is where it is dense.
struct PairInputs {
  Tensor x, target;
  PairInputs(const Tensor& a, const Tensor& b)
      : x(reduction::laid_out_as(a, reduction::same_layout(a.meta()))), target(reduction::laid_out_as(b, x.meta())) {}
  cpu::PairLossCall call(const PairLoss::Params& p) const {
    return {static_cast<cpu::PairLossKind>(p.kind),
            x.dtype(),
            x.numel(),
            x.data_ptr(),
            target.data_ptr(),
            p.width,
            p.scale};
  }
};

}  // namespace

namespace {

void check_same(const Meta& x, const Meta& target) {
  DEFT_CHECK(x.sizes == target.sizes && x.dtype == target.dtype, ShapeError,
             "pair_loss: the input is {}, the target {}; they must match", describe(x), describe(target));
}

}  // namespace

Meta PairLoss::infer(const Meta& x, const Meta& target, const Params&) {
  check_same(x, target);
  return Meta::dense({}, x.dtype, x.device);
}
void PairLoss::cpu(KernelCall& c) {
  const Params& p = c.params<PairLoss>();
  PairInputs in(c.in(0), c.in(1));
  double sum = cpu::pair_loss(in.call(p));
  if (p.mean) sum /= static_cast<double>(in.x.numel());
  cpu::convert(&sum, DType::f64, c.out().data_ptr(), c.out().dtype(), 1);
}
void PairLoss::vjp(VjpContext& c) {
  const Params& p = c.params<PairLoss>();
  Tensor dx = call<PairLossBackward>(c.node.site, p, c.grad(), c.saved_input(0), c.saved_input(1));
  if (c.needs(0)) c.grad_in(0) = dx;
  if (c.needs(1)) c.grad_in(1) = -dx;  // not of logistic losses: is_one_pass()
}

Meta PairLossBackward::infer(const Meta& g, const Meta& x, const Meta& target, const Params&) {
  check_same(x, target);
  DEFT_CHECK(g.numel == 1, ShapeError, "pair_loss_backward: the gradient is {}, expected one number", describe(g));
  return reduction::same_layout(x);
}
void PairLossBackward::cpu(KernelCall& c) {
  const Params& p = c.params<PairLossBackward>();
  PairInputs in(c.in(1), c.in(2));
  double g = 0;
  cpu::convert(c.in(0).data_ptr(), c.in(0).dtype(), &g, DType::f64, 1);
  if (p.mean) g /= static_cast<double>(in.x.numel());
  cpu::pair_loss_backward(in.call(p), g, c.out().data_ptr());
}
void PairLossBackward::vjp(VjpContext& c) {
  const Params& p = c.params<PairLossBackward>();
  reduction::vjp_through(c, 3, [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    Tensor x = in[1].requires_grad() ? in[1] : in[1].detach().requires_grad_();
    Tensor loss = reduced(pair_losses(p, x, in[2]), p.mean ? Reduction::mean : Reduction::sum);
    return grad({loss}, {x}, {in[0]}, {.create_graph = true});
  });
}

Tensor mse_loss(const Tensor& input, const Tensor& given, Reduction reduction, Site site) {
  SiteScope scope(site);
  auto [x, target] = BroadcastPair("mse_loss", input, given);
  return pair_loss({PairLoss::Kind::squared}, x, target, reduction, site);
}

Tensor l1_loss(const Tensor& input, const Tensor& given, Reduction reduction, Site site) {
  SiteScope scope(site);
  auto [x, target] = BroadcastPair("l1_loss", input, given);
  if (is_grad_enabled() && (x.requires_grad() || target.requires_grad()))
    return l1_of_difference(x, target, reduction, site);
  return pair_loss({PairLoss::Kind::absolute}, x, target, reduction, site);
}

Tensor huber_loss(const Tensor& input, const Tensor& given, Reduction reduction, double delta, Site site) {
  SiteScope scope(site);
  auto [x, target] = BroadcastPair("huber_loss", input, given);
  DEFT_CHECK(delta > 0, ValueError, "huber_loss: delta must be positive, found {}", delta);
  return pair_loss({.kind = PairLoss::Kind::huber, .width = delta}, x, target, reduction, site);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& given, Reduction reduction, double beta, Site site) {
  SiteScope scope(site);
  auto [x, target] = BroadcastPair("smooth_l1_loss", input, given);
  DEFT_CHECK(beta >= 0, ValueError, "smooth_l1_loss: beta must not be negative, found {}", beta);
  if (beta == 0) return l1_loss(x, target, reduction);
  return pair_loss({.kind = PairLoss::Kind::huber, .width = beta, .scale = 1 / beta}, x, target, reduction, site);
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

// Undefined where no element is near 0 or 1. A device is not waited for to find out, and a capture holds any values.
Tensor probability_edges(const Tensor& x) {
  if (!x.device().is_cpu() || context().bits & kCapture) return call<ProbabilityEdges>(Site::current(), {}, x);
  Tensor edge = x * (1.0 - x) <= kEdge;
  if (!any(edge).item<bool>()) return {};
  DEFT_CHECK(!any((x < 0.0) | (x > 1.0)).item<bool>(), ValueError, "{}", ProbabilityEdges::kText);
  return edge;
}

}  // namespace

void ProbabilityEdges::cpu(KernelCall& c) {
  Tensor x = as_dense(c.in());
  auto* edge = static_cast<bool*>(c.out().data_ptr());
  dispatch_floating(x.dtype(), [&]<class T>() {
    using V = std::conditional_t<sizeof(T) == 2, float, T>;
    const T* from = static_cast<const T*>(x.data_ptr());
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto v = static_cast<V>(from[i]);
      DEFT_CHECK(!(v < 0 || v > 1), ValueError, "{}", kText);
      edge[i] = v * (1 - v) <= static_cast<V>(kEdge);
    }
  });
}
Meta ProbabilityEdges::infer(const Meta& x, NoParams&) { return Meta::dense(x.sizes, DType::boolean, x.device); }

Tensor binary_cross_entropy(const Tensor& input, const Tensor& given, const Tensor& weight, Reduction reduction,
                            Site site) {
  SiteScope scope(site);
  check_same_shape("binary_cross_entropy", input, given);
  Tensor x = widened(input), target = ranged(given);
  Tensor edge = probability_edges(x);
  Tensor loss = edge.defined() ? probability_loss_with_edges(x, target, edge) : probability_loss(x, target);
  if (weight.defined()) loss = loss * weight;
  loss = reduced(loss, reduction);
  return x.is_same(input) ? loss : narrowed(loss, input.dtype());
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& given, const Tensor& weight,
                                        const Tensor& pos_weight, Reduction reduction, Site site) {
  SiteScope scope(site);
  check_same_shape("binary_cross_entropy_with_logits", input, given);
  if (!weight.defined() && !pos_weight.defined())
    return pair_loss({PairLoss::Kind::logistic}, input, given, reduction, site);
  Tensor x = ranged(input), target = ranged(given);
  // (t - 1) x + w log_sigmoid(x), where w = 1 + (pos_weight - 1) t. Its sign is changed last, where it is one number.
  Tensor soft = log_sigmoid(x);
  if (pos_weight.defined()) soft = soft * ((pos_weight - 1.0) * target + 1.0);
  Tensor negative = (target - 1.0) * x + soft;
  if (weight.defined()) negative = negative * weight;
  return -reduced(negative, reduction);
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

void check_target(const char* op, const Tensor& x, const Tensor& target, ClassShape c) {
  DEFT_CHECK(target.dtype() == DType::i64, DTypeError, "{}: class numbers are i64, found {}; convert them with to()",
             op, describe(target.meta()));
  Shape want = x.sizes();
  want.erase(c.class_dim);
  DEFT_CHECK(target.sizes() == want, ShapeError, "{}: an input of shape {} needs a target of shape {}, found {}", op,
             to_string(x.sizes()), to_string(want), to_string(target.sizes()));
}

// Class numbers to read at, and which are ignored.
struct Targets {
  Tensor safe, ignored;
};

Targets checked_targets(const char* op, const Tensor& x, const Tensor& target, ClassShape c, int64_t ignore_index,
                        bool cross_entropy) {
  check_target(op, x, target, c);
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

void check_class(int64_t target, int64_t at, int64_t classes, int64_t ignore_index, const char* op) {
  DEFT_CHECK((target >= 0 && target < classes) || target == ignore_index, IndexError,
             "{}: target {} at element {} is not one of the {} classes nor the ignored {}", op, target, at, classes,
             ignore_index);
}

}  // namespace

std::array<Meta, 2> ClassTargets::infer(const Meta& target, const Params&) {
  return {Meta::dense(target.sizes, DType::i64, target.device),
          Meta::dense(target.sizes, DType::boolean, target.device)};
}
void ClassTargets::cpu(KernelCall& c) {
  const Params& p = c.params<ClassTargets>();
  Tensor target = as_dense(c.in());
  const int64_t* t = target.data<const int64_t>();
  int64_t* safe = c.out(0).data<int64_t>();
  bool* ignored = c.out(1).data<bool>();
  for (int64_t i = 0; i < target.numel(); ++i) {
    ignored[i] = t[i] == p.ignore_index;
    check_class(t[i], i, p.classes, p.ignore_index, p.cross_entropy ? "cross_entropy" : "nll_loss");
    safe[i] = ignored[i] ? 0 : t[i];
  }
}

Tensor nll_loss(const Tensor& input, const Tensor& target, const ClassLossOptions& options, Site site) {
  SiteScope scope(site);
  ClassShape c = check_classes("nll_loss", input, target, options.weight);
  Tensor log_probs = ranged(input);
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

Tensor cross_entropy_composed(const Tensor& logits, const Tensor& target, const ClassLossOptions& o, ClassShape c) {
  auto [safe, ignored] = checked_targets("cross_entropy", logits, target, c, o.ignore_index, true);
  Tensor log_probs = log_softmax(logits, c.class_dim);
  Tensor w = element_weights(logits, safe, ignored, o.weight);
  Tensor loss = picked_loss(log_probs, safe, ignored, w, c.class_dim);
  double smooth = o.label_smoothing;
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

bool one_op(const Tensor& logits, const Tensor& target, const Tensor& weight) {
  const Device where = logits.device();
  if (target.device() != where || (!where.is_cpu() && logits.dim() > 2)) return false;
  return !weight.defined() || (weight.device() == where && weight.dtype() == logits.dtype() && !weight.requires_grad());
}

// Autocast wants losses in f32. Sums are in f32 anyway, so that 16-bit logits need no copy in f32 for that.
class WideLoss {
 public:
  WideLoss(const Tensor& logits, const Tensor& weight)
      : is_(context().bits & kAutocast && size_of(logits.dtype()) == 2 && !weight.defined()) {
    if (is_) context().bits &= ~static_cast<uint32_t>(kAutocast);
  }
  ~WideLoss() {
    if (is_) context().bits |= kAutocast;
  }
  WideLoss(const WideLoss&) = delete;
  WideLoss& operator=(const WideLoss&) = delete;
  operator bool() const { return is_; }

 private:
  bool is_;
};

// What both directions give the kernel. The rows of channels-last logits are in the order of the targets too.
struct CrossEntropyInputs {
  Tensor x, target, weight;
  CrossEntropyInputs(const Tensor& logits, const Tensor& classes, const Tensor& weights)
      : x(reduction::laid_out_as(logits, norms::layout_of(logits.meta()))),
        target(as_dense(classes)),
        weight(weights.defined() ? as_dense(weights) : weights) {}
  cpu::CrossEntropyCall call(const CrossEntropyClasses::Params& p) const {
    int d = x.dim() == 1 ? 0 : 1;
    int64_t n = x.sizes()[d], inner = n == 1 ? 1 : x.strides()[d];
    if (!x.meta().contiguous) inner = 1;
    int64_t outer = x.numel() / (n * std::max<int64_t>(1, inner));
    return {{x.dtype(), outer, n, inner}, x.data_ptr(),   target.data<const int64_t>(),
            norms::data_or_null(weight),  p.ignore_index, p.label_smoothing};
  }
};

}  // namespace

std::array<Meta, 3> CrossEntropyClasses::infer(const Meta& x, const Meta& target, const Meta& weight, const Params& p) {
  const int class_dim = x.rank() == 1 ? 0 : 1;
  Shape rows = x.sizes;
  if (x.rank() > 0) rows.erase(class_dim);
  const bool fits = x.rank() > 0 && target.sizes == rows && target.dtype == DType::i64 &&
                    (!weight.defined || (weight.numel == x.sizes[class_dim] && weight.dtype == x.dtype));
  DEFT_CHECK(
      fits, ShapeError,
      "cross_entropy: found logits {}, a target {} and weights {}, expected an i64 for each row and a weight for "
      "each class",
      describe(x), describe(target), weight.defined ? describe(weight) : "of 1");
  DEFT_CHECK(x.device.is_cpu() || x.rank() <= 2, ShapeError,
             "cross_entropy: found logits {}, expected rows of classes on a device; call cross_entropy()", describe(x));
  const DType loss = p.wide_loss && size_of(x.dtype) == 2 ? DType::f32 : x.dtype;
  return {Meta::dense(p.reduction == Reduction::none ? target.sizes : Shape{}, loss, x.device),
          Meta::dense({2, target.numel}, norms::statistics_type(x.dtype), x.device),
          Meta::dense({}, DType::f64, x.device)};
}
void CrossEntropyClasses::cpu(KernelCall& c) {
  const Params& p = c.params<CrossEntropyClasses>();
  CrossEntropyInputs in(c.in(0), c.in(1), c.has(2) ? c.in(2) : Tensor());
  cpu::CrossEntropyCall call = in.call(p);
  int64_t rows = in.target.numel();
  for (int64_t i = 0; i < rows; ++i) check_class(call.target[i], i, call.rows.n, p.ignore_index, info.name);
  std::vector<double> loss(static_cast<size_t>(rows)), weights;
  cpu::cross_entropy(call, loss.data(), c.out(1).data_ptr());
  double total = std::accumulate(loss.begin(), loss.end(), 0.0), weight = 0;
  if (in.weight.defined()) {
    weights.resize(static_cast<size_t>(call.rows.n));
    cpu::convert(call.weight, in.weight.dtype(), weights.data(), DType::f64, weights.size());
  }
  for (int64_t i = 0; i < rows; ++i) {
    if (call.target[i] == p.ignore_index) continue;
    weight += weights.empty() ? 1 : weights[static_cast<size_t>(call.target[i])];
  }
  *c.out(2).data<double>() = weight;
  if (p.reduction == Reduction::mean) total /= weight;
  bool each = p.reduction == Reduction::none;
  cpu::convert(each ? loss.data() : &total, DType::f64, c.out(0).data_ptr(), c.out(0).dtype(), each ? loss.size() : 1);
}
void CrossEntropyClasses::vjp(VjpContext& c) {
  if (!c.needs(0) || !c.grad(0).defined()) return;
  Tensor weight;
  if (norms::has_saved_input(c, 2)) weight = c.saved_input(2);
  c.grad_in(0) = call<CrossEntropyBackward>(c.node.site, c.params<CrossEntropyClasses>(), c.grad(0), c.saved_input(0),
                                            c.saved_input(1), weight, c.saved_output(1), c.saved_output(2));
}

Meta CrossEntropyBackward::infer(const Meta&, const Meta& x, const Meta&, const Meta&, const Meta&, const Meta&,
                                 const Params&) {
  return norms::layout_of(x);
}
void CrossEntropyBackward::cpu(KernelCall& c) {
  const Params& p = c.params<CrossEntropyBackward>();
  CrossEntropyInputs in(c.in(1), c.in(2), c.has(3) ? c.in(3) : Tensor());
  Tensor g = as_dense(c.in(0));
  std::vector<double> scale(static_cast<size_t>(g.numel()));
  cpu::convert(g.data_ptr(), g.dtype(), scale.data(), DType::f64, scale.size());
  if (p.reduction == Reduction::mean) scale[0] /= *c.in(5).data<const double>();
  cpu::cross_entropy_backward(in.call(p), c.in(4).data_ptr(), scale.data(), p.reduction != Reduction::none,
                              c.out().data_ptr());
}
void CrossEntropyBackward::vjp(VjpContext& c) {
  const Params& p = c.params<CrossEntropyBackward>();
  reduction::vjp_through(c, 2, [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    Tensor x = in[1].requires_grad() ? in[1] : in[1].detach().requires_grad_();
    int d = x.dim() == 1 ? 0 : 1;
    Tensor loss = cross_entropy_composed(p.wide_loss ? x.to(in[0].dtype()) : x, in[2],
                                         {in[3], p.ignore_index, p.reduction, p.label_smoothing}, {d, x.sizes()[d]});
    return grad({loss}, {x}, {in[0]}, {.create_graph = true});
  });
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossOptions& o, Site site) {
  SiteScope scope(site);
  ClassShape c = check_classes("cross_entropy", logits, target, o.weight);
  DEFT_CHECK(o.label_smoothing >= 0 && o.label_smoothing <= 1, ValueError,
             "cross_entropy: label_smoothing lies in [0, 1], found {}", o.label_smoothing);
  if (is_floating(target.dtype())) return cross_entropy_probabilities(logits, target, o, c);
  if (!one_op(logits, target, o.weight)) return cross_entropy_composed(logits, target, o, c);
  check_target("cross_entropy", logits, target, c);
  const WideLoss wide(logits, o.weight);
  return call<CrossEntropyClasses>(site, {o.ignore_index, o.label_smoothing, o.reduction, wide}, logits, target,
                                   o.weight)[0];
}

// --- distributions and angles ----------------------------------------------------------------------------------

Tensor kl_div(const Tensor& input, const Tensor& given, KlReduction reduction, bool log_target, Site site) {
  SiteScope scope(site);
  auto [shaped, shaped_target] = BroadcastPair("kl_div", input, given, false);
  Tensor x = ranged(shaped), target = ranged(shaped_target);
  Tensor loss = log_target ? exp(target) * (target - x) : xlogy(target, target) - target * x;
  switch (reduction) {
    case KlReduction::none:
      return loss;
    case KlReduction::sum:
      return sum(loss);
    case KlReduction::batchmean:
      DEFT_CHECK(input.dim() >= 1, ShapeError, "kl_div: batchmean needs a batch dimension, found a 0-d tensor");
      return sum(loss) / static_cast<double>(input.sizes()[0]);
    default:
      return mean(loss);
  }
}

namespace {

// At least eps. As in PyTorch the gradient is that of the length also where it is less; norm() gives 0 at zero vectors,
// where that of sqrt() is infinite.
Tensor length_of(const Tensor& x, int64_t dim, double eps) {
  Tensor length = norm(x, 2, {dim}).clone();
  NoGradGuard no_grad;
  return length.clamp_(eps);
}

}  // namespace

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim, double eps, Site site) {
  SiteScope scope(site);
  detail::check_defined(a, "cosine_similarity");
  detail::check_defined(b, "cosine_similarity");
  DEFT_CHECK(is_floating(a.dtype()) && is_floating(b.dtype()), DTypeError,
             "cosine_similarity: needs floating inputs, found {} and {}", describe(a.meta()), describe(b.meta()));
  Shape both = broadcast_shapes(a.sizes(), b.sizes(), "cosine_similarity");
  int64_t d = normalize_dim(dim, both.size(), "cosine_similarity");
  Tensor x = widened(a.expand(both)), y = widened(b.expand(both));
  Tensor cosine = sum(x * y, {d}) / (length_of(x, d, eps) * length_of(y, d, eps));
  return narrowed(cosine, promote(a.dtype(), b.dtype()));
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
  // Each root by itself: the product of two squared lengths leaves the range of f32 from 4e9 on.
  Tensor lengths = sqrt(sum(x * x, {-1}) + kEps) * sqrt(sum(y * y, {-1}) + kEps);
  Tensor cosine = sum(x * y, {-1}) / lengths;
  DEFT_CHECK(target.sizes() == cosine.sizes(), ShapeError,
             "cosine_embedding_loss: {} pairs need a target of shape {}, found {}", cosine.numel(),
             to_string(cosine.sizes()), to_string(target.sizes()));
  Tensor same = 1.0 - cosine, different = (cosine - margin).clamp(0.0);
  Tensor loss = where(eq(target, 1), same, masked_fill(different, ne(target, -1), 0));
  return narrowed(reduced(loss, reduction), promote(a.dtype(), b.dtype()));
}

}  // namespace deft
