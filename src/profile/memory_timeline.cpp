#include "profile/memory_timeline.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include "base/check.h"
#include "core/engine.h"
#include "core/graph_stats.h"
#include "profile/memory_ledger.h"
#include "runtime/memory_watch.h"
#include "runtime/per_thread.h"
#include "runtime/profile_hook.h"

namespace deft::profile {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastPoints = 4;
constexpr size_t kMostMakers = 4096;  // lines of a program; what goes beyond counts as unknown
constexpr size_t kUnknown = 0;        // the maker of storages without a recorded zone or creation

// An op at a line. Names live as long as the process, files too: their addresses will do.
struct Maker {
  const char* op = "";
  const char* file = "";
  uint32_t line = 0;
  bool backward = false;
  auto operator<=>(const Maker&) const = default;
};

std::string place_of(const Maker& m) {
  if (m.line == 0) return "";
  const std::string file = m.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(m.line);
}

MemoryUse minus(MemoryUse a, const MemoryUse& b) {
  a.total -= b.total;
  for (size_t i = 0; i < a.by_category.size(); ++i) a.by_category[i] -= b.by_category[i];
  return a;
}

}  // namespace

const char* title_of(MemoryCategory category) {
  constexpr const char* titles[kMemoryCategoryCount] = {"parameters", "gradients", "optimizer", "saved for backward",
                                                        "workspace",  "data",      "other"};
  return titles[static_cast<int>(category)];
}

struct MemoryRecorder::Impl final : MemoryWatch {
  struct Block {
    size_t maker;
    int64_t bytes;
    MemoryCategory category;
    bool on_device;
  };
  struct Now {
    MemoryPoint host, device;
  };

  explicit Impl(const MemoryRecorderOptions& options)
      : profiling("memory"), ledgers{MemoryLedger(options.most_points), MemoryLedger(options.most_points)} {
    makers.emplace(Maker{}, kUnknown);
    const Now now = look();
    host_start = now.host.use, device_start = now.device.use;
    ledgers[0].end(now.host);
    ledgers[1].end(now.device);
  }

  Now look() {
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    const MemoryUse device = device_memory_live();
    peak_saved = std::max(peak_saved, graph_stats().saved_bytes);
    return {{seconds, minus(memory_live(), device)}, {seconds, device}};
  }
  Now prepare() {
    const Now now = look();
    ledgers[0].begin(now.host);
    ledgers[1].begin(now.device);
    return now;
  }
  void finish(const Now& now) {
    ledgers[0].end(now.host);
    devices_used |= now.device.use.total > 0;
    if (devices_used) ledgers[1].end(now.device);
  }
  void hold(const Block& b, int64_t sign) { ledgers[b.on_device].hold(b.maker, b.category, sign * b.bytes, sign); }

  size_t number_of(const Maker& maker) {
    if (auto known = makers.find(maker); known != makers.end()) return known->second;
    if (makers.size() == kMostMakers) return kUnknown;
    return makers.emplace(maker, makers.size()).first->second;
  }
  size_t number_of(const char* op, const Site& at) {
    const Site site = effective_site(at);
    return number_of({op, site.file_name(), site.line(), in_backward()});
  }

  void made(const MemoryBlock& block) noexcept override try {
    std::lock_guard lock(mutex);
    ++storages;
    const OpenZone zone = innermost_zone();
    const Now now = prepare();
    const size_t maker = zone.name ? number_of(zone.name, zone.site) : kUnknown;
    const Block made{maker, block.bytes, block.category, !block.device.is_cpu()};
    if (alive.emplace(block.owner, made).second) hold(made, 1);
    finish(now);
  } catch (const std::bad_alloc&) {  // the run comes before its record
  }
  void named(const void* owner, const char* op, const Site& site) noexcept override try {
    change(owner, [&](Block& b) {
      if (b.maker == kUnknown) b.maker = number_of(op, site);
    });
  } catch (const std::bad_alloc&) {
  }
  void moved(const void* owner, MemoryCategory to) noexcept override try {
    change(owner, [&](Block& b) { b.category = to; });
  } catch (const std::bad_alloc&) {
  }
  void gone(const void* owner) noexcept override try {
    std::lock_guard lock(mutex);
    const Now now = prepare();
    if (auto node = alive.extract(owner)) hold(node.mapped(), -1);
    finish(now);
  } catch (const std::bad_alloc&) {
  }
  template <class F>
  void change(const void* owner, F&& f) {
    std::lock_guard lock(mutex);
    const auto found = alive.find(owner);
    if (found == alive.end()) return;
    const Now now = prepare();
    hold(found->second, -1);
    f(found->second);
    hold(found->second, 1);
    finish(now);
  }

