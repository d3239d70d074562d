#include "bench/engine.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "base/check.h"
#include "bench/interrupt.h"
#include "bench/statistics.h"
#include "bench/stopwatch.h"
#include "runtime/parallel.h"

namespace deft::bench {

namespace {

constexpr int kTurns = 5;
constexpr size_t kFewestBatches = 3;
constexpr double kSideNs = 6e8;  // of one side of a row, if that is more than kFewestBatches

Json number(double value, int decimals) { return value > 0 ? Json(rounded(value, decimals)) : Json(); }
// Three digits: errors are small.
Json digits(double value) { return std::isfinite(value) ? Json(std::stod(fmt::format("{:.3g}", value))) : Json(); }

// Every key in its place: all rows of a report have the same.
Json blank_row(const EngineRow& row, int threads) {
  Json out = {{"case", row.name},   {"family", row.family},
              {"dtype", row.dtype}, {"variant", row.variant.empty() ? Json() : Json(row.variant)},
              {"threads", threads}, {"count", row.count}};
  for (const char* key : {"ms", "gflops", "gb_per_s", "peak", "percent_of_peak", "scaling", "peer", "peer_ms",
                          "peer_ratio", "error", "error_bound"})
    out[key] = nullptr;
  return out;
}

void set_peer(Json& out, const std::string& name, double ns) {
  if (name.empty()) return;
  out["peer"] = name;
  out["peer_ms"] = rounded(ns * 1e-6, 6);
  out["peer_ratio"] = rounded(ns * 1e-6 / out["ms"].get<double>(), 3);
}

}  // namespace

EngineRun::EngineRun(const EngineOptions& options)
    : options_(options), peaks_(options.threads, options.quick), threads_before_(num_threads()) {
  set_num_threads(options.threads);
  // Peers' libraries read the variable at startup; when set later, some keep more threads.
  setenv("OMP_NUM_THREADS", std::to_string(options.threads).c_str(), 1);
  report_.machine["threads"] = options.threads;
  if (kKnowsNeighbours && !options.quick) neighbours_.emplace(options.threads);
  for (const std::string& program : options.peers) {
    peers_.push_back(Peer::start(program));
    DEFT_CHECK(peers_.back(), UnsupportedError,
               "the peer {} does not answer; run it by hand with --serve to see why, or leave --peer out", program);
  }
}

EngineRun::~EngineRun() { set_num_threads(threads_before_); }

bool EngineRun::wanted(const std::string& family, const std::string& dtype) {
  if (interrupted()) report_.interrupted = true;
  if (report_.interrupted) return false;
  return (options_.family.empty() || options_.family == family) && (options_.dtype.empty() || options_.dtype == dtype);
}

bool EngineRun::go_on(const std::string& what) {
  if (interrupted()) report_.interrupted = true;
  if (!report_.interrupted) options_.progress(what);
  return !report_.interrupted;
}

EngineRun::Limit EngineRun::limit_of(const EngineRow& row) {
  Limit limit;
  if (row.flops > 0) {
    const ComputePeak& peak = peaks_.compute(row.arithmetic);
    limit = {row.flops / peak.gflops, fmt::format("{} {}", bench::name_of(row.arithmetic), peak.instruction),
             [&, this](double ns) { return row.flops / peaks_.compute_now(row.arithmetic, ns); }};
  }
  if (row.bytes > 0) {
    double ns = row.bytes / peaks_.bandwidth(row.reads, row.writes);
    if (ns > limit.ns)
      limit = {ns, mix_name(row.reads, row.writes),
               [&, this](double about) { return row.bytes / peaks_.bandwidth_now(row.reads, row.writes, about); }};
  }
  return limit;
}

void EngineRun::add(const EngineRow& row, const std::function<void()>& ours, const std::vector<Contestant>& others) {
  Limit limit = limit_of(row);
  std::vector<Stopwatch> watches;
  watches.emplace_back(ours, options_.threads);
  for (const Contestant& other : others) watches.emplace_back(other.call, options_.threads);
  int batches = options_.quick ? 1 : options_.repeats;
  watches[0].batches(1);  // measures how long one batch takes
  if (!options_.quick)
    batches = std::clamp(static_cast<int>(kSideNs / watches[0].batch_ns()),
                         std::min(static_cast<int>(kFewestBatches), batches), batches);

  // The limit is measured between the batches of ours: clocks and neighbours change a machine's speed by half.
  std::vector<double> shares, quiet_shares;  // of the limit that was measured next
  std::vector<std::optional<double>> peer_ns(peers_.size());
  std::string mode = fmt::format("threads={}", options_.threads);
  for (int turn = 0; turn < kTurns; ++turn) {
    int now = batches * (turn + 1) / kTurns - batches * turn / kTurns;
    if (now == 0) continue;
    for (int i = 0; i < now; ++i) {
      if (neighbours_) neighbours_->wait_for_quiet();
      watches[0].batches(1);
      if (!limit.now) continue;
      const double ns = limit.now(watches[0].batch_ns());
      shares.push_back(ns / watches[0].last_ns());
      if (neighbours_ && neighbours_->quiet()) quiet_shares.push_back(shares.back());
    }
    for (size_t i = 1; i < watches.size(); ++i) {
      for (int k = 0; k < now; ++k) {
        if (neighbours_) neighbours_->wait_for_quiet();
        watches[i].batches(1);
      }
    }
    if (neighbours_ && !peers_.empty()) neighbours_->wait_for_quiet();
    for (size_t i = 0; i < peer_ns.size(); ++i) peer_ns[i] = peers_[i]->ns_per_op(row.name, mode, now);
  }

  std::string peer;
  double best = std::numeric_limits<double>::infinity(), ns = watches[0].ns();
  auto consider = [&](double time, const std::string& name) {
    if (time < best) best = time, peer = name;
  };
  for (size_t i = 0; i < others.size(); ++i) consider(watches[i + 1].ns(), others[i].name);
  for (size_t i = 0; i < peer_ns.size(); ++i)
    if (peer_ns[i]) consider(*peer_ns[i], peers_[i]->name());
  Json out = blank_row(row, options_.threads);
  out["ms"] = rounded(ns * 1e-6, 6);
  out["gflops"] = number(row.flops / ns, 2);
  out["gb_per_s"] = number(row.bytes / ns, 2);
  out["peak"] = limit.name;
  if (quiet_shares.size() >= kFewestBatches) shares = quiet_shares;
  if (!shares.empty()) out["percent_of_peak"] = rounded(100 * percentile(shares, 50), 2);
  set_peer(out, peer, best);
  out["error"] = digits(row.accuracy.error);
  out["error_bound"] = digits(row.accuracy.bound);
  report_.add(std::move(out));
}

void EngineRun::add_scaling(const EngineRow& row, const std::function<void()>& call) {
  if (options_.threads == 1) return;
  Stopwatch one(call, 2), all(call, 2);  // wall time for both
  for (int i = 0; i < (options_.quick ? 1 : std::max(options_.repeats, 15)); ++i) {
    if (interrupted()) break;
    if (neighbours_) neighbours_->wait_for_quiet();
    set_num_threads(1);
    one.batches(1);
    set_num_threads(options_.threads);
    all.batches(1);
  }
  set_num_threads(options_.threads);
  Json out = blank_row(row, options_.threads);
  out["case"] = fmt::format("{}: {} threads over 1", row.name, options_.threads);
  out["family"] = "scaling";
  out["ms"] = rounded(all.ns() * 1e-6, 6);
  out["scaling"] = rounded(one.ns() / all.ns(), 3);
  report_.add(std::move(out));
}

void EngineRun::add_total(const std::string& name, const std::string& family, const std::string& dtype,
                          const std::string& variant) {
  double ms = 0, peer_ms = 0, limit_ms = 0, gflop = 0;
  bool peer_everywhere = true;
  std::string peer;
  int64_t count = 0;
  for (const Json& row : report_.results) {
    if (row["family"] != family || row["dtype"] != dtype) continue;
    if (!variant.empty() && row["variant"] != variant) continue;
    auto times = row["count"].get<int64_t>();
    double all = static_cast<double>(times) * row["ms"].get<double>();
    count += times;
    ms += all;
    limit_ms += all * row["percent_of_peak"].get<double>() / 100;
    gflop += all * 1e-3 * row["gflops"].get<double>();
    peer_everywhere = peer_everywhere && row["peer_ms"].is_number();
    if (!peer_everywhere) continue;
    peer_ms += static_cast<double>(times) * row["peer_ms"].get<double>();
    peer = row["peer"];
  }
  if (count == 0) return;
  Json out =
      blank_row({.name = fmt::format("{}: all {}", name, count), .family = "total", .dtype = dtype, .variant = variant},
                options_.threads);
  out["ms"] = rounded(ms, 6);
  out["gflops"] = number(gflop / ms * 1e3, 2);
  out["peak"] = "of each, by time";
  out["percent_of_peak"] = rounded(100 * limit_ms / ms, 2);
  if (peer_everywhere) set_peer(out, peer, peer_ms * 1e6);
  report_.add(std::move(out));
}

void EngineRun::add_bar(const Bar& bar, const std::function<bool(const Json&)>& in) {
  double logs = 0, worst = std::numeric_limits<double>::infinity();
  int count = 0;
  Json worst_case;
  for (const Json& row : report_.results) {
    if (!row.contains(bar.key) || !row[bar.key].is_number() || !in(row)) continue;
    double value = row[bar.key];
    logs += std::log(value);
    ++count;
    if (value < worst) worst = value, worst_case = row["case"];
  }
  if (count == 0) return;
  report_.bars.push_back({{"bar", bar.name},
                          {"unit", bar.unit},
                          {"must", bar.must},
                          {"aim", bar.aim},
                          {"value", rounded(std::exp(logs / count), 2)},
                          {"worst", rounded(worst, 2)},
                          {"worst_case", worst_case},
                          {"rows", count}});
}

Report EngineRun::finish() {
  report_.peaks = peaks_.to_json();
  if (neighbours_) report_.machine["waited_for_neighbours_s"] = rounded(neighbours_->waited_s(), 1);
  return std::move(report_);
}

}  // namespace deft::bench
