// Chooses how many workers a loader has, from how long its consumer waits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace deft::data {

// What a loader works with.
struct LoaderSetting {
  int workers = 1, prefetch = 4;
  bool operator==(const LoaderSetting&) const = default;
};
// As many batches ahead that each worker has one under way and one is ready for each.
inline int prefetch_for(int workers) { return workers == 0 ? 1 : 2 * workers + 2; }

// Starts with one worker, doubles them while the consumer waits and batches come faster for it, and is done after a
// second or two.
class Tuner {
 public:
  explicit Tuner(int most_workers) : most_(most_workers) {}
  LoaderSetting setting() const { return {workers_, prefetch_for(workers_)}; }
  // After each batch, with totals: seconds, seconds waited, batches. True: setting() is another.
  bool observe(double now, double waited, int64_t batches);
  bool done() const { return done_; }
  const std::string& text() const { return text_; }  // one line for each decision

 private:
  bool decide(double rate, double waiting);
  void say(const std::string& line);

  int most_;
  int workers_ = 1, before_ = 0;  // before_: 0 until the first change
  double rate_before_ = 0;
  double changed_ = -1;  // when
  struct Totals {
    double now = 0, waited = 0;
    int64_t batches = 0;
  } from_;  // where the window begins
  bool done_ = false;
  std::string text_;
};

}  // namespace deft::data
