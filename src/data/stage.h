// The stages of data loading, and the time spent in each.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace deft::data {

enum class Stage : uint8_t { read, decode, transform, collate, wait, copy };
inline constexpr int kStages = 6;
const char* name_of(Stage stage);

// Nanoseconds by stage, of one thread. Each moment counts once: for the innermost scope.
struct StageTimes {
  std::array<int64_t, kStages> ns{};
  int current = -1;  // the stage that is running
  std::chrono::steady_clock::time_point since{};
};

class StageScope {
 public:
  StageScope(StageTimes& times, Stage stage) : times_(times), outer_(times.current) { change(static_cast<int>(stage)); }
  ~StageScope() { change(outer_); }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  void change(int to) {
    auto now = std::chrono::steady_clock::now();
    if (times_.current >= 0)
      times_.ns[static_cast<size_t>(times_.current)] +=
          std::chrono::duration_cast<std::chrono::nanoseconds>(now - times_.since).count();
    times_.current = to;
    times_.since = now;
  }
  StageTimes& times_;
  int outer_;
};

}  // namespace deft::data
