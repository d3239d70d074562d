#include "doctor/profile_json.h"

#include <algorithm>
#include <cmath>

namespace deft::doctor {

namespace {

using profile::DeviceRow;
using profile::MemoryHolder;
using profile::MemoryTimeline;
using profile::ModuleRow;
using profile::OpRow;
using profile::Profile;

Json rounded(double value, double per_unit) {
  return std::isfinite(value) ? Json(std::round(value * per_unit) / per_unit) : Json();
}
Json ms(double seconds) { return rounded(seconds * 1e3, 1e4); }
Json mb(int64_t bytes) { return rounded(static_cast<double>(bytes) / 1e6, 1e6); }
Json percent_of(double part, double whole) { return whole > 0 ? rounded(100 * part / whole, 1e2) : Json(); }
// A rate; null where there is no time or nothing was counted.
Json giga_per_s(double amount, double seconds) {
  return seconds > 0 && amount > 0 ? rounded(amount / 1e9 / seconds, 1e3) : Json();
}
Json known(double value) { return value > 0 ? rounded(value, 1e2) : Json(); }

Json bound_json(profile::Bound bound) { return bound == profile::Bound::unknown ? Json() : Json(name_of(bound)); }

// Without its activity, a device's kernels have only the time of their launch: no rates.
Json op_json(const OpRow& op, double wall, bool device_known) {
  const bool timed = !op.on_device || device_known;
  bool classed = op.bound != profile::Bound::unknown && op.of_limit > 0;
  return {{"name", op.name},
          {"pass", op.backward ? "backward" : "forward"},
          {"type", std::string(deft::name_of(op.dtype))},
          {"bucket", deft::name_of(op.bucket)},
          {"site", op.site},
          {"on", op.on_device ? "device" : "host"},
          {"calls", op.calls},
          {"ms", ms(op.kernel_seconds)},
          {"overhead_ms", ms(op.overhead_seconds)},
          {"percent", percent_of(op.seconds(), wall)},
          {"gflops", !timed ? Json() : giga_per_s(op.flops, op.kernel_seconds)},
          {"gb_per_s", !timed ? Json() : giga_per_s(op.bytes, op.kernel_seconds)},
          {"flops_per_byte", op.bytes > 0 && op.flops > 0 ? rounded(op.flops / op.bytes, 1e3) : Json()},
          {"bound", bound_json(op.bound)},
          {"of_limit_percent", classed ? rounded(100 * op.of_limit, 10) : Json()}};
}

Json module_json(const ModuleRow& m, double wall) {
  return {{"name", m.name},
          {"type", m.type},
          {"calls", m.calls},
          {"ms", ms(m.seconds)},
          {"self_ms", ms(m.self_seconds)},
          {"percent", percent_of(m.seconds, wall)}};
}

Json by_category(const MemoryUse& use) {
  Json out = Json::object();
  for (int i = 0; i < kMemoryCategoryCount; ++i)
    out[profile::title_of(static_cast<MemoryCategory>(i))] = mb(use.by_category[static_cast<size_t>(i)]);
  return out;
}

Json holder_json(const MemoryHolder& h) {
  return {{"op", h.op.empty() ? "made before" : h.op},
          {"pass", h.backward ? "backward" : "forward"},
          {"site", h.site.empty() ? Json() : Json(h.site)},
          {"category", profile::title_of(h.category)},
          {"mb", mb(h.bytes)},
          {"count", h.count ? Json(*h.count) : Json()}};
}

Json timeline_json(const MemoryTimeline& t) {
  constexpr size_t kMostHolders = 20;
  Json points = Json::array(), holders = Json::array();
  for (const profile::MemoryPoint& p : t.points) {
    Json point = {{"ms", ms(p.seconds)}};
    point.update(by_category(p.use));
    points.push_back(std::move(point));
  }
  for (size_t i = 0; i < std::min(kMostHolders, t.holders.size()); ++i) holders.push_back(holder_json(t.holders[i]));
  return {{"peak_mb", mb(t.peak.use.total)},
          {"peak_by_category_mb", by_category(t.peak.use)},
          {"timeline", points},
          {"holders", holders}};
}

}  // namespace

Json profile_json(const Profile& p, const profile::MachinePeaks& peaks, size_t most_ops) {
  Json buckets = Json::array(), ops = Json::array(), modules = Json::array();
  for (int i = 0; i < kBucketCount; ++i) {
    auto bucket = static_cast<Bucket>(i);
    buckets.push_back({{"name", deft::name_of(bucket)},
                       {"s", rounded(p[bucket], 1e7)},
                       {"percent", percent_of(p[bucket], p.wall_seconds)}});
  }
  size_t count = most_ops > 0 ? std::min(most_ops, p.ops.size()) : p.ops.size();
  for (size_t i = 0; i < count; ++i) ops.push_back(op_json(p.ops[i], p.wall_seconds, p.device_busy_seconds >= 0));
  for (const ModuleRow& m : p.modules) modules.push_back(module_json(m, p.wall_seconds));
  Json kernels = Json::array();
  for (const DeviceRow& d : p.device)
    kernels.push_back({{"name", d.name},
                       {"bucket", deft::name_of(d.bucket)},
                       {"calls", d.calls},
                       {"ms", ms(d.seconds)},
                       {"percent", percent_of(d.seconds, p.wall_seconds)}});
  return {{"wall_s", rounded(p.wall_seconds, 1e7)},
          {"sum_s", rounded(p.sum(), 1e7)},
          {"overhead_percent", percent_of(p.overhead_seconds, p.wall_seconds)},
          {"looked_percent", rounded(100 * p.looked_share, 100)},
          {"zones", p.zones},
          {"dropped", p.dropped},
          {"cpu_utilisation_percent", percent_of(p.cpu_seconds, p.wall_seconds * p.threads)},
          {"device_utilisation_percent",
           p.device_busy_seconds < 0 ? Json() : percent_of(p.device_busy_seconds, p.wall_seconds)},
          {"watching_percent", p.device_busy_seconds < 0 ? Json() : percent_of(p.watching_seconds, p.wall_seconds)},
          {"buckets", buckets},
          {"roofline",
           {{"on", peaks.of.empty() ? "host" : "device"},
            {"of", peaks.of.empty() ? Json() : Json(peaks.of)},
            {"gflops",
             {{"f32", known(peaks.f32)},
              {"f16", known(peaks.f16)},
              {"bf16", known(peaks.bf16)},
              {"int8", known(peaks.int8)}}},
            {"copy_gb_per_s", known(peaks.copy)},
            {"read_gb_per_s", known(peaks.read)}}},
          {"ops", ops},
          {"modules", modules},
          {"device_kernels", kernels}};
}

Json bottleneck_json(const Profile& p) {
  return {{"class", bound_json(p.bound)}, {"sentence", p.sentence.empty() ? Json() : Json(p.sentence)}};
}

Json memory_json(const profile::MemoryReport& r) {
  Json out = timeline_json(r.host);
  out["highest_by_category_mb"] = by_category({.by_category = r.category_peaks});
  out["saved_for_backward_peak_mb"] = mb(r.peak_saved_bytes);
  out["device"] = r.device ? timeline_json(*r.device) : Json();
  return out;
}

}  // namespace deft::doctor
