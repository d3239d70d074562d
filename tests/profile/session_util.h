// For tests of sessions: a clock the test sets, in microseconds, and rows by name.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "profile/collector.h"

namespace deft::profile {

inline std::atomic<uint64_t> fake_now{1000};
inline const FakeClock kFake{[] { return fake_now.load(); }, 1e-6};
inline void pass(uint64_t microseconds) { fake_now += microseconds; }
inline const ProfileOptions kOnFakeClock{.clock = &kFake};

inline double micros(const Profile& p, Bucket b) { return p[b] * 1e6; }

inline const OpRow* row_of(const Profile& p, const std::string& name, bool backward = false) {
  for (const OpRow& row : p.ops)
    if (row.name == name && row.backward == backward) return &row;
  return nullptr;
}
inline const FlameRow* stack_of(const Profile& p, const std::string& stack) {
  for (const FlameRow& row : p.flame)
    if (row.stack == stack) return &row;
  return nullptr;
}

inline void add_up(const Profile& p) { EXPECT_NEAR(p.sum(), p.wall_seconds, 1e-9 + 1e-6 * p.wall_seconds); }

}  // namespace deft::profile
