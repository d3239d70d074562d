// What the rules of loops decide from figures alone: also for those who have measured.
#pragma once

#include <optional>

#include "doctor/rule.h"
#include "runtime/dtype.h"
#include "runtime/parallel.h"

namespace deft::doctor {

// D016 by measurement: the same work timed with autocast and without. Nothing where autocast is not slower beyond
// `noise`, a share of the time.
struct AutocastTimes {
  double f32_seconds = 0, autocast_seconds = 0;
  DType dtype = DType::bf16;
  double noise = 0.02;
};
std::optional<Finding> slow_autocast(const AutocastTimes& times, const Site& site);

// Whether GEMMs in this type run faster than in f32 on this CPU, at the instruction-set level in use.
bool has_fast_products(DType dtype);

// D019: threads that want to run, and the CPUs' worth of time there is for them.
std::optional<Finding> oversubscribed(int threads, const ThreadChoice& machine, const Site& set_at);

}  // namespace deft::doctor
