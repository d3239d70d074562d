#include "runtime/sync.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "runtime/context.h"

namespace deft {

namespace {

std::atomic<int64_t> syncs{0};
std::atomic<void (*)(const char*, const Site&)> sync_hook{nullptr};
struct Log {
  std::mutex mutex;
  std::vector<SyncRecord> lines;
};
Log& log() {
  static auto* l = new Log;  // never destroyed: threads may outlive static destruction
  return *l;
}

void remember(const char* what, const Site& site) {
  std::lock_guard lock(log().mutex);
  std::vector<SyncRecord>& lines = log().lines;
  for (SyncRecord& r : lines)
    if (r.what == what && r.site.line() == site.line() && !std::strcmp(r.site.file_name(), site.file_name())) {
      ++r.count;
      return;
    }
  if (lines.size() < kSyncLogLines - 1) {
    lines.push_back({what, site, 1});
  } else if (lines.size() == kSyncLogLines - 1) {
    lines.push_back({"elsewhere", Site(), 1});
  } else {
    ++lines.back().count;
  }
}

}  // namespace

SyncGuard::SyncGuard(SyncPolicy policy) : outer_(context().sync) { context().sync = policy; }
SyncGuard::~SyncGuard() { context().sync = outer_; }

int64_t sync_count() { return syncs.load(std::memory_order_relaxed); }
std::vector<SyncRecord> sync_log() {
  std::lock_guard lock(log().mutex);
  return log().lines;
}
void clear_sync_log() {
  std::lock_guard lock(log().mutex);
  log().lines.clear();
}

void count_sync(const char* what, const Site& site) {
  SyncPolicy policy = context().sync;
  Site user = effective_site(site);
  DEFT_CHECK(policy != SyncPolicy::forbid, SyncError,
             "{}: at {} the host would wait for the device, and a SyncGuard forbids it here; keep the value on the "
             "device or allow it with SyncGuard{{SyncPolicy::allow}}",
             what, to_string(user));
  syncs.fetch_add(1, std::memory_order_relaxed);
  if (policy == SyncPolicy::log) remember(what, user);
  if (!(context().bits & kProfile)) return;
  if (auto* hook = sync_hook.load(std::memory_order_acquire)) hook(what, user);
}

void set_sync_hook(void (*hook)(const char* what, const Site& site)) {
  sync_hook.store(hook, std::memory_order_release);
}

}  // namespace deft
