#include "optim/ema.h"

#include <algorithm>

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "ops/copy.h"
#include "ops/tensor_lists.h"
#include "optim/captured_call.h"

namespace deft::optim {

namespace {

DType average_dtype(DType t) { return is_floating(t) && size_of(t) == 2 ? DType::f32 : t; }

// Unrecorded writes into tensors that live on after an inference mode around them.
struct Plain {
  explicit Plain(const Site& site) : normal(false, site), quiet(site) {}
  InferenceModeGuard normal;
  NoGradGuard quiet;
};

void copy_all(const std::vector<Tensor>& from, std::vector<Tensor>& to, const Site& site) {
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], site);
}

}  // namespace

ExponentialMovingAverage::ExponentialMovingAverage(std::vector<Tensor> params, const EMAOptions& options, Site site)
    : params_(std::move(params)), options_(options) {
  DEFT_CHECK(options.decay >= 0 && options.decay <= 1, ValueError,
             "ExponentialMovingAverage: the decay lies in [0, 1], found {}", options.decay);
  Plain plain(site);
  for (size_t i = 0; i < params_.size(); ++i) {
    DEFT_CHECK(params_[i].defined(), ValueError, "ExponentialMovingAverage: parameter {} is undefined", i);
    const DType dtype = average_dtype(params_[i].dtype());
    Tensor average =
        dtype == params_[i].dtype() ? params_[i].clone(MemoryFormat::preserve, site) : params_[i].to(dtype, site);
    average.set_memory_category(MemoryCategory::optimizer);
    averages_.push_back(std::move(average));
  }
}

ExponentialMovingAverage::~ExponentialMovingAverage() = default;

double ExponentialMovingAverage::decay() const {
  const auto n = static_cast<double>(updates_ + 1);
  return options_.warmup ? std::min(options_.decay, (1 + n) / (10 + n)) : options_.decay;
}

void ExponentialMovingAverage::update(Site site) {
  DEFT_CHECK(!swapped_, ValueError,
             "ExponentialMovingAverage: update() while the averages are swapped in; end the scope of swap_in() first");
  if (context().bits & kCapture) [[unlikely]] {
    CapturedCall call{"ema.update", averages_, params_, {}, false, effective_site(site)};
    return capture_call(std::move(call), [this, site] { update(site); });
  }
  Plain plain(site);
  std::vector<Tensor> averages, params;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (is_floating(params_[i].dtype())) {
      averages.push_back(averages_[i]);
      params.push_back(params_[i]);
    } else {
      averages_[i].copy_(params_[i], site);
    }
  }
  lerp_tensors_(averages, params, 1 - decay(), site);
  ++updates_;
}

void ExponentialMovingAverage::copy_to_params(Site site) {
  DEFT_CHECK(!swapped_, ValueError,
             "ExponentialMovingAverage: copy_to_params() while the averages are swapped in; end the scope of swap_in() "
             "first");
  Plain plain(site);
  copy_all(averages_, params_, site);
}

ExponentialMovingAverage::Swap::Swap(ExponentialMovingAverage& ema, const Site& site) : ema_(ema), site_(site) {
  DEFT_CHECK(!ema.swapped_, ValueError, "ExponentialMovingAverage: the averages are swapped in already");
  Plain plain(site);
  for (const Tensor& p : ema.params_) kept_.push_back(p.clone(MemoryFormat::preserve, site));
  copy_all(ema.averages_, ema.params_, site);
  ema.swapped_ = true;
}

ExponentialMovingAverage::Swap::~Swap() {
  Plain plain(site_);
  copy_all(kept_, ema_.params_, site_);
  ema_.swapped_ = false;
}

State ExponentialMovingAverage::state() const {
  State s;
  s.values["updates"] = updates_;
  for (size_t i = 0; i < averages_.size(); ++i) s.tensors.push_back({std::to_string(i), averages_[i]});
  return s;
}

void ExponentialMovingAverage::load_state(const State& state) {
  Plain plain(Site::current());
  const int64_t updates = state.get<int64_t>("updates");
  std::vector<Tensor> loaded;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Tensor& t = state.tensor(std::to_string(i));
    DEFT_CHECK(t.sizes() == averages_[i].sizes(), ValueError,
               "ExponentialMovingAverage: average {} is {} in the state, {} here; is this the state of another model?",
               i, describe(t.meta()), describe(averages_[i].meta()));
    loaded.push_back(t.device() == averages_[i].device() ? t : t.to(averages_[i].device()));
  }
  copy_all(loaded, averages_, Site::current());
  updates_ = updates;
}

}  // namespace deft::optim
