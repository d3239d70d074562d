// Who held memory when: live bytes by category over time, the ops that held the highest moment, peaks of named scopes.
//
//   MemoryRecorder recorder;
//   { MemoryRegion step("step"); train(); }
//   MemoryReport report = recorder.report();
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/memory.h"

namespace deft::profile {

const char* title_of(MemoryCategory category);  // "parameters", "saved for backward"

struct MemoryPoint {
  double seconds = 0;  // since the recording began
  MemoryUse use;
};

// Storages alive at the highest moment that one op at one line made.
struct MemoryHolder {
  std::string op;    // "conv2d", "created" (zeros() and the like), "unknown"; "" for what was made before the recording
  std::string site;  // "cnn.cpp:31"; "" where it is not known
  bool backward = false;
  MemoryCategory category = MemoryCategory::other;  // at the highest moment
  int64_t bytes = 0;
  std::optional<int64_t> count;  // of storages; not known of those made before the recording
};

// Of the host, or of all devices.
struct MemoryTimeline {
  MemoryUse start;                  // when the recording began
  MemoryPoint peak;                 // the highest moment
  std::vector<MemoryPoint> points;  // in order, a bounded number; the highest moment is always among them
  // Of the highest moment, the largest first. They add up to it, but for what other threads were just about to tell.
  std::vector<MemoryHolder> holders;
};

// A scope, identified by its name and the names of the enclosing scopes, over all its runs.
struct RegionPeak {
  std::string path;  // "epoch/step/forward"
  int64_t runs = 0;
  int64_t peak_bytes = 0;    // the highest of any run, host and devices
  int64_t growth_bytes = 0;  // the most that a run rose above its start
  std::array<int64_t, kMemoryCategoryCount> category_peaks{};
};

struct MemoryReport {
  double seconds = 0;
  MemoryTimeline host;
  std::optional<MemoryTimeline> device;                        // none: no byte was on a device
  std::array<int64_t, kMemoryCategoryCount> category_peaks{};  // each at its own highest moment, host and devices
  int64_t peak_saved_bytes = 0;     // kept for backward at most, batches included: graph_stats().saved_bytes
  int64_t storages = 0;             // made while recording
  std::vector<RegionPeak> regions;  // in the order they first ended
};

struct MemoryRecorderOptions {
  int most_points = 512;
};

// Records from its construction to report(), or until it is destroyed: all threads. Turns profiling on for this thread
// and what it starts, since only then it is known which op runs. One at a time: ValueError for a second.
class MemoryRecorder {
 public:
  explicit MemoryRecorder(const MemoryRecorderOptions& options = {});
  ~MemoryRecorder();
  MemoryRecorder(const MemoryRecorder&) = delete;
  MemoryRecorder& operator=(const MemoryRecorder&) = delete;

  MemoryReport report() const;  // up to now; goes on

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// A named part of what a recorder sees; nothing where there is none. Regions nest by thread.
class MemoryRegion {
 public:
  explicit MemoryRegion(const char* name);
  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

 private:
  std::optional<MemoryScope> scope_;
};

}  // namespace deft::profile