  void region_ended(const std::string& path, const MemoryScope& seen) {
    std::lock_guard lock(mutex);
    auto r = std::find_if(regions.begin(), regions.end(), [&](const RegionPeak& p) { return p.path == path; });
    if (r == regions.end()) r = regions.insert(r, RegionPeak{path});
    ++r->runs;
    r->peak_bytes = std::max(r->peak_bytes, seen.peak_bytes());
    r->growth_bytes = std::max(r->growth_bytes, seen.peak_growth());
    for (size_t i = 0; i < r->category_peaks.size(); ++i)
      r->category_peaks[i] = std::max(r->category_peaks[i], seen.peak_bytes(static_cast<MemoryCategory>(i)));
  }

  std::vector<MemoryHolder> holders(const MemoryLedger& ledger) const;
  MemoryTimeline timeline(const MemoryLedger& ledger, const MemoryUse& start) const {
    return {start, ledger.peak(), ledger.points(), holders(ledger)};
  }

  ProfileScope profiling;
  MemoryScope scope;
  Clock::time_point began = Clock::now();
  mutable std::mutex mutex;
  MemoryLedger ledgers[2];  // host, devices
  MemoryUse host_start, device_start;
  std::map<Maker, size_t> makers;
  std::unordered_map<const void*, Block> alive;
  std::vector<RegionPeak> regions;
  int64_t storages = 0, peak_saved = 0;
  bool devices_used = false;
};

std::vector<MemoryHolder> MemoryRecorder::Impl::holders(const MemoryLedger& ledger) const {
  std::vector<MemoryHolder> out;
  MemoryUse unknown = ledger.peak().use;
  const std::vector<HeldByCategory>& held = ledger.held_at_peak();
  for (const auto& [maker, number] : makers) {
    for (size_t c = 0; number < held.size() && c < held[number].size(); ++c) {
      const Held& h = held[number][c];
      unknown.by_category[c] -= h.bytes;
      if (h.bytes > 0)
        out.push_back({number == kUnknown ? "unknown" : maker.op, place_of(maker), maker.backward,
                       static_cast<MemoryCategory>(c), h.bytes, h.count});
    }
  }
  for (size_t c = 0; c < unknown.by_category.size(); ++c)
    if (unknown.by_category[c] > 0)
      out.push_back({"", "", false, static_cast<MemoryCategory>(c), unknown.by_category[c], {}});
  const auto key = [](const MemoryHolder& h) { return std::tie(h.op, h.site, h.backward, h.category); };
  std::sort(out.begin(), out.end(), [&](const MemoryHolder& a, const MemoryHolder& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : key(a) < key(b);
  });
  return out;
}

// --- The recorder and its regions ----------------------------------------------------------------------------------

namespace {

std::mutex active_mutex;
MemoryRecorder::Impl* active_recorder = nullptr;
std::vector<const char*>& open_regions() { return PerThread<std::vector<const char*>>::get(); }

}  // namespace

MemoryRecorder::MemoryRecorder(const MemoryRecorderOptions& options) {
  DEFT_CHECK(options.most_points >= kLeastPoints, ValueError,
             "MemoryRecorder: a timeline of {} points was asked for, {} is the least", options.most_points,
             kLeastPoints);
  std::lock_guard lock(active_mutex);
  DEFT_CHECK(!active_recorder, ValueError, "MemoryRecorder: another one is recording; end that one first");
  impl_ = std::make_unique<Impl>(options);
  active_recorder = impl_.get();
  set_memory_watch(impl_.get());
}

MemoryRecorder::~MemoryRecorder() {
  set_memory_watch(nullptr);
  std::lock_guard lock(active_mutex);
  active_recorder = nullptr;
}

MemoryReport MemoryRecorder::report() const {
  std::lock_guard lock(impl_->mutex);
  const Impl::Now now = impl_->prepare();
  impl_->finish(now);
  MemoryReport r;
  r.seconds = now.host.seconds;
  r.host = impl_->timeline(impl_->ledgers[0], impl_->host_start);
  if (impl_->devices_used) r.device = impl_->timeline(impl_->ledgers[1], impl_->device_start);
  for (size_t i = 0; i < r.category_peaks.size(); ++i)
    r.category_peaks[i] = impl_->scope.peak_bytes(static_cast<MemoryCategory>(i));
  r.peak_saved_bytes = impl_->peak_saved;
  r.storages = impl_->storages;
  r.regions = impl_->regions;
  return r;
}

MemoryRegion::MemoryRegion(const char* name) {
  std::lock_guard lock(active_mutex);
  if (!active_recorder) return;
  open_regions().push_back(name);
  scope_.emplace();
}

MemoryRegion::~MemoryRegion() {
  if (!scope_) return;
  std::string path;
  for (const char* name : open_regions()) path += path.empty() ? name : std::string("/") + name;
  open_regions().pop_back();
  std::lock_guard lock(active_mutex);
  if (active_recorder) active_recorder->region_ended(path, *scope_);
}

}  // namespace deft::profile
