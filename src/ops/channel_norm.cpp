// Group, batch and instance norm.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/norm/channel_norm.h"
#include "ops/norm_common.h"
#include "ops/operand.h"
#include "ops/reduce.h"
#include "ops/reduce_common.h"
#include "runtime/context.h"
#include "runtime/parallel.h"

namespace deft {

namespace norms {

Meta layout_of(const Meta& x) {
  Meta m = Meta::dense(x.sizes, x.dtype, x.device);
  if (!x.contiguous && x.is_channels_last()) m.set_strides(channels_last_strides(x.sizes));
  return m;
}

void mark_written(const Tensor& running) {
  running.impl()->storage->bump_version("batch_norm", effective_site(Site::current()));
}

}  // namespace norms

using namespace norms;
using reduction::laid_out_as;

namespace {

void check_rank(const Meta& x, const char* op) {
  DEFT_CHECK(x.rank() >= 2, ShapeError, "{}: the input has shape {}, expected N,C or N,C,spatial", op,
             to_string(x.sizes));
}

constexpr int64_t kNearBytes = 256 << 10;  // of the images that are normalised in one go, if more than one

// Small per-channel vectors are handled as f64.
using Numbers = std::vector<double>;
size_t at(int64_t i) { return static_cast<size_t>(i); }

Numbers read(const Tensor& t, int64_t n, double missing) {
  Numbers v(at(n), missing);
  if (!t.defined()) return v;
  Tensor wide(make_tensor(Meta::dense(t.sizes(), DType::f64, t.device())));
  copy_values(t, wide);
  std::copy_n(wide.data<double>(), n, v.data());
  return v;
}
void write(const Numbers& v, const Tensor& to) {
  Tensor wide(make_tensor(Meta::dense(to.sizes(), DType::f64, to.device())));
  std::copy_n(v.data(), to.numel(), wide.data<double>());
  copy_values(wide, to);
}
Tensor optional_input(const KernelCall& c, int i) { return c.has(i) ? c.in(i) : Tensor(); }

struct Moments {
  double count = 0, mean = 0, squares = 0;
  void merge(double n, double other_mean, double other_squares) {
    double total = count + n, delta = other_mean - mean;
    mean += delta * (n / total);
    squares += other_squares + delta * delta * (count * (n / total));
    count = total;
  }
};

// The moments of each group of planes; group(plane) is the group of a plane.
template <class F>
std::vector<Moments> moments(const cpu::ChannelsView& v, const void* x, int64_t groups, F&& group) {
  std::vector<Moments> all(at(groups));
  if (v.n * v.c * v.s == 0) return all;
  Numbers mean(at(v.n * v.c)), squares(mean.size());
  cpu::plane_moments(v, x, mean.data(), squares.data());
  for (int64_t p = 0; p < v.n * v.c; ++p)
    all[at(group(p))].merge(static_cast<double>(v.s), mean[at(p)], squares[at(p)]);
  return all;
}
double rstd_of(const Moments& m, double eps) { return m.count ? 1 / std::sqrt(m.squares / m.count + eps) : 0; }

// What is fused after a norm; `affine` receives the factors and offsets that were used.
struct ReluAfter {
  Tensor residual, affine;
};

// y = (x - mean) * rstd * weight + bias with statistics per group.
template <class F>
void normalize(const cpu::ChannelsView& v, const void* x, const Numbers& mean, const Numbers& rstd,
               const Numbers& weight, const Numbers& bias, F&& group, void* y, const ReluAfter* relu = nullptr) {
  Numbers scale(at(v.n * v.c)), center(scale.size()), offset(scale.size());
  for (int64_t p = 0; p < v.n * v.c; ++p) {
    size_t k = at(group(p)), channel = at(p % v.c);
    scale[at(p)] = rstd[k] * weight[channel];
    center[at(p)] = mean[k];
    offset[at(p)] = bias[channel];
  }
  const cpu::PlaneAffine map{nullptr, scale.data(), center.data(), offset.data()};
  if (!relu) return cpu::apply_affine(v, nullptr, x, map, y);
  cpu::apply_affine_relu(v, x, data_or_null(relu->residual), map, y);
  Numbers affine(at(2 * v.c));
  for (size_t k = 0; k < rstd.size(); ++k) affine[k] = rstd[k] * weight[k], affine[rstd.size() + k] = bias[k];
  write(affine, relu->affine);
}

// The relu of fused_batch_norm_backward.
struct ReluBefore {
  Numbers of_x, offset;
  Tensor y, more;
  cpu::FusedRelu call;
};
ReluBefore relu_before(const KernelCall& c, const cpu::ChannelsView& v) {
  ReluBefore r;
  if (c.has(6)) {
    Meta layout = layout_of(c.in(1).meta());
    r.y = laid_out_as(c.in(6), layout);
    if (c.has(7)) r.more = laid_out_as(c.in(7), layout);
    r.call = {nullptr, nullptr, r.y.data_ptr(), data_or_null(r.more), c.out(3).data_ptr()};
    return r;
  }
  Numbers affine = read(c.in(5), 2 * v.c, 0);
  for (int64_t p = 0; p < v.n * v.c; ++p) {
    r.of_x.push_back(affine[at(p % v.c)]);
    r.offset.push_back(affine[at(v.c + p % v.c)]);
  }
  r.call.of_x = r.of_x.data();
  r.call.offset = r.offset.data();
  return r;
}

// Calls f(view, first image) for a few images at a time, which are still in the cache when they are read again.
template <class F>
void each_near_images(const cpu::ChannelsView& v, F&& f) {
  const int64_t image = v.c * v.s * static_cast<int64_t>(size_of(v.dtype));
  const int64_t together = std::max<int64_t>(1, kNearBytes / std::max<int64_t>(1, image));
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * together; i < std::min(v.n, end * together); i += together) {
      cpu::ChannelsView some = v;
      some.n = std::min(together, v.n - i);
      f(some, i);
    }
  };
  const int64_t count = (v.n + together - 1) / together;
  count < num_threads() ? run(0, count) : parallel_for(0, count, 1, run);
}

