#include "doctor/trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/check.h"

namespace deft::doctor {

namespace {

constexpr double kConfidence = 0.99;
constexpr int kFirstLook = 8;  // fewer pairs have no interval of that confidence
// Pairs that differ among themselves by more than this say that the machine was not steady: what has all its threads
// running then looks slow, and is not. Only effects larger than the spread count there.
constexpr double kUnsteady = 0.1;

// Looks are rare, since each is a chance to be wrong: after 8, 12, 16, 24, 34 ... pairs, always whole blocks of two.
int next_look(int pairs) { return pairs < kFirstLook ? kFirstLook : (pairs * 7 / 5 + 1) / 2 * 2; }

double median(std::vector<double> v) {
  if (v.empty()) return std::numeric_limits<double>::quiet_NaN();
  size_t mid = v.size() / 2;
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(mid), v.end());
  if (v.size() % 2 == 1) return v[mid];
  return (v[mid] + *std::max_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(mid))) / 2;
}

// Half of the way between the quartiles: up to a quarter of outliers on each side does not move it.
double spread_of(std::vector<double> v) {
  if (v.size() < 2) return 0;
  std::sort(v.begin(), v.end());
  return (v[v.size() - 1 - v.size() / 4] - v[v.size() / 4]) / 2;
}

class Pairs {
 public:
  Pairs(const std::function<double()>& before, const std::function<double()>& after, uint64_t seed)
      : before_(before), after_(after), chance_(seed) {}

  // The first of two draws its order, the second has the other one: what drifts cancels.
  void add() {
    bool first = ratios_.size() % 2 == 0 ? (before_first_ = (chance_() & 1) != 0) : !before_first_;
    double b = 0, a = 0;
    if (first) b = before_();
    a = after_();
    if (!first) b = before_();
    DEFT_CHECK(b > 0 && a > 0, ValueError, "a unit of a trial took {} s and {} s, expected more than 0", b, a);
    ratios_.push_back(std::log(b / a));
    levels_.push_back(std::log(b * a) / 2);
  }

  TrialResult result() const {
    TrialResult r;
    r.pairs = static_cast<int>(ratios_.size());
    if (ratios_.empty()) return r;
    Interval i = median_interval(ratios_, kConfidence);
    r.speedup = std::exp(i.median), r.low = std::exp(i.low), r.high = std::exp(i.high);
    // By the same ratio: medians of each way's own times may say the contrary of the pairs where a machine slows down.
    const double level = median(levels_);
    r.before = std::exp(level + i.median / 2), r.after = std::exp(level - i.median / 2);
    r.spread = spread_of(ratios_);
    return r;
  }

 private:
  const std::function<double()>&before_, &after_;
  std::mt19937_64 chance_;
  bool before_first_ = true;
  std::vector<double> ratios_, levels_;  // logarithms of b / a, and of what lies between them
};

void judge(TrialResult& r, const TrialOptions& o) {
  const bool clear = r.spread <= kUnsteady || std::abs(std::log(r.speedup)) > r.spread;
  const bool helps = clear && r.low > 1 && r.speedup >= 1 + o.least;
  const bool hurts = clear && r.high < 1 && r.speedup <= 1 / (1 + o.least);
  const bool same = r.low > 1 / (1 + o.most) && r.high < 1 + o.most;
  r.verdict = helps ? Verdict::helps : hurts ? Verdict::hurts : same ? Verdict::no_difference : Verdict::undecided;
}

}  // namespace

const char* name_of(Verdict verdict) {
  constexpr const char* names[] = {"helps", "hurts", "no difference", "undecided"};
  return names[static_cast<int>(verdict)];
}

// The k-th smallest and the k-th largest of n samples hold the median unless fewer than k of them lie on one side of
// it: twice the binomial distribution of n fair coins below k.
Interval median_interval(std::span<const double> samples, double confidence) {
  std::vector<double> v(samples.begin(), samples.end());
  std::sort(v.begin(), v.end());
  constexpr double inf = std::numeric_limits<double>::infinity();
  Interval interval{-inf, median(v), inf};
  auto n = static_cast<double>(v.size());
  double below = 0;
  for (size_t k = 0; 2 * k + 1 < v.size(); ++k) {
    auto x = static_cast<double>(k);
    below += std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) - n * std::log(2.0));
    if (2 * below > 1 - confidence) break;
    interval.low = v[k], interval.high = v[v.size() - 1 - k];
  }
  return interval;
}

TrialResult run_trial(const std::function<double()>& before, const std::function<double()>& after,
                      const TrialOptions& o) {
  Pairs pairs(before, after, o.seed);
  TrialResult r;
  bool out_of_time = false;
  while (!r.decided() && r.pairs < o.max_pairs) {
    int look = std::min(next_look(r.pairs), o.max_pairs);
    try {
      for (int i = r.pairs; i < look && !(out_of_time = o.out_of_time()); ++i) pairs.add();
    } catch (const OutOfTime&) {
      out_of_time = true;
    }
    r = pairs.result();
    judge(r, o);
    if (out_of_time) break;
  }
  return r;
}

}  // namespace deft::doctor
