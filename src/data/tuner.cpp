#include "data/tuner.h"

#include <fmt/format.h>

#include <algorithm>

namespace deft::data {

namespace {

constexpr double kSettle = 0.05;  // seconds after a change that are not counted
constexpr double kWindow = 0.2;   // seconds that one measurement covers
constexpr int64_t kLeastBatches = 4;
constexpr double kLongest = 1;        // seconds, where batches are slow
constexpr double kWaiting = 0.05;     // share of time above which the loader is too slow
constexpr double kWorthwhile = 1.05;  // times as many batches

}  // namespace

bool Tuner::observe(double now, double waited, int64_t batches) {
  if (done_) return false;
  if (changed_ < 0) changed_ = now;
  if (now - changed_ <= kSettle) {
    from_ = {now, waited, batches};
    return false;
  }
  double elapsed = now - from_.now;
  int64_t made = batches - from_.batches;
  if (elapsed < kLongest && (elapsed < kWindow || made < kLeastBatches)) return false;
  double rate = static_cast<double>(made) / elapsed, waiting = (waited - from_.waited) / elapsed;
  changed_ = now;
  from_ = {now, waited, batches};
  return decide(rate, std::clamp(waiting, 0.0, 1.0));
}

bool Tuner::decide(double rate, double waiting) {
  int percent = static_cast<int>(waiting * 100 + 0.5);
  if (before_ > 0 && rate < rate_before_ * kWorthwhile) {
    say(fmt::format("no faster with {0}; {0} -> {1} workers", workers_, before_));
    workers_ = before_;
    done_ = true;
    return true;
  }
  if (waiting > kWaiting && workers_ < most_) {
    before_ = workers_;
    rate_before_ = rate;
    workers_ = std::min(2 * workers_, most_);
    say(fmt::format("data-bound: {} % waiting; {} -> {} workers", percent, before_, workers_));
    return true;
  }
  done_ = true;
  if (waiting > kWaiting)
    say(fmt::format("data-bound: {} % waiting; {} workers are the most this machine has threads for", percent,
                    workers_));
  else
    say(fmt::format("{} % waiting; {} worker{}, {} batches ahead", percent, workers_, workers_ == 1 ? "" : "s",
                    prefetch_for(workers_)));
  return false;
}

void Tuner::say(const std::string& line) { text_ += text_.empty() ? line : "\n" + line; }

}  // namespace deft::data
