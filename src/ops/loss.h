// Losses, as in PyTorch. Compositions of other ops: gradients and double backward come from those. On the CPU
// cross_entropy with class numbers and the mean or sum of a loss of pairs are one op each.
#pragma once

#include <array>
#include <optional>

#include "core/op.h"

namespace deft {

struct OpSamples;

enum class Reduction : uint8_t { none, mean, sum };

#define DEFT_LOSS(Type, text)                   \
  struct Type {                                 \
    static constexpr OpInfo info{.name = text}; \
    static OpSamples samples();                 \
  };
DEFT_LOSS(MseLoss, "mse_loss")
DEFT_LOSS(L1Loss, "l1_loss")
DEFT_LOSS(SmoothL1Loss, "smooth_l1_loss")
DEFT_LOSS(HuberLoss, "huber_loss")
DEFT_LOSS(BceLoss, "binary_cross_entropy")
DEFT_LOSS(BceLogitsLoss, "binary_cross_entropy_with_logits")
DEFT_LOSS(NllLoss, "nll_loss")
DEFT_LOSS(CrossEntropy, "cross_entropy")
DEFT_LOSS(KlDiv, "kl_div")
DEFT_LOSS(CosineSimilarity, "cosine_similarity")
DEFT_LOSS(CosineEmbeddingLoss, "cosine_embedding_loss")
#undef DEFT_LOSS

// (x, target) -> the mean or sum of a loss of pairs, in one pass over both. Internal: mse_loss and its kin on the CPU.
struct PairLoss {
  enum class Kind : uint8_t { squared, absolute, huber, logistic };  // as in cpu::PairLossKind
  struct Params {
    Kind kind = Kind::squared;
    bool mean = true;
    double width = 1, scale = 1;  // of huber
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{
      .name = "pair_loss", .inputs = 2, .autocast = Autocast::fp32, .uses = {input(0) | input(1), input(0) | input(1)}};
  static Meta infer(const Meta& x, const Meta& target, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static OpSamples samples();
};
// (g, x, target) -> the gradient of x. Internal.
struct PairLossBackward {
  using Params = PairLoss::Params;
  static constexpr OpInfo info{.name = "pair_loss_backward", .inputs = 3, .uses = {0x7, 0x7, 0x7}};
  static Meta infer(const Meta& g, const Meta& x, const Meta& target, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
};

// Checked class numbers as (numbers that gather() can take, where they are the ignored one). Internal.
struct ClassTargets {
  struct Params {
    int64_t classes = 0, ignore_index = 0;
    bool cross_entropy = false;  // or nll_loss: the name in error messages
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "class_targets", .outputs = 2, .dtypes = only(DType::i64)};
  static constexpr const char* not_differentiable = "its input holds class numbers";
  static std::array<Meta, 2> infer(const Meta& target, const Params& p);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};
// (logits, target, weight) -> (loss, statistics of the rows for the gradient, sum of the weights of the targets in
// f64). Internal: cross_entropy with class numbers, on GPUs where classes are the last dim.
struct CrossEntropyClasses {
  struct Params {
    int64_t ignore_index = -100;
    double label_smoothing = 0;
    Reduction reduction = Reduction::mean;
    bool wide_loss = false;  // f32 from 16-bit logits
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "cross_entropy",
                               .inputs = 3,
                               .outputs = 3,
                               .fusion = Fusion::row_reduce,
                               .autocast = Autocast::fp32,
                               .uses = {input(0) | input(1) | input(2) | output(1) | output(2)}};
  static std::array<Meta, 3> infer(const Meta& x, const Meta& target, const Meta& weight, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);  // classes are the last dim
};
// (g, logits, target, weight, statistics, sum of weights) -> gradient of the logits. Internal.
struct CrossEntropyBackward {
  using Params = CrossEntropyClasses::Params;
  static constexpr OpInfo info{
      .name = "cross_entropy_backward", .inputs = 6, .fusion = Fusion::row_reduce, .uses = {0xf, 0xf}};
  static Meta infer(const Meta& g, const Meta& x, const Meta& target, const Meta& weight, const Meta& statistics,
                    const Meta& weights, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};
// Where probabilities (f32, f64) are so near 0 or 1 that their logarithms are clamped; those outside are errors.
// Internal: on the CPU binary_cross_entropy asks first whether there are any, unless it is captured.
struct ProbabilityEdges {
  static constexpr double kEdge = 1e-12;  // where x (1 - x) is no larger, PyTorch divides by this instead
  static constexpr const char* kText =
      "binary_cross_entropy: inputs are probabilities in [0, 1]; use binary_cross_entropy_with_logits for raw scores";
  static constexpr OpInfo info{.name = "binary_cross_entropy"};
  static constexpr const char* not_differentiable = "its result is a mask";
  static Meta infer(const Meta& x, NoParams&);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                Site site = Site::current());
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
               Site site = Site::current());
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean, double beta = 1,
                      Site site = Site::current());
Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean, double delta = 1,
                  Site site = Site::current());
// x holds probabilities; logarithms are clamped at -100, so that 0 and 1 give finite losses.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                            Reduction reduction = Reduction::mean, Site site = Site::current());
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                                        const Tensor& pos_weight = {}, Reduction reduction = Reduction::mean,
                                        Site site = Site::current());

struct ClassLossOptions {
  Tensor weight = {};  // one per class; undefined: all 1
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;  // cross_entropy only
};
// log_probs [N, C, ...] (or [C]), target i64 [N, ...] (or []).
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const ClassLossOptions& options = {},
                Site site = Site::current());
// Logits with class numbers (i64), or with probabilities of the logits' shape.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossOptions& options = {},
                     Site site = Site::current());

// Pointwise target (log target - x), where x holds log probabilities. batchmean divides by the first size.
enum class KlReduction : uint8_t { none, mean, sum, batchmean };
Tensor kl_div(const Tensor& x, const Tensor& target, KlReduction reduction = KlReduction::mean, bool log_target = false,
              Site site = Site::current());
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim = 1, double eps = 1e-8,
                         Site site = Site::current());
// target is 1 or -1 for each pair.
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin = 0,
                             Reduction reduction = Reduction::mean, Site site = Site::current());

}  // namespace deft