// The backward pass of both norms. Groups have `count` elements; `moving`: the statistics depend on x.
template <class F>
class GradPass {
 public:
  GradPass(KernelCall& c, const cpu::ChannelsView& v, int64_t groups, double count, uint8_t wanted, bool moving,
           const F& group, const cpu::FusedRelu* relu = nullptr)
      : c_(c),
        v_(v),
        count_(count),
        wanted_(wanted),
        moving_(moving),
        group_(group),
        relu_(relu),
        x_(laid_out_as(c.in(1), layout_of(c.in(1).meta()))),
        g_(laid_out_as(c.in(0), layout_of(c.in(1).meta()))),
        weight_(read(optional_input(c, 2), v.c, 1)),
        mean_(read(c.in(3), groups, 0)),
        rstd_(read(c.in(4), groups, 0)),
        center_(at(v.n * v.c)),
        sum_(center_.size()),
        product_(center_.size()),
        group_sum_(at(groups)),
        group_product_(at(groups)) {}

  // All images; `apart`: a few at a time, where no group spans images.
  void run(bool apart) {
    if (x_.numel() == 0) {
      for (int i = 0; i < c_.def.info.outputs; ++i) clear(c_.out(i));
      return;
    }
    auto some = [&](const cpu::ChannelsView& v, int64_t first) {
      sum_images(v, first);
      if (wanted_ & kGradX) map_images(v, first);
    };
    apart ? each_near_images(v_, some) : some(v_, 0);
    write_factors();
  }

 private:
  const char* data(const Tensor& t, int64_t image) const {
    return static_cast<const char*>(t.data_ptr()) + image * v_.c * v_.s * static_cast<int64_t>(size_of(v_.dtype));
  }

