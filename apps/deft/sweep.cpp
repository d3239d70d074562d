#include "sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "runtime/parallel.h"

namespace deft::cli {

namespace {

constexpr size_t kMostValues = 1000;

// Takes a number from the front.
bool take(std::string_view& text, int64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

struct Range {
  int64_t first = 0, last = 0, step = 1;
  bool doubling = false;  // by factors of `step`
};

bool parse_range(std::string_view text, Range& r) {
  if (!take(text, r.first)) return false;
  r.last = r.first;
  if (!text.empty()) {
    if (!take(text, '-') || !take(text, r.last)) return false;
    r.doubling = take(text, '*');
    if ((r.doubling || take(text, '+')) && !take(text, r.step)) return false;
  }
  return text.empty() && r.first <= r.last && r.step >= (r.doubling ? 2 : 1);
}

}  // namespace

std::vector<int64_t> parse_sweep(const std::string& text, int64_t low, int64_t high) {
  std::vector<int64_t> values;
  for (size_t at = 0; at <= text.size();) {
    size_t comma = std::min(text.find(',', at), text.size());
    std::string part = text.substr(at, comma - at);
    at = comma + 1;
    Range r;
    DEFT_CHECK(parse_range(part, r) && low <= r.first && r.last <= high && r.step <= high, ValueError,
               "found '{}', expected a whole number from {} to {}, or several: 1,8,32, 1-64*2, 1-9+2", part, low, high);
    for (int64_t v = r.first; v <= r.last; v = r.doubling ? v * r.step : v + r.step) {
      if (std::find(values.begin(), values.end(), v) == values.end()) values.push_back(v);
      DEFT_CHECK(values.size() <= kMostValues, ValueError, "found '{}', which is more than {} values", text,
                 kMostValues);
    }
  }
  return values;
}

void add_sweep_flag(Command command, const std::string& names, std::vector<int64_t>& values, const std::string& help,
                    int64_t low, int64_t high) {
  auto check = [low, high](const std::string& text) {
    try {
      parse_sweep(text, low, high);
      return std::string();
    } catch (const ValueError& error) {
      return std::string(error.what());
    }
  };
  command
      .add_option(
          names, [&values, low, high](const std::string& text) { values = parse_sweep(text, low, high); }, help)
      .check(check)
      .type_name("N,...");
}

void add_sweep_flags(Command command, Sweep& sweep) {
  add_sweep_flag(command, "-b,--batch", sweep.batches,
                 "Batch sizes; default: each model's own. Several: 1,8,32, 1-64*2 (doubling), 1-9+2 (steps of two)", 1,
                 65536);
  add_sweep_flag(command, "-t,--threads", sweep.threads, "Threads, one number or several; default: what deft info says",
                 1, 1024);
}

bench::Report run_sweep(const Sweep& sweep, const std::function<bench::Report(int64_t)>& measure) {
  bench::Report all;
  bool first = true;
  for (int64_t threads : sweep.threads.empty() ? std::vector<int64_t>{0} : sweep.threads) {
    if (threads > 0) set_num_threads(static_cast<int>(threads));
    for (int64_t batch : sweep.batches.empty() ? std::vector<int64_t>{0} : sweep.batches) {
      bench::Report part = measure(batch);
      if (std::exchange(first, false)) all.machine = part.machine;
      for (bench::Json& row : part.results) {
        if (sweep.threads.size() > 1) row["threads"] = threads;
        all.results.push_back(std::move(row));
      }
      all.interrupted = part.interrupted;
      if (all.interrupted) return all;
    }
  }
  return all;
}

std::string threads_text(const Sweep& sweep, const bench::Report& report) {
  if (sweep.threads.size() > 1) return "";
  int threads = report.machine["threads"];
  return fmt::format(", {} thread{}", threads, threads == 1 ? "" : "s");
}

}  // namespace deft::cli
