#include "profile/device_time.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

namespace deft::profile {

std::vector<TimeSpan> host_spans(const HostZones& host, const std::vector<bool>& asks) {
  std::vector<TimeSpan> spans;
  for (const HostZones::Piece& piece : host.pieces()) {
    const auto zone = static_cast<size_t>(piece.zone);
    const Bucket bucket = host.zones()[zone].event->bucket;
    const bool launches = !asks.empty() && asks[zone] && is_kernel(bucket);
    spans.push_back({piece.begin, piece.end, launches ? Bucket::dispatch : bucket});
  }
  return spans;
}

DeviceShares share_time(std::span<const TimeSpan> host, std::span<const TimeSpan> device, double wall_seconds) {
  DeviceShares shares;
  double known = 0;
  const auto add = [&](Bucket bucket, double seconds) {
    shares.seconds[static_cast<size_t>(bucket)] += seconds;
    known += seconds;
  };
  size_t h = 0;
  // The host has the time between two kernels.
  const auto add_gap = [&](double begin, double end) {
    for (; h < host.size() && host[h].begin < end; ++h) {
      add(host[h].bucket, std::max(0.0, std::min(end, host[h].end) - std::max(begin, host[h].begin)));
      if (host[h].end > end) return;  // goes on in the next gap
    }
  };
  double at = 0;
  for (const TimeSpan& d : device) {
    const double begin = std::clamp(d.begin, at, wall_seconds), end = std::clamp(d.end, at, wall_seconds);
    add_gap(at, begin);
    add(d.bucket, end - begin);
    shares.device_seconds[static_cast<size_t>(d.bucket)] += end - begin;
    shares.busy_seconds += end - begin;
    at = end;
  }
  add_gap(at, wall_seconds);
  add(Bucket::other, std::max(0.0, wall_seconds - known));
  return shares;
}

namespace {

// What lies behind `from`, as if that were the start.
std::vector<TimeSpan> since(std::span<const TimeSpan> spans, double from) {
  std::vector<TimeSpan> later;
  for (const TimeSpan& s : spans)
    if (s.end > from) later.push_back({std::max(s.begin, from) - from, s.end - from, s.bucket});
  return later;
}

}  // namespace

void add_device_time(Profile& profile, std::span<const TimeSpan> host, std::span<const TimeSpan> device,
                     double known_from) {
  const double known = profile.wall_seconds - known_from;
  if (!(known > 0)) return;
  const DeviceShares shares = share_time(since(host, known_from), since(device, known_from), known);
  const double scale = profile.wall_seconds / known;
  for (size_t i = 0; i < shares.seconds.size(); ++i) {
    profile.seconds[i] = scale * shares.seconds[i];
    profile.device_seconds[i] = scale * shares.device_seconds[i];
  }
  profile.device_busy_seconds = scale * shares.busy_seconds;
}

Bucket bucket_of(const DeviceActivity& a) {
  if (a.kind == DeviceActivity::Kind::copy) return Bucket::copy;
  // Library kernels are recognised by their names; our GEMM kernels contain one of these words, too.
  for (const char* word :
       {"gemm", "gemv", "conv", "nvjet", "xmma", "cutlass", "splitK", "attention", "fmha", "dgrad", "wgrad"})
    if (a.name.find(word) != a.name.npos && a.name.find("convert") == a.name.npos) return Bucket::linear_algebra;
  return Bucket::kernel;
}

// "deft::cuda::(anonymous namespace)::map_last<...>(...)" -> "map_last".
std::string short_kernel_name(const std::string& mangled) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> plain(nullptr, std::free);
  if (mangled.starts_with("_Z")) plain.reset(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status));
  std::string name = plain ? plain.get() : mangled;
  for (size_t at; (at = name.find("(anonymous namespace)::")) != name.npos;) name.erase(at, 23);
  if (name.starts_with("void ")) name.erase(0, 5);
  name.resize(std::min(name.size(), name.find_first_of("<(")));
  if (const size_t cut = name.rfind("::"); cut != name.npos) name.erase(0, cut + 2);
  return name.empty() ? mangled : name;
}

std::vector<DeviceRow> device_rows(const std::vector<DeviceActivity>& activities) {
  std::map<std::string, DeviceRow> rows;
  for (const DeviceActivity& a : activities) {
    DeviceRow& row = rows[a.name];
    row.bucket = bucket_of(a);
    ++row.calls;
    row.seconds += static_cast<double>(a.end_ns - a.begin_ns) * 1e-9;
  }
  std::vector<DeviceRow> all;
  for (auto& [name, row] : rows) {
    row.name = short_kernel_name(name);
    all.push_back(std::move(row));
  }
  std::sort(all.begin(), all.end(), [](const DeviceRow& a, const DeviceRow& b) { return a.seconds > b.seconds; });
  return all;
}

}  // namespace deft::profile