  void sum_images(const cpu::ChannelsView& v, int64_t first) {
    const int64_t begin = first * v.c, end = begin + v.n * v.c;
    for (int64_t p = begin; p < end; ++p) center_[at(p)] = mean_[at(group_(p))];
    if (moving_ || (wanted_ & (kGradWeight | kGradBias)))
      cpu::plane_grad_sums(v, data(g_, first), data(x_, first), center_.data() + begin, sum_.data() + begin,
                           product_.data() + begin, relu_);
    for (int64_t p = begin; p < end; ++p) {
      const size_t k = at(group_(p)), channel = at(p % v.c);
      group_sum_[k] += weight_[channel] * sum_[at(p)];
      group_product_[k] += weight_[channel] * product_[at(p)];
    }
  }

  void map_images(const cpu::ChannelsView& v, int64_t first) const {
    const int64_t begin = first * v.c;
    Numbers of_g(at(v.n * v.c)), of_x(of_g.size(), 0), offset(of_g.size(), 0);
    for (size_t i = 0; i < of_g.size(); ++i) {
      const size_t k = at(group_(begin + static_cast<int64_t>(i)));
      of_g[i] = weight_[i % at(v.c)] * rstd_[k];
      of_x[i] = -rstd_[k] * rstd_[k] * rstd_[k] * group_product_[k] / count_;
      offset[i] = -rstd_[k] * group_sum_[k] / count_;
    }
    char* to = const_cast<char*>(data(c_.out(0), first));
    if (!moving_) {
      Numbers zero(of_g.size(), 0);
      return cpu::apply_affine(v, nullptr, data(g_, first), {nullptr, of_g.data(), zero.data(), zero.data()}, to);
    }
    const bool masked = relu_ && relu_->y;
    cpu::apply_affine(v, masked ? relu_->masked : data(g_, first), data(x_, first),
                      {of_g.data(), of_x.data(), center_.data() + begin, offset.data()}, to, masked ? nullptr : relu_);
  }

  void write_factors() const {
    Numbers dweight(at(v_.c)), dbias(at(v_.c));
    for (int64_t p = 0; p < v_.n * v_.c; ++p) {
      dweight[at(p % v_.c)] += product_[at(p)] * rstd_[at(group_(p))];
      dbias[at(p % v_.c)] += sum_[at(p)];
    }
    if (wanted_ & kGradWeight) write(dweight, c_.out(1));
    if (wanted_ & kGradBias) write(dbias, c_.out(2));
  }

  KernelCall& c_;
  const cpu::ChannelsView v_;
  double count_;
  uint8_t wanted_;
  bool moving_;
  const F& group_;
  const cpu::FusedRelu* relu_;
  Tensor x_, g_;
  Numbers weight_, mean_, rstd_, center_, sum_, product_, group_sum_, group_product_;
};

template <class Backward, class Params>
void call_backward(VjpContext& c, Params p) {
  if (!c.grad(0).defined()) return;
  p.wanted = wanted_grads(c);
  if (!(p.wanted & (kGradX | kGradWeight | kGradBias))) return;
  if (p.wanted == kGradBias) {
    Shape over{0};
    for (int i = 2; i < c.grad(0).dim(); ++i) over.push_back(i);
    c.grad_in(2) = c.grad(0).sum(over);
    return;
  }
  Tensor weight;
  if (c.needs(0) && has_saved_input(c, 1)) weight = c.saved_input(1);
  auto grads =
      call<Backward>(c.node.site, p, c.grad(0), c.saved_input(0), weight, c.saved_output(1), c.saved_output(2));
  for (int i = 0; i < 3; ++i)
    if (p.wanted >> i & 1) c.grad_in(i) = grads[static_cast<size_t>(i)];
}

Meta per_channel(const Meta& x) { return Meta::dense({x.sizes[1]}, statistics_type(x.dtype), x.device); }

}  // namespace

// --- group_norm ------------------------------------------------------------------------------------------------

namespace {

void check_groups(const Meta& x, int64_t groups, const char* op) {
  check_rank(x, op);
  DEFT_CHECK(groups > 0 && x.sizes[1] % groups == 0, ValueError,
             "{}: {} channels of shape {} cannot be split into {} groups; the number of groups must divide them", op,
             x.sizes[1], to_string(x.sizes), groups);
}

}  // namespace

