// Matmuls, layers and losses.
#include "bind_op.h"
#include "nn/recurrence.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

void bind_products() {
  bind("matmul(input, other)", kEverywhere, [](const Tensor& a, const Tensor& b, Site s) { return matmul(a, b, s); });
  bind(
      "mm(input, mat2)", kEverywhere, [](const Tensor& a, const Tensor& b, Site s) { return mm(a, b, s); }, "matmul");
  bind(
      "bmm(input, mat2)", kEverywhere, [](const Tensor& a, const Tensor& b, Site s) { return bmm(a, b, s); }, "matmul");
  bind(
      "mv(input, vec)", kEverywhere, [](const Tensor& a, const Tensor& b, Site s) { return mv(a, b, s); }, "matmul");
  bind(
      "dot(input, tensor)", kEverywhere, [](const Tensor& a, const Tensor& b, Site s) { return dot(a, b, s); },
      "matmul");
  bind("addmm(input, mat1, mat2, *, beta=1, alpha=1)", kEverywhere,
       [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, Site s) {
         return addmm(x, a, b, beta, alpha, s);
       });
  bind("baddbmm(input, batch1, batch2, *, beta=1, alpha=1)", kEverywhere,
       [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, Site s) {
         return baddbmm(x, a, b, beta, alpha, s);
       });
  bind("outer(input, vec2)", kEverywhere, [](const Tensor& a, const Tensor& b, Site s) { return outer(a, b, s); });
  bind(
      "_tensordot(a, b, dims_a, dims_b)", kPrivate,
      [](const Tensor& a, const Tensor& b, Ints dims_a, Ints dims_b, Site s) {
        return tensordot(a, b, dims_a, dims_b, s);
      },
      "tensordot");
  bind(
      "_einsum(equation, operands)", kPrivate,
      [](std::string equation, std::vector<Tensor> operands, Site s) { return einsum(equation, operands, s); },
      "einsum");
  bind("linear(input, weight, bias=None)", kFunctional,
       [](const Tensor& x, const Tensor& w, Tensor b, Site s) { return linear(x, w, b, s); });
  bind("bilinear(input1, input2, weight, bias=None)", kFunctional,
       [](const Tensor& a, const Tensor& b, const Tensor& w, Tensor bias, Site s) {
         return bilinear(a, b, w, bias, s);
       });
}

