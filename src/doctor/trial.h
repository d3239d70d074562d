// Which of two ways to do the same work is faster, on a machine that has other things to do.
//
// Both run in turn, in pairs whose order is drawn, each order as often as the other: what slows the machine for a while
// slows both. The ratios of the pairs decide by their median and the sign test's interval for it, which outliers do not
// move and which assumes nothing about how times are distributed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace deft::doctor {

// Undecided: out of time or pairs before the interval said anything, or the pairs differ among themselves by more than
// the two ways do.
enum class Verdict : uint8_t { helps, hurts, no_difference, undecided };
const char* name_of(Verdict verdict);  // "helps", "hurts", "no difference", "undecided"

// Thrown by a run that ends early because its time is over; its measurement is discarded.
struct OutOfTime {};

struct TrialOptions {
  // A difference below `least` is none, whatever the interval says; one that surely lies below `most` is looked into no
  // further.
  double least = 0.02, most = 0.04;
  int max_pairs = 400;
  std::function<bool()> out_of_time = [] { return false; };  // asked between pairs
  uint64_t seed = 1;                                         // of the order
};

struct TrialResult {
  Verdict verdict = Verdict::undecided;
  double speedup = 1, low = 0, high = 0;  // of `after`: before / after; the interval holds it in 99 of 100 cases
  double before = 0, after = 0;           // times of a typical pair; their ratio is the speedup
  double spread = 0;                      // of the logarithms of the pairs' ratios: half of the way between quartiles
  int pairs = 0;

  bool decided() const { return verdict != Verdict::undecided; }
};

// Each call does one unit of work and returns the seconds it took, or throws OutOfTime, which ends the trial; both have
// run before, so that no pair is the first.
// Without time there are no pairs, and `high` is 0.
TrialResult run_trial(const std::function<double()>& before, const std::function<double()>& after,
                      const TrialOptions& options = {});

// The median's interval by the sign test: holds it in at least `confidence` of all cases. Fewer samples than that takes
// give the widest there is, {-inf, inf}.
struct Interval {
  double low, median, high;
};
Interval median_interval(std::span<const double> samples, double confidence);

}  // namespace deft::doctor