std::array<Meta, 3> GroupNorm::infer(const Meta& x, const Meta& weight, const Meta& bias, const Params& p) {
  check_groups(x, p.groups, info.name);
  DEFT_CHECK(x.numel != p.groups || x.sizes[0] != 1, ValueError,
             "group_norm: one value per group (shape {}, {} groups) has no variance; give larger groups",
             to_string(x.sizes), p.groups);
  check_factor(weight, {x.sizes[1]}, x, "weight", info.name);
  check_factor(bias, {x.sizes[1]}, x, "bias", info.name);
  Meta statistics = Meta::dense({x.sizes[0], p.groups}, statistics_type(x.dtype), x.device);
  return {layout_of(x), statistics, statistics};
}

namespace {

// Some images, whose statistics go to `means` and `rstds`.
void normalize_groups(const cpu::ChannelsView& v, const void* x, const GroupNorm::Params& p, const Numbers& weight,
                      const Numbers& bias, double* means, double* rstds, void* y) {
  int64_t per_group = v.c / p.groups;
  auto group = [&](int64_t plane) { return plane / per_group; };  // c is whole groups, so images need no care
  Numbers mean, rstd;
  for (const Moments& m : moments(v, x, v.n * p.groups, group))
    mean.push_back(m.mean), rstd.push_back(rstd_of(m, p.eps));
  std::copy(mean.begin(), mean.end(), means);
  std::copy(rstd.begin(), rstd.end(), rstds);
  normalize(v, x, mean, rstd, weight, bias, group, y);
}

}  // namespace

void GroupNorm::cpu(KernelCall& c) {
  const Params& p = c.params<GroupNorm>();
  Tensor x = laid_out_as(c.in(0), c.out(0).meta());
  const auto v = channels_view<cpu::ChannelsView>(x.meta(), false);
  const Numbers weight = read(optional_input(c, 1), v.c, 1), bias = read(optional_input(c, 2), v.c, 0);
  Numbers means(at(v.n * p.groups)), rstds(means.size());
  const int64_t image = v.c * v.s * static_cast<int64_t>(size_of(v.dtype));
  each_near_images(v, [&](const cpu::ChannelsView& some, int64_t i) {
    normalize_groups(some, static_cast<const char*>(x.data_ptr()) + i * image, p, weight, bias,
                     means.data() + i * p.groups, rstds.data() + i * p.groups,
                     static_cast<char*>(c.out(0).data_ptr()) + i * image);
  });
  write(means, c.out(1));
  write(rstds, c.out(2));
}

void GroupNorm::vjp(VjpContext& c) {
  const Params& p = c.params<GroupNorm>();
  call_backward<GroupNormBackward>(c, GroupNormBackward::Params{p.groups, p.eps, 0});
}

std::array<Meta, 3> GroupNormBackward::infer(const Meta& g, const Meta& x, const Meta&, const Meta&, const Meta&,
                                             const Params& p) {
  check_groups(x, p.groups, info.name);
  return backward_metas(g, x, layout_of(x), {x.sizes[1]}, x.dtype, p.wanted, info.name);
}
void GroupNormBackward::cpu(KernelCall& c) {
  const Params& p = c.params<GroupNormBackward>();
  cpu::ChannelsView v = channels_view<cpu::ChannelsView>(layout_of(c.in(1).meta()), false);
  int64_t per_group = v.c / p.groups;
  const auto group = [&](int64_t plane) { return plane / per_group; };
  // What is written past the caches is written in one go: it gains more than images that are read from near.
  const bool apart = !cpu::streams(v.n * v.c * v.s * static_cast<int64_t>(size_of(v.dtype)));
  GradPass(c, v, v.n * p.groups, static_cast<double>(per_group * v.s), p.wanted, true, group).run(apart);
}
void GroupNormBackward::vjp(VjpContext& c) {
  int64_t groups = c.params<GroupNormBackward>().groups;
  double eps = c.params<GroupNormBackward>().eps;
  reduction::vjp_through(c, 3, [&](const std::vector<Tensor>& in) {
    Channels s(in[1].sizes());
    Shape split{s.images, groups, s.channels / groups, s.space};
    Tensor weight = in[2].defined() ? in[2].reshape({1, groups, s.channels / groups, 1}) : Tensor();
    auto out = composed_grads(in[0].reshape(split), in[1].reshape(split), weight, {2, 3}, eps);
    out[0] = out[0].reshape(in[1].sizes());
    for (size_t i = 1; i < 3; ++i) out[i] = out[i].sum({0, 3}).reshape({s.channels});
    return out;
  });
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps, Site site) {
  return call<GroupNorm>(site, {groups, eps}, x, weight, bias)[0];
}

