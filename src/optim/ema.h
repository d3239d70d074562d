// A moving average of parameters, which often generalises better than their last values.
#pragma once

#include <vector>

#include "core/state.h"

namespace deft::optim {

struct EMAOptions {
  double decay = 0.999;
  bool warmup = false;  // the n-th update takes min(decay, (1 + n) / (10 + n)): the first values are soon forgotten
};

// In a function that compile() captures, plans call this object again: it must outlive them.
class ExponentialMovingAverage {
 public:
  // Averages begin as copies, in f32 for 16-bit tensors. Buffers may be among them; integers are copied, not averaged.
  explicit ExponentialMovingAverage(std::vector<Tensor> params, const EMAOptions& options = {},
                                    Site site = Site::current());
  ~ExponentialMovingAverage();
  ExponentialMovingAverage(const ExponentialMovingAverage&) = delete;
  ExponentialMovingAverage& operator=(const ExponentialMovingAverage&) = delete;

  // average += (1 - decay) * (parameter - average); after each optimizer step.
  void update(Site site = Site::current());
  int64_t updates() const { return updates_; }
  double decay() const;  // that the next update takes
  const std::vector<Tensor>& averages() const { return averages_; }
  // Writes the averages into the parameters for good.
  void copy_to_params(Site site = Site::current());

  // Puts the averages in the place of the parameters and, when it goes, the parameters back, bit for bit. One at a
  // time.
  class [[nodiscard]] Swap {
   public:
    ~Swap();
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    friend class ExponentialMovingAverage;
    Swap(ExponentialMovingAverage& ema, const Site& site);
    ExponentialMovingAverage& ema_;
    std::vector<Tensor> kept_;
    Site site_;
  };
  Swap swap_in(Site site = Site::current()) { return Swap(*this, site); }

  State state() const;  // shares memory with the averages
  void load_state(const State& state);

 private:
  std::vector<Tensor> params_, averages_;
  EMAOptions options_;
  int64_t updates_ = 0;
  bool swapped_ = false;
};

}  // namespace deft::optim
