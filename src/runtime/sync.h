// Synchronisation of host and device, made visible. The only ops that make the host wait are item(), nonzero and other
// ops whose result's size depends on values, norms and checks of gradients that are returned as numbers, printing,
// copies from and to pageable memory, waiting for a copy under way before the host touches its memory, and
// synchronize() itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/site.h"

namespace deft {

enum class SyncPolicy : uint8_t { allow, log, forbid };

// On this thread, and in work it starts: count, count and remember, or throw SyncError.
class SyncGuard {
 public:
  explicit SyncGuard(SyncPolicy policy);
  ~SyncGuard();
  SyncGuard(const SyncGuard&) = delete;
  SyncGuard& operator=(const SyncGuard&) = delete;

 private:
  SyncPolicy outer_;
};

// Synchronisations made by this process so far.
int64_t sync_count();

// One line of the log: how often `what` happened at `site` under SyncPolicy::log. At most kSyncLogLines places are
// remembered; later ones count as "elsewhere".
struct SyncRecord {
  std::string what;
  Site site;
  int64_t count = 0;
};
inline constexpr int kSyncLogLines = 256;
std::vector<SyncRecord> sync_log();
void clear_sync_log();

// Called before the host waits for a device.
void count_sync(const char* what, const Site& site);

// Called at every wait on threads with kProfile; nullptr: none.
void set_sync_hook(void (*hook)(const char* what, const Site& site));

}  // namespace deft