// --- batch_norm ------------------------------------------------------------------------------------------------

namespace {

void check_running(const Meta& m, const Meta& x, const char* what) {
  if (!m.defined) return;
  DEFT_CHECK(m.sizes == (Shape{x.sizes[1]}), ShapeError,
             "batch_norm: {} has shape {}, expected [{}] for an input of shape {}", what, to_string(m.sizes),
             x.sizes[1], to_string(x.sizes));
  DEFT_CHECK(is_floating(m.dtype), DTypeError, "batch_norm: {} is {}, expected a floating type", what,
             name_of(m.dtype));
}

void update_running(const Tensor& running, double momentum, const Numbers& batch) {
  Numbers values = read(running, running.numel(), 0);
  for (size_t i = 0; i < values.size(); ++i) values[i] += momentum * (batch[i] - values[i]);
  write(values, running);
  mark_written(running);
}

}  // namespace

std::array<Meta, 3> BatchNorm::infer(const Meta& x, const Meta& weight, const Meta& bias, const Meta& running_mean,
                                     const Meta& running_var, const Params& p) {
  check_rank(x, info.name);
  check_factor(weight, {x.sizes[1]}, x, "weight", info.name, true);
  check_factor(bias, {x.sizes[1]}, x, "bias", info.name, true);
  DEFT_CHECK(!weight.defined || !bias.defined || weight.dtype == bias.dtype, DTypeError,
             "batch_norm: the weight is {} but the bias is {}; convert one with to()", name_of(weight.dtype),
             name_of(bias.dtype));
  DEFT_CHECK(running_mean.defined == running_var.defined, ValueError,
             "batch_norm: only one of running_mean and running_var is given; give both or none");
  DEFT_CHECK(p.training || running_mean.defined, ValueError,
             "batch_norm: needs running_mean and running_var when not training; give both");
  check_running(running_mean, x, "running_mean");
  check_running(running_var, x, "running_var");
  DEFT_CHECK(
      !p.training || x.numel == 0 || x.numel / x.sizes[1] > 1, ValueError,
      "batch_norm: one value per channel (shape {}) has no variance to train on; use a larger batch, drop the last "
      "small one, or call eval()",
      to_string(x.sizes));
  return {layout_of(x), per_channel(x), per_channel(x)};
}

namespace {

void batch_norm_forward(KernelCall& c, const BatchNorm::Params& p, const ReluAfter* relu) {
  Tensor x = laid_out_as(c.in(0), c.out(0).meta());
  cpu::ChannelsView v = channels_view<cpu::ChannelsView>(x.meta(), true);
  auto channel = [&](int64_t plane) { return plane % v.c; };
  Numbers mean(at(v.c)), rstd(at(v.c));
  if (p.training) {
    std::vector<Moments> all = moments(v, x.data_ptr(), v.c, channel);
    Numbers unbiased(at(v.c));
    for (size_t i = 0; i < all.size(); ++i) {
      mean[i] = all[i].mean;
      rstd[i] = rstd_of(all[i], p.eps);
      unbiased[i] = all[i].squares / (all[i].count - 1);
    }
    if (c.has(3) && x.numel() > 0) {
      update_running(c.in(3), p.momentum, mean);
      update_running(c.in(4), p.momentum, unbiased);
    }
  } else {
    mean = read(c.in(3), v.c, 0);
    rstd = read(c.in(4), v.c, 1);
    for (double& r : rstd) r = 1 / std::sqrt(r + p.eps);
  }
  write(mean, c.out(1));
  write(rstd, c.out(2));
  normalize(v, x.data_ptr(), mean, rstd, read(optional_input(c, 1), v.c, 1), read(optional_input(c, 2), v.c, 0),
            channel, c.out(0).data_ptr(), relu);
}

}  // namespace

