#include "nn/loss.h"

namespace deft::nn {

CrossEntropyLoss::CrossEntropyLoss(const ClassLossOptions& options)
    : weight(buffer("weight", options.weight)), options_(options) {}
Tensor CrossEntropyLoss::forward(const Tensor& x, const Tensor& target, Site site) {
  ClassLossOptions options = options_;
  options.weight = weight;
  return cross_entropy(x, target, options, site);
}

NLLLoss::NLLLoss(const ClassLossOptions& options) : weight(buffer("weight", options.weight)), options_(options) {}
Tensor NLLLoss::forward(const Tensor& x, const Tensor& target, Site site) {
  ClassLossOptions options = options_;
  options.weight = weight;
  return nll_loss(x, target, options, site);
}

Tensor MSELoss::forward(const Tensor& x, const Tensor& target, Site site) {
  return mse_loss(x, target, reduction_, site);
}
Tensor L1Loss::forward(const Tensor& x, const Tensor& target, Site site) {
  return l1_loss(x, target, reduction_, site);
}
Tensor SmoothL1Loss::forward(const Tensor& x, const Tensor& target, Site site) {
  return smooth_l1_loss(x, target, reduction_, beta_, site);
}
Tensor HuberLoss::forward(const Tensor& x, const Tensor& target, Site site) {
  return huber_loss(x, target, reduction_, delta_, site);
}

BCELoss::BCELoss(Tensor w, Reduction reduction) : weight(buffer("weight", std::move(w))), reduction_(reduction) {}
Tensor BCELoss::forward(const Tensor& x, const Tensor& target, Site site) {
  return binary_cross_entropy(x, target, weight, reduction_, site);
}

BCEWithLogitsLoss::BCEWithLogitsLoss(Tensor w, Tensor positive, Reduction reduction)
    : weight(buffer("weight", std::move(w))),
      pos_weight(buffer("pos_weight", std::move(positive))),
      reduction_(reduction) {}
Tensor BCEWithLogitsLoss::forward(const Tensor& x, const Tensor& target, Site site) {
  return binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction_, site);
}

Tensor KLDivLoss::forward(const Tensor& x, const Tensor& target, Site site) {
  return kl_div(x, target, reduction_, log_target_, site);
}
Tensor CosineEmbeddingLoss::forward(const Tensor& a, const Tensor& b, const Tensor& target, Site site) {
  return cosine_embedding_loss(a, b, target, margin_, reduction_, site);
}
Tensor CosineSimilarity::forward(const Tensor& a, const Tensor& b, Site site) {
  return cosine_similarity(a, b, dim_, eps_, site);
}

}  // namespace deft::nn