void bind_convolutions() {
#define DEFT_CONV(n)                                                                                                  \
  bind(                                                                                                               \
      "conv" #n "d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)", kFunctional | kFunction,    \
      [](const Tensor& x, const Tensor& w, Tensor b, Ints stride, Padding padding, Ints dilation, int64_t groups,     \
         Site s) {                                                                                                    \
        static constexpr Choice<ConvPadding> kModes[] = {{"valid", ConvPadding::valid}, {"same", ConvPadding::same}}; \
        if (!padding.mode.empty())                                                                                    \
          return conv##n##d(x, w, b, stride, choose(padding.mode, kModes), dilation, groups, s);                      \
        return conv##n##d(x, w, b, stride, padding.ints, dilation, groups, s);                                        \
      },                                                                                                              \
      "convolution");                                                                                                 \
  bind(                                                                                                               \
      "conv_transpose" #n "d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1)", \
      kFunctional | kFunction,                                                                                        \
      [](const Tensor& x, const Tensor& w, Tensor b, Ints stride, Ints padding, Ints output_padding, int64_t groups,  \
         Ints dilation,                                                                                               \
         Site s) { return conv_transpose##n##d(x, w, b, stride, padding, output_padding, groups, dilation, s); },     \
      "conv_transpose");
  DEFT_CONV(1)
  DEFT_CONV(2)
  DEFT_CONV(3)
#undef DEFT_CONV
}

// None stands for the kernel's size.
IntList or_empty(const std::optional<Ints>& stride) { return stride ? stride->list() : IntList(); }
OneOrTwo with_indices(std::array<Tensor, 2>&& r) { return {std::move(r[0]), std::move(r[1])}; }

void bind_pools() {
#define DEFT_POOL(n)                                                                                                   \
  bind(                                                                                                                \
      "max_pool" #n                                                                                                    \
      "d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)",              \
      kFunctional,                                                                                                     \
      [](const Tensor& x, Ints kernel, std::optional<Ints> stride, Ints padding, Ints dilation, bool ceil_mode,        \
         bool return_indices, Site s) -> OneOrTwo {                                                                    \
        if (return_indices)                                                                                            \
          return with_indices(                                                                                         \
              max_pool##n##d_with_indices(x, kernel, or_empty(stride), padding, dilation, ceil_mode, s));              \
        return {max_pool##n##d(x, kernel, or_empty(stride), padding, dilation, ceil_mode, s), {}};                     \
      },                                                                                                               \
      "max_pool");                                                                                                     \
  bind(                                                                                                                \
      "avg_pool" #n                                                                                                    \
      "d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None)", \
      kFunctional,                                                                                                     \
      [](const Tensor& x, Ints kernel, std::optional<Ints> stride, Ints padding, bool ceil_mode, bool include,         \
         std::optional<int64_t> divisor, Site s) {                                                                     \
        return avg_pool##n##d(x, kernel, or_empty(stride), padding, ceil_mode, include, divisor.value_or(0), s);       \
      },                                                                                                               \
      "avg_pool");                                                                                                     \
  bind(                                                                                                                \
      "_adaptive_avg_pool" #n "d(input, output_size)", kPrivate,                                                       \
      [](const Tensor& x, Ints output, Site s) { return adaptive_avg_pool##n##d(x, output, s); }, "avg_pool");         \
  bind(                                                                                                                \
      "_adaptive_max_pool" #n "d(input, output_size, return_indices=False)", kPrivate,                                 \
      [](const Tensor& x, Ints output, bool return_indices, Site s) -> OneOrTwo {                                      \
        if (return_indices) return with_indices(adaptive_max_pool##n##d_with_indices(x, output, s));                   \
        return {adaptive_max_pool##n##d(x, output, s), {}};                                                            \
      },                                                                                                               \
      "max_pool");
  DEFT_POOL(1)
  DEFT_POOL(2)
  DEFT_POOL(3)
#undef DEFT_POOL
}

void bind_norms() {
  bind("layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05)", kFunctional,
       [](const Tensor& x, Ints shape, Tensor w, Tensor b, double eps, Site s) {
         return layer_norm(x, shape, w, b, eps, s);
       });
  bind("rms_norm(input, normalized_shape, weight=None, eps=None)", kFunctional,
       [](const Tensor& x, Ints shape, Tensor w, std::optional<double> eps, Site s) {
         DType t = x.dtype() == DType::f64 ? DType::f64 : DType::f32;  // 16 bits are computed in f32
         return rms_norm(x, shape, w, eps.value_or(epsilon_of(t)), s);
       });
  bind("group_norm(input, num_groups, weight=None, bias=None, eps=1e-05)", kFunctional,
       [](const Tensor& x, int64_t groups, Tensor w, Tensor b, double eps, Site s) {
         return group_norm(x, groups, w, b, eps, s);
       });
  bind("batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05)",
       kFunctional,
       [](const Tensor& x, Tensor mean, Tensor var, Tensor w, Tensor b, bool training, double momentum, double eps,
          Site s) { return batch_norm(x, mean, var, w, b, training, momentum, eps, s); });
  bind(
      "instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, "
      "momentum=0.1, eps=1e-05)",
      kFunctional,
      [](const Tensor& x, Tensor mean, Tensor var, Tensor w, Tensor b, bool use_input_stats, double momentum,
         double eps, Site s) { return instance_norm(x, mean, var, w, b, use_input_stats, momentum, eps, s); });
  bind(
      "normalize(input, p=2.0, dim=1, eps=1e-12)", kFunctional,
      [](const Tensor& x, double p, int64_t dim, double eps, Site s) { return normalize(x, p, dim, eps, s); }, "norm");
}

void bind_layers() {
  bind("embedding(input, weight, padding_idx=None)", kFunctional,
       [](const Tensor& index, const Tensor& weight, std::optional<int64_t> padding, Site s) {
         return embedding(index, weight, padding, s);
       });
  bind(
      "scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, "
      "enable_gqa=False)",
      kFunctional,
      [](const Tensor& q, const Tensor& k, const Tensor& v, Tensor mask, double dropout_p, bool causal,
         std::optional<double> scale, bool gqa,
         Site s) { return scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale, gqa, s); });
  bind("dropout(input, p=0.5, training=True, inplace=False)", kFunctional | kFunction,
       [](const Tensor& x, double p, bool training, bool inplace, Site s) -> OrSame {
         if (!inplace) return {dropout(x, p, training, s)};
         Tensor y = x;
         y.copy_(dropout(x, p, training, s), s);
         return {};
       });
  bind(
      "_feature_dropout(input, p=0.5, training=True)", kPrivate,
      [](const Tensor& x, double p, bool training, Site s) { return feature_dropout(x, p, training, s); }, "dropout");
  bind(
      "_recurrence(cell, rows, reverse, gates, h, c, weight, bias)", kPrivate,
      [](std::string cell, Object rows, bool reverse, const Tensor& gates, const Tensor& h, Tensor c,
         const Tensor& weight, Tensor bias, Site s) {
        static constexpr Choice<nn::Cell> kCells[] = {
            {"tanh", nn::Cell::tanh}, {"relu", nn::Cell::relu}, {"lstm", nn::Cell::lstm}, {"gru", nn::Cell::gru}};
        nn::Recurrence kind{choose(cell, kCells), to_int_vector(rows.p), reverse};
        SiteScope line(s);
        nn::RecurrenceResult r;
        {
          GilReleased released;
          r = nn::run_recurrence(kind, gates, h, c, weight, bias);
        }
        std::vector<Tensor> all{r.output, r.hidden, r.cell};
        return Returns{binding::give({}, std::move(all))};
      },
      "linear", "One direction of one recurrent layer over all steps: (output, hidden, cell).");
}

void bind_resizing() {
  static constexpr Choice<InterpolateMode> kModes[] = {
      {"nearest", InterpolateMode::nearest},  {"nearest-exact", InterpolateMode::nearest_exact},
      {"linear", InterpolateMode::linear},    {"bilinear", InterpolateMode::linear},
      {"trilinear", InterpolateMode::linear}, {"bicubic", InterpolateMode::bicubic}};
  bind("interpolate(input, size=None, scale_factor=None, mode='nearest', align_corners=None)", kFunctional,
       [](const Tensor& x, std::optional<Ints> size, Object scale, std::string mode, std::optional<bool> corners,
          Site s) {
         InterpolateMode m = choose(mode, kModes);
         DEFT_CHECK(size.has_value() != (scale.p != Py_None), ValueError,
                    "interpolate: either size or scale_factor must be given, and not both");
         if (size) return interpolate(x, *size, m, corners.value_or(false), s);
         std::vector<double> factors;
         if (PyTuple_Check(scale.p) || PyList_Check(scale.p))
           for (Py_ssize_t i = 0; i < PySequence_Size(scale.p); ++i)
             factors.push_back(to_double(owned(PySequence_GetItem(scale.p, i)).get()));
         else
           factors.push_back(to_double(scale.p));
         return interpolate_scale(x, factors, m, corners.value_or(false), s);
       });
  bind("pad(input, pad, mode='constant', value=None)", kFunctional,
       [](const Tensor& x, Ints amounts, std::string mode, std::optional<double> value, Site s) {
         static constexpr Choice<PadMode> kPads[] = {{"constant", PadMode::constant},
                                                     {"reflect", PadMode::reflect},
                                                     {"replicate", PadMode::replicate},
                                                     {"circular", PadMode::circular}};
         return pad(x, amounts, choose(mode, kPads), value.value_or(0), s);
       });
  bind("unfold(input, kernel_size, dilation=1, padding=0, stride=1)", kFunctional,
       [](const Tensor& x, Ints kernel, Ints dilation, Ints padding, Ints stride, Site s) {
         return unfold(x, kernel, dilation, padding, stride, s);
       });
  bind("fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1)", kFunctional,
       [](const Tensor& x, Ints output, Ints kernel, Ints dilation, Ints padding, Ints stride, Site s) {
         return fold(x, output, kernel, dilation, padding, stride, s);
       });
}

Reduction to_reduction(const std::string& text) {
  static constexpr Choice<Reduction> kReductions[] = {
      {"none", Reduction::none}, {"mean", Reduction::mean}, {"sum", Reduction::sum}};
  return choose(text, kReductions);
}

void bind_losses() {
#define DEFT_LOSS(name, op)                                                       \
  bind(#name "(input, target, *, reduction='mean')", kFunctional,                 \
       [](const Tensor& x, const Tensor& target, std::string reduction, Site s) { \
         return name(x, target, to_reduction(reduction), s);                      \
       });
  DEFT_LOSS(mse_loss, "mse_loss")
  DEFT_LOSS(l1_loss, "l1_loss")
#undef DEFT_LOSS
  bind("smooth_l1_loss(input, target, *, reduction='mean', beta=1.0)", kFunctional,
       [](const Tensor& x, const Tensor& t, std::string r, double beta, Site s) {
         return smooth_l1_loss(x, t, to_reduction(r), beta, s);
       });
  bind("huber_loss(input, target, reduction='mean', delta=1.0)", kFunctional,
       [](const Tensor& x, const Tensor& t, std::string r, double delta, Site s) {
         return huber_loss(x, t, to_reduction(r), delta, s);
       });
  bind(
      "binary_cross_entropy(input, target, weight=None, *, reduction='mean')", kFunctional,
      [](const Tensor& x, const Tensor& t, Tensor w, std::string r, Site s) {
        return binary_cross_entropy(x, t, w, to_reduction(r), s);
      },
      BceLoss::info.name);
  bind(
      "binary_cross_entropy_with_logits(input, target, weight=None, *, reduction='mean', pos_weight=None)", kFunctional,
      [](const Tensor& x, const Tensor& t, Tensor w, std::string r, Tensor pos, Site s) {
        return binary_cross_entropy_with_logits(x, t, w, pos, to_reduction(r), s);
      },
      BceLogitsLoss::info.name);
  bind("nll_loss(input, target, weight=None, *, ignore_index=-100, reduction='mean')", kFunctional,
       [](const Tensor& x, const Tensor& t, Tensor w, int64_t ignore, std::string r, Site s) {
         return nll_loss(x, t, {w, ignore, to_reduction(r), 0}, s);
       });
  bind("cross_entropy(input, target, weight=None, *, ignore_index=-100, reduction='mean', label_smoothing=0.0)",
       kFunctional,
       [](const Tensor& x, const Tensor& t, Tensor w, int64_t ignore, std::string r, double smoothing, Site s) {
         return cross_entropy(x, t, {w, ignore, to_reduction(r), smoothing}, s);
       });
  bind("kl_div(input, target, *, reduction='mean', log_target=False)", kFunctional,
       [](const Tensor& x, const Tensor& t, std::string r, bool log_target, Site s) {
         static constexpr Choice<KlReduction> kKinds[] = {{"none", KlReduction::none},
                                                          {"mean", KlReduction::mean},
                                                          {"sum", KlReduction::sum},
                                                          {"batchmean", KlReduction::batchmean}};
         return kl_div(x, t, choose(r, kKinds), log_target, s);
       });
  bind("cosine_similarity(x1, x2, dim=1, eps=1e-08)", kFunctional,
       [](const Tensor& a, const Tensor& b, int64_t dim, double eps, Site s) {
         return cosine_similarity(a, b, dim, eps, s);
       });
  bind("cosine_embedding_loss(input1, input2, target, margin=0.0, *, reduction='mean')", kFunctional,
       [](const Tensor& a, const Tensor& b, const Tensor& t, double margin, std::string r, Site s) {
         return cosine_embedding_loss(a, b, t, margin, to_reduction(r), s);
       });
}

}  // namespace

void bind_network_ops() {
  bind_products();
  bind_convolutions();
  bind_pools();
  bind_norms();
  bind_layers();
  bind_resizing();
  bind_losses();
}

}  // namespace deft::python
