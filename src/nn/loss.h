// Losses as modules: loss(x, target).
#pragma once

#include "nn/module.h"
#include "ops/loss.h"

namespace deft::nn {

// Weights are buffers: they move with the module and are part of its state, as in PyTorch.
class Loss : public Layer {
 public:
  using Layer::forward;
  virtual Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) = 0;
  Tensor operator()(const Tensor& x, const Tensor& target, Site site = Site::current()) {
    return forward(x, target, site);
  }
};

// Logits with class numbers (i64) or probabilities.
class CrossEntropyLoss : public Loss {
 public:
  explicit CrossEntropyLoss(const ClassLossOptions& options = {});
  Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) override;
  Tensor& weight;  // [classes]; undefined: all 1

 private:
  ClassLossOptions options_;
};

// Log probabilities with class numbers.
class NLLLoss : public Loss {
 public:
  explicit NLLLoss(const ClassLossOptions& options = {});
  Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) override;
  Tensor& weight;

 private:
  ClassLossOptions options_;
};

class MSELoss : public Loss {
 public:
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) override;

 private:
  Reduction reduction_;
};

class L1Loss : public Loss {
 public:
  explicit L1Loss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) override;

 private:
  Reduction reduction_;
};

class SmoothL1Loss : public Loss {
 public:
  explicit SmoothL1Loss(Reduction reduction = Reduction::mean, double beta = 1) : reduction_(reduction), beta_(beta) {}
  Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) override;

 private:
  Reduction reduction_;
  double beta_;
};

class HuberLoss : public Loss {
 public:
  explicit HuberLoss(Reduction reduction = Reduction::mean, double delta = 1) : reduction_(reduction), delta_(delta) {}
  Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) override;

 private:
  Reduction reduction_;
  double delta_;
};

// Probabilities; with logits use the next.
class BCELoss : public Loss {
 public:
  explicit BCELoss(Tensor weight = {}, Reduction reduction = Reduction::mean);
  Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) override;
  Tensor& weight;

 private:
  Reduction reduction_;
};

class BCEWithLogitsLoss : public Loss {
 public:
  explicit BCEWithLogitsLoss(Tensor weight = {}, Tensor pos_weight = {}, Reduction reduction = Reduction::mean);
  Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) override;
  Tensor &weight, &pos_weight;

 private:
  Reduction reduction_;
};

class KLDivLoss : public Loss {
 public:
  explicit KLDivLoss(KlReduction reduction = KlReduction::mean, bool log_target = false)
      : reduction_(reduction), log_target_(log_target) {}
  Tensor forward(const Tensor& x, const Tensor& target, Site site = Site::current()) override;

 private:
  KlReduction reduction_;
  bool log_target_;
};

// target is 1 for pairs that belong together and -1 for others.
class CosineEmbeddingLoss : public Layer {
 public:
  explicit CosineEmbeddingLoss(double margin = 0, Reduction reduction = Reduction::mean)
      : margin_(margin), reduction_(reduction) {}
  using Layer::forward;
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& target, Site site = Site::current());
  Tensor operator()(const Tensor& a, const Tensor& b, const Tensor& target, Site site = Site::current()) {
    return forward(a, b, target, site);
  }

 private:
  double margin_;
  Reduction reduction_;
};

class CosineSimilarity : public Layer {
 public:
  explicit CosineSimilarity(int64_t dim = 1, double eps = 1e-8) : dim_(dim), eps_(eps) {}
  using Layer::forward;
  Tensor forward(const Tensor& a, const Tensor& b, Site site = Site::current());
  Tensor operator()(const Tensor& a, const Tensor& b, Site site = Site::current()) { return forward(a, b, site); }

 private:
  int64_t dim_;
  double eps_;
};

}  // namespace deft::nn