void BatchNorm::cpu(KernelCall& c) { batch_norm_forward(c, c.params<BatchNorm>(), nullptr); }

void BatchNorm::vjp(VjpContext& c) {
  const Params& p = c.params<BatchNorm>();
  DType factors = c.needs(1) ? c.input_dtype(1) : c.needs(2) ? c.input_dtype(2) : c.input_dtype(0);
  call_backward<BatchNormBackward>(c, BatchNormBackward::Params{p.training, p.eps, 0, factors});
}

std::array<Meta, 3> BatchNormBackward::infer(const Meta& g, const Meta& x, const Meta&, const Meta&, const Meta&,
                                             const Params& p) {
  check_rank(x, info.name);
  return backward_metas(g, x, layout_of(x), {x.sizes[1]}, p.factors, p.wanted, info.name);
}
void BatchNormBackward::cpu(KernelCall& c) {
  const Params& p = c.params<BatchNormBackward>();
  cpu::ChannelsView v = channels_view<cpu::ChannelsView>(layout_of(c.in(1).meta()), true);
  const auto group = [&](int64_t plane) { return plane % v.c; };
  GradPass(c, v, v.c, static_cast<double>(v.n * v.s), p.wanted, p.training, group).run(false);
}
void BatchNormBackward::vjp(VjpContext& c) {
  const Params p = c.params<BatchNormBackward>();
  reduction::vjp_through(c, 3, [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor &g = in[0], &x = in[1];
    Shape over{0}, along = x.sizes();
    for (int i = 2; i < x.dim(); ++i) over.push_back(i);
    for (int i = 0; i < x.dim(); ++i)
      if (i != 1) along[i] = 1;
    Tensor weight = in[2].defined() ? in[2].to(x.dtype()).reshape(along) : Tensor();
    if (p.training) {
      auto out = composed_grads(g, x, weight, over, p.eps);
      return {out[0], out[1].sum(over).to(p.factors), out[2].sum(over).to(p.factors)};
    }
    Tensor mean = in[3].to(x.dtype()).reshape(along), rstd = in[4].to(x.dtype()).reshape(along);
    Tensor dx = (weight.defined() ? g * weight : g) * rstd;
    return {dx, (g * ((x - mean) * rstd)).sum(over).to(p.factors), g.sum(over).to(p.factors)};
  });
}

// --- Fused with a relu -----------------------------------------------------------------------------------------

std::array<Meta, 4> FusedBatchNorm::infer(const Meta& x, const Meta& weight, const Meta& bias, const Meta& running_mean,
                                          const Meta& running_var, const Meta& residual, const Params& p) {
  DEFT_CHECK(p.training, ValueError,
             "fused_batch_norm: has the statistics of the batch; without training use batch_norm and relu");
  auto m = BatchNorm::infer(x, weight, bias, running_mean, running_var, p);
  DEFT_CHECK(!residual.defined || (residual.sizes == x.sizes && residual.dtype == x.dtype), ShapeError,
             "fused_batch_norm: the residual is {}, expected {} like the input", describe(residual), describe(x));
  return {m[0], m[1], m[2], Meta::dense({2, x.sizes[1]}, m[1].dtype, x.device)};
}
void FusedBatchNorm::cpu(KernelCall& c) {
  ReluAfter relu{c.has(5) ? laid_out_as(c.in(5), c.out(0).meta()) : Tensor(), c.out(3)};
  batch_norm_forward(c, c.params<FusedBatchNorm>(), &relu);
}

