#include "profile/device_peaks.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "core/grad_mode.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "runtime/backend.h"
#include "runtime/sync.h"

namespace deft::profile {

namespace {

double seconds_of(int calls, const auto& work) {
  synchronize(kCUDA);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) work();
  synchronize(kCUDA);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

// The least of some batches, each long enough for the two waits around it not to count.
double least_seconds(const auto& work) {
  constexpr double kBatchSeconds = 0.02;
  constexpr int kBatches = 4;
  seconds_of(2, work);  // libraries choose their kernels
  const int calls = std::clamp(static_cast<int>(kBatchSeconds / seconds_of(1, work)), 1, 200);
  double least = 1e9;
  for (int i = 0; i < kBatches; ++i) least = std::min(least, seconds_of(calls, work) / calls);
  return least;
}

double product_gflops(DType dtype, int64_t n) {
  const TensorOptions there(dtype, kCUDA);
  const Tensor a = ones({n, n}, there), b = ones({n, n}, there);
  return 2e-9 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) /
         least_seconds([&] { matmul(a, b); });
}

MachinePeaks measure(int64_t n, int64_t floats) {
  MachinePeaks p;
  p.of = device_properties(kCUDA).name;
  p.f32 = product_gflops(DType::f32, n);
  p.f16 = product_gflops(DType::f16, n);
  p.bf16 = product_gflops(DType::bf16, n);
  const Tensor from = ones({floats}, {DType::f32, kCUDA});
  Tensor to = ones({floats}, {DType::f32, kCUDA});
  const double gigabytes = 4e-9 * static_cast<double>(floats);
  p.copy = 2 * gigabytes / least_seconds([&] { to.copy_(from); });
  p.read = std::max(p.copy, gigabytes / least_seconds([&] { sum(from); }));
  return p;
}

MachinePeaks measured() {
  if (device_count(DeviceType::cuda) == 0) return {};
  ExecContext plain;
  plain.bits = kGradOff;
  ContextGuard guard(plain);
  for (int64_t n : {8192, 4096, 2048}) {
    try {
      return measure(n, n * n);
    } catch (const OutOfMemoryError&) {  // others use it, too: less will do
    }
  }
  return {};
}

}  // namespace

const MachinePeaks& device_peaks() {
  static const MachinePeaks& peaks = *new MachinePeaks(measured());  // never destroyed: threads may outlive main()
  return peaks;
}

}  // namespace deft::profile
