#include "doctor/data_rules.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/loader.h"
#include "data/shape_advisor.h"
#include "doctor/steps.h"
#include "doctor/trials.h"

namespace deft::doctor {

namespace {

// --- D018 --------------------------------------------------------------------------------------------------------

constexpr double kWaste = 0.3;
constexpr int64_t kPaddedBatches = 8;
constexpr size_t kLengths = 1 << 16;  // remembered per line

// The options of a loader are where it was made.
std::string made_at(const Site& site) {
  return site.line() ? fmt::format(" Its loader is made at {}.", to_string(site)) : "";
}

class PaddingWaste : public Rule {
 public:
  // Told before what was padded in the batch, on the same line.
  void batch_loaded(const void* loader, int64_t, double, const Site& site) override {
    loaders_[{site}] = static_cast<const data::DataLoader*>(loader)->made_at();
  }
  void padded(std::span<const int64_t> lengths, int64_t places, const Site& site) override {
    Padding& p = lines_[{site}];
    ++p.batches;
    p.places += places;
    for (int64_t length : lengths) p.tokens += length;
    const size_t room = std::min(kLengths - p.lengths.size(), lengths.size());
    p.lengths.insert(p.lengths.end(), lengths.begin(), lengths.begin() + static_cast<int64_t>(room));
    p.rows += static_cast<int64_t>(lengths.size());
  }
  void report(std::vector<Finding>& findings) override {
    for (const auto& [line, p] : lines_) {
      if (p.batches < kPaddedBatches || p.places <= 0) continue;
      const double waste = 1 - static_cast<double>(p.tokens) / static_cast<double>(p.places);
      if (waste <= kWaste) continue;
      findings.push_back(found(line, p, 100 * waste));
      if (auto loader = loaders_.find(line); loader != loaders_.end())
        findings.back().message += made_at(loader->second);
    }
  }

 private:
  struct Padding {
    int64_t batches = 0, tokens = 0, places = 0, rows = 0;
    std::vector<int64_t> lengths;
  };
  static Finding found(const Line& line, const Padding& p, double waste) {
    std::string message = fmt::format(
        "{:.1f} % of the places in {} batches are padding, which is computed like the rest.", waste, p.batches);
    Finding f = finding("D018", line.site, "");
    f.count = p.batches;
    f.figures = {{"waste_percent", waste}, {"places", static_cast<double>(p.places)}};
    const data::ShapeAdvice advice = data::advise_shapes(p.lengths, {.rows = std::max<int64_t>(1, p.rows / p.batches)});
    if (advice.waste_then < waste) {
      std::string ends;
      for (int64_t b : advice.boundaries) ends += (ends.empty() ? "" : ", ") + std::to_string(b);
      message += fmt::format(" A BucketSampler with boundaries {{{}}} would spend {:.1f} %.", ends, advice.waste_then);
      f.figures.emplace_back("waste_percent_with_buckets", advice.waste_then);
    }
    f.message = std::move(message);
    return f;
  }
  std::map<Line, Padding> lines_;
  std::map<Line, Site> loaders_;  // the lines that made them
};

// --- D020 --------------------------------------------------------------------------------------------------------

constexpr double kWaiting = 0.2, kLeastSeconds = 1;
constexpr int64_t kWarmUp = 5, kLeastBatches = 20;

class DataBoundLoop : public Rule {
 public:
  explicit DataBoundLoop(std::function<double()> seconds) : seconds_(std::move(seconds)) {}
  void op_ran(const OpDef&, std::span<const Tensor* const>, std::span<const Tensor>, bool, const Site&) override {
    work();
  }
  void plan_ran(const void*, const Site&) override { work(); }
  void batch_loaded(const void* loader, int64_t, double waited, const Site& site) override {
    const double now = seconds_();
    Loop& loop = loops_[loader];
    // Ops after the wait began are the loader's own, where it has no workers.
    const bool worked = first_work_ >= 0 && first_work_ < now - waited;
    // Many batches of another loader in between: another loop, a validation after each epoch.
    const bool same_loop = loop.others <= 1;
    if (++loop.batches > kWarmUp && same_loop) {
      if (worked) {
        ++loop.steps;
        loop.waited += waited;
        loop.elapsed += now - loop.last;
      } else {
        ++loop.idle;
      }
    }
    for (auto& [other, l] : loops_)
      if (other != loader) ++l.others;
    loop.others = 0;
    loop.last = now;
    loop.site = site;
    loop.made_at = static_cast<const data::DataLoader*>(loader)->made_at();
    first_work_ = -1;
  }
  void report(std::vector<Finding>& findings) override {
    for (const auto& [loader, loop] : loops_) {
      if (loop.steps < kLeastBatches || loop.elapsed < kLeastSeconds || loop.idle > loop.steps) continue;
      const double share = loop.waited / loop.elapsed;
      if (share <= kWaiting) continue;
      const double steps = static_cast<double>(loop.steps);
      Finding f = finding(
          "D020", loop.site,
          fmt::format("The loop waits for batches {:.0f} % of its time: {:.2f} of {:.2f} ms per step.{}", 100 * share,
                      1e3 * loop.waited / steps, 1e3 * loop.elapsed / steps, made_at(loop.made_at)));
      f.count = loop.steps;
      f.figures = {{"waiting_percent", 100 * share},
                   {"wait_ms_per_step", 1e3 * loop.waited / steps},
                   {"step_ms", 1e3 * loop.elapsed / steps}};
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Loop {
    Site site, made_at;
    int64_t batches = 0, steps = 0, idle = 0;  // idle: nothing was done with the batch
    int64_t others = 0;                        // batches of other loaders since its last
    double waited = 0, elapsed = 0, last = 0;
  };
  void work() {
    if (first_work_ < 0) first_work_ = seconds_();
  }
  std::function<double()> seconds_;
  std::map<const void*, Loop> loops_;
  double first_work_ = -1;  // since the last batch
};

}  // namespace

std::unique_ptr<Rule> make_data_bound_rule(std::function<double()> seconds) {
  auto rule = std::make_unique<DataBoundLoop>(std::move(seconds));
  rule->events = events_of<DataBoundLoop>();
  return rule;
}

std::vector<std::unique_ptr<Rule>> make_data_rules() {
  std::vector<std::unique_ptr<Rule>> rules;
  rules.push_back(make_rule<PaddingWaste>());
  rules.push_back(make_data_bound_rule(steady_seconds));
  return rules;
}

}  // namespace deft::doctor