std::array<Meta, 4> FusedBatchNormBackward::infer(const Meta& g, const Meta& x, const Meta& weight, const Meta& mean,
                                                  const Meta& rstd, const Meta& affine, const Meta& y, const Meta& more,
                                                  const Params& p) {
  auto m = BatchNormBackward::infer(g, x, weight, mean, rstd, p);
  DEFT_CHECK(p.training && y.defined != affine.defined && (y.defined || !more.defined), ValueError,
             "fused_batch_norm_backward: needs the statistics of the batch, and either y or affine");
  DEFT_CHECK(!affine.defined || affine.sizes == (Shape{2, x.sizes[1]}), ShapeError,
             "fused_batch_norm_backward: affine is {}, expected [2, {}]", describe(affine), x.sizes[1]);
  for (const Meta* like : {&y, &more})
    DEFT_CHECK(!like->defined || (like->sizes == x.sizes && like->dtype == x.dtype), ShapeError,
               "fused_batch_norm_backward: found {}, expected {} like the input", describe(*like), describe(x));
  return {m[0], m[1], m[2], y.defined ? layout_of(x) : Meta::dense({0}, x.dtype, x.device)};
}
void FusedBatchNormBackward::cpu(KernelCall& c) {
  const Params& p = c.params<FusedBatchNormBackward>();
  cpu::ChannelsView v = channels_view<cpu::ChannelsView>(layout_of(c.in(1).meta()), true);
  ReluBefore relu = relu_before(c, v);
  const auto group = [&](int64_t plane) { return plane % v.c; };
  GradPass(c, v, v.c, static_cast<double>(v.n * v.s), p.wanted, true, group, &relu.call).run(false);
}

namespace {

// The running statistics are written without a graph; the same rules as for any other write hold otherwise.
void check_writable(const Tensor& running, const char* op, const Site& site) {
  if (running.defined()) check_inplace(*running.impl(), false, op, effective_site(site));
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps, Site site) {
  SiteScope scope(site);
  if (training) {
    check_writable(running_mean, "batch_norm", site);
    check_writable(running_var, "batch_norm", site);
  }
  return call<BatchNorm>(site, {training, momentum, eps}, x, weight, bias, running_mean, running_var)[0];
}

// --- instance_norm ---------------------------------------------------------------------------------------------

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, bool use_input_stats, double momentum, double eps, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "instance_norm");
  DEFT_CHECK(x.dim() >= 3, ShapeError, "instance_norm: the input has shape {}, expected N,C,L or more dimensions",
             to_string(x.sizes()));
  DEFT_CHECK(use_input_stats || (running_mean.defined() && running_var.defined()), ValueError,
             "instance_norm: needs running_mean and running_var when not using the input's statistics; give both");
  if (!use_input_stats) return batch_norm(x, running_mean, running_var, weight, bias, false, momentum, eps, site);
  Channels s(x.sizes());
  DEFT_CHECK(s.space != 1, ValueError,
             "instance_norm: one value per channel (shape {}) has no variance; give larger images or call eval()",
             to_string(x.sizes()));
  if (!running_mean.defined() && !running_var.defined()) {
    // A copy of the weight is kept for backward, as with running statistics: it may be written in place before.
    bool records = is_grad_enabled() && weight.defined() && !(context().bits & kCapture);
    return group_norm(x, std::max<int64_t>(s.channels, 1), records ? weight.clone() : weight, bias, eps, site);
  }
  // Every channel of every image is a channel of one batch; the running statistics move by their average.
  auto repeat = [&](const Tensor& t) {
    return t.defined() ? t.expand({s.images, s.channels}, site).reshape({s.images * s.channels}, site) : t;
  };
  Shape flat = x.sizes();
  flat[0] = 1;
  flat[1] = s.images * s.channels;
  Tensor means, vars;
  {
    NoGradGuard guard(site);
    means = repeat(running_mean).clone();
    vars = repeat(running_var).clone();
  }
  Tensor y = batch_norm(x.reshape(flat, site), means, vars, repeat(weight), repeat(bias), true, momentum, eps, site);
  if (s.images > 0) {
    NoGradGuard guard(site);
    Tensor mean_out = running_mean, var_out = running_var;
    mean_out.copy_(means.reshape({s.images, s.channels}).mean({0}), site);
    var_out.copy_(vars.reshape({s.images, s.channels}).mean({0}), site);
  }
  return y.reshape(x.sizes(), site);
}

}  // namespace deft
