// The grad modes a benchmark compares.
#pragma once

#include <cstdint>
#include <optional>

#include "core/grad_mode.h"

namespace deft::bench {

enum class Mode : uint8_t { grad, no_grad, inference };
inline constexpr Mode kAllModes[] = {Mode::grad, Mode::no_grad, Mode::inference};

constexpr const char* name_of(Mode mode) {
  constexpr const char* names[] = {"grad", "no_grad", "inference"};
  return names[static_cast<int>(mode)];
}

class ModeScope {
 public:
  explicit ModeScope(Mode mode) {
    if (mode == Mode::no_grad) no_grad_.emplace();
    if (mode == Mode::inference) inference_.emplace();
  }

 private:
  std::optional<NoGradGuard> no_grad_;
  std::optional<InferenceModeGuard> inference_;
};

}  // namespace deft::bench
