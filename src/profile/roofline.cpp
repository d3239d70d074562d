#include "profile/roofline.h"

#include <algorithm>
#include <cmath>

namespace deft::profile {

namespace {

// Bytes that take this part of a kernel's time explain it: memory is seldom read in the best way, and other programs
// use it, too. Softmax and gelu of 64 MB take five and six times as long as their bytes (one Neoverse-V1 core, `deft
// bench rows`): they are bound by their exponentials. Layer norm takes one and a half times as long.
constexpr double kExplains = 0.3;
// Lookups jump from line to line and wait for each.
constexpr double kExplainsMoves = 0.05;

Bound bound_of(const OpRow& row, const LimitTimes& limit) {
  if (row.bucket == Bucket::data_wait) return Bound::input;
  if (row.bucket == Bucket::copy) return Bound::copy;
  if (row.bucket == Bucket::sync) return Bound::sync;
  const double total = row.kernel_seconds + row.overhead_seconds;
  if (!(total > 0)) return Bound::unknown;
  if (overhead_of(row, limit) > total / 2) return Bound::overhead;
  if (limit.compute > 0 && limit.compute >= limit.memory) return Bound::compute;
  if (limit.memory > 0 && limit.memory >= kExplains * row.kernel_seconds) return Bound::memory;
  if (row.flops > 0) return limit.compute > 0 ? Bound::instructions : Bound::unknown;
  return limit.memory > 0 && limit.memory >= kExplainsMoves * row.kernel_seconds ? Bound::memory : Bound::unknown;
}

}  // namespace

LimitTimes limit_times(const OpRow& row, const MachinePeaks& peaks) {
  // Memory-bound GEMMs mostly read (weights); others read and write.
  const bool products = row.bucket == Bucket::linear_algebra;
  const bool in_parts = products && row.dtype == DType::f32 && peaks.f32_products > 0;
  const double flops = (in_parts ? peaks.f32_products : peaks.gflops(row.dtype)) * 1e9;
  const double bytes = (products ? peaks.read : peaks.copy) * 1e9;
  return {flops > 0 ? row.flops / flops : 0, bytes > 0 ? row.bytes / bytes : 0};
}

double overhead_of(const OpRow& row, const LimitTimes& limit) {
  const double calls = static_cast<double>(row.calls);
  const double unexplained = std::max(0.0, row.kernel_seconds - std::max(limit.compute, limit.memory));
  return std::min(row.overhead_seconds, calls * kMostOverhead) + std::min(unexplained, calls * kCallSeconds);
}

void classify(OpRow& row, const MachinePeaks& peaks, double core_share) {
  const LimitTimes limit = limit_times(row, peaks);
  const double least = std::max(limit.compute, limit.memory);
  row.of_limit = least > 0 && row.kernel_seconds > 0 ? std::min(1.0, least / row.kernel_seconds) : NAN;
  OpRow alone = row;
  alone.kernel_seconds *= core_share;
  alone.overhead_seconds *= core_share;
  // Beside a device's kernels the host may also load them, or wait until its queue has room: no price of a call.
  if (row.on_device)
    alone.overhead_seconds = std::min(alone.overhead_seconds, static_cast<double>(row.calls) * kMostOverhead);
  row.bound = bound_of(alone, limit);
}

void classify(Profile& profile, const MachinePeaks& host, const MachinePeaks& device) {
  const bool known = profile.device_busy_seconds >= 0 && device.copy > 0;
  for (OpRow& row : profile.ops) {
    if (!row.on_device) {
      classify(row, host, profile.core_share);
    } else if (known) {
      classify(row, device);
    } else {
      row.bound = Bound::unknown;
      row.of_limit = NAN;
    }
  }
}

}  // namespace deft::profile
