#include "profile/roofline.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/parallel.h"

namespace deft::profile {
namespace {

// 100 GFLOP/s of f32, 400 of bf16, 40 GB/s.
MachinePeaks machine() {
  return {.of = {}, .threads = 2, .f32 = 100, .f16 = 100, .bf16 = 400, .int8 = 800, .copy = 40, .read = 50};
}

OpRow row(double flops, double bytes, int64_t calls, double kernel_seconds, double overhead_seconds = 0,
          Bucket bucket = Bucket::kernel) {
  OpRow r;
  r.name = "op";
  r.bucket = bucket;
  r.calls = calls;
  r.flops = flops, r.bytes = bytes;
  r.kernel_seconds = kernel_seconds, r.overhead_seconds = overhead_seconds;
  return r;
}
OpRow judged(OpRow r) {
  classify(r, machine());
  return r;
}

TEST(Roofline, LimitsComeFromThePeaksOfTheType) {
  OpRow r = row(2e9, 1e9, 1, 1, 0, Bucket::linear_algebra);
  EXPECT_DOUBLE_EQ(limit_times(r, machine()).compute, 0.02);
  EXPECT_DOUBLE_EQ(limit_times(r, machine()).memory, 0.02);  // products mostly read
  r.bucket = Bucket::kernel;
  EXPECT_DOUBLE_EQ(limit_times(r, machine()).memory, 0.025);
  r.dtype = DType::bf16;
  EXPECT_DOUBLE_EQ(limit_times(r, machine()).compute, 0.005);
  r.dtype = DType::f64;
  EXPECT_DOUBLE_EQ(limit_times(r, machine()).compute, 0.04);
  r.dtype = DType::i8;
  EXPECT_DOUBLE_EQ(limit_times(r, machine()).compute, 0.0025);
}

TEST(Roofline, F32ProductsInPartsHaveARoofOfTheirOwn) {
  MachinePeaks peaks = machine();
  peaks.f32_products = 250;
  OpRow r = row(2e9, 1e6, 1, 1, 0, Bucket::linear_algebra);
  EXPECT_DOUBLE_EQ(limit_times(r, peaks).compute, 0.008);
  r.dtype = DType::bf16;
  EXPECT_DOUBLE_EQ(limit_times(r, peaks).compute, 0.005);
  r.dtype = DType::f32, r.bucket = Bucket::kernel;
  EXPECT_DOUBLE_EQ(limit_times(r, peaks).compute, 0.02);
}

TEST(Roofline, LargeProductsAreComputeBound) {
  OpRow r = judged(row(1e9, 1e7, 1, 0.0125, 1e-6, Bucket::linear_algebra));
  EXPECT_EQ(r.bound, Bound::compute);
  EXPECT_NEAR(r.of_limit, 0.8, 1e-12);
}

TEST(Roofline, PassesOverLargeTensorsAreMemoryBound) {
  OpRow r = judged(row(1e7, 8e7, 10, 0.004, 1e-5));
  EXPECT_EQ(r.bound, Bound::memory);
  EXPECT_NEAR(r.of_limit, 0.5, 1e-12);
}

// Data in a cache comes faster than from memory: the limit holds for 1, never more.
TEST(Roofline, CachesMayBeatMemory) {
  OpRow r = judged(row(1e5, 8e5, 1, 1e-5));
  EXPECT_EQ(r.bound, Bound::memory);
  EXPECT_EQ(r.of_limit, 1);
}

// The bytes would take a hundredth of the time: it is not them.
TEST(Roofline, BytesThatDoNotExplainTheTimeAreNotBlamed) {
  EXPECT_EQ(judged(row(1e6, 8e6, 1, 0.02)).bound, Bound::instructions);  // many for each element
  EXPECT_EQ(judged(row(0, 8e6, 1, 0.02)).bound, Bound::unknown);         // a sort
  EXPECT_EQ(judged(row(0, 8e6, 1, 0.002)).bound, Bound::memory);         // a lookup, which waits for each line
}

// 0.125 operations a byte are never what the machine's arithmetic limits, however long they take.
TEST(Roofline, ComputeBoundTakesMoreArithmeticThanBytes) {
  for (double seconds : {1e-4, 1e-3, 1e-2, 1.0})
    for (Bucket bucket : {Bucket::kernel, Bucket::linear_algebra})
      for (double flops_per_byte : {0.01, 0.12, 1.0, 100.0}) {
        const OpRow r = judged(row(flops_per_byte * 1e7, 1e7, 1, seconds, 0, bucket));
        const LimitTimes limit = limit_times(r, machine());
        EXPECT_EQ(r.bound == Bound::compute, limit.compute >= limit.memory) << seconds << " s, " << flops_per_byte;
      }
}

TEST(Roofline, SmallOpsAreOverhead) {
  // 0.3 us of kernel and 0.8 us around it.
  EXPECT_EQ(judged(row(8e3, 96e3, 1000, 3e-4, 8e-4)).bound, Bound::overhead);
  // Nothing around it, as in a plan, but 1 us for 64 elements.
  EXPECT_EQ(judged(row(64e3, 768e3, 1000, 1e-3)).bound, Bound::overhead);
  // A product of a row: 0.5 us for 128 multiplications and additions.
  EXPECT_EQ(judged(row(128e3, 300e3, 1000, 5e-4, 5e-4, Bucket::linear_algebra)).bound, Bound::overhead);
}

// What is around a large op is fresh memory, not the price of a call.
TEST(Roofline, MappingMemoryIsNoOverhead) { EXPECT_EQ(judged(row(1e7, 8e7, 1, 0.002, 0.005)).bound, Bound::memory); }

TEST(Roofline, WaitingIsNamedAfterWhatItWaitsFor) {
  EXPECT_EQ(judged(row(0, 0, 3, 0.1, 0, Bucket::data_wait)).bound, Bound::input);
  EXPECT_EQ(judged(row(0, 0, 3, 0.1, 0, Bucket::copy)).bound, Bound::copy);
  EXPECT_EQ(judged(row(0, 0, 3, 0.1, 0, Bucket::sync)).bound, Bound::sync);
  EXPECT_EQ(judged(row(0, 0, 3, 0, 1e-6, Bucket::dispatch)).bound, Bound::overhead);
}

// A step goes over all parameters: by its bytes where they were told.
TEST(Roofline, OptimizersAreMeasuredByTheirPasses) {
  EXPECT_EQ(judged(row(0, 0, 3, 0.1, 0, Bucket::optimizer)).bound, Bound::unknown);
  EXPECT_EQ(judged(row(1e8, 2.4e9, 3, 0.1, 0, Bucket::optimizer)).bound, Bound::memory);
}

TEST(Roofline, NothingIsSaidWithoutFigures) {
  OpRow r = judged(row(0, 0, 1, 0.1));
  EXPECT_EQ(r.bound, Bound::unknown);
  EXPECT_TRUE(std::isnan(r.of_limit));
  r = row(1e9, 1e7, 1, 0.0125);
  classify(r, MachinePeaks{});  // no peaks: a device we know nothing of
  EXPECT_EQ(r.bound, Bound::unknown);
  EXPECT_TRUE(std::isnan(r.of_limit));
  EXPECT_TRUE(std::isnan(judged(row(1, 1, 0, 0)).of_limit));
}

TEST(Roofline, AllRowsOfAProfile) {
  Profile p;
  p.ops = {row(1e9, 1e7, 1, 0.0125, 0, Bucket::linear_algebra), row(1e7, 8e7, 1, 0.004)};
  classify(p, machine());
  EXPECT_EQ(p.ops[0].bound, Bound::compute);
  EXPECT_EQ(p.ops[1].bound, Bound::memory);
}

TEST(Roofline, OpsOnADeviceAreMeasuredByIt) {
  const MachinePeaks gpu = {
      .of = "GPU", .threads = 0, .f32 = 50e3, .f16 = 700e3, .bf16 = 700e3, .int8 = 0, .copy = 4000, .read = 4000};
  Profile p;
  p.device_busy_seconds = 1;
  p.core_share = 0.5;                                               // the host's: of no matter there
  p.ops = {row(1e12, 1e9, 10, 0.04, 1e-4, Bucket::linear_algebra),  // half of what it can do
           row(1e8, 8e8, 10, 0.0004, 1e-4),                         // half of its bandwidth
           row(1e5, 8e5, 100, 0.0003, 0.001),                       // asked for longer than it runs
           row(1e5, 8e5, 100, 0.0003, 0.5)};                        // and loaded first
  for (OpRow& r : p.ops) r.on_device = true;
  classify(p, machine(), gpu);
  EXPECT_EQ(p.ops[0].bound, Bound::compute);
  EXPECT_NEAR(p.ops[0].of_limit, 0.5, 1e-12);
  EXPECT_EQ(p.ops[1].bound, Bound::memory);
  EXPECT_NEAR(p.ops[1].of_limit, 0.5, 1e-12);
  EXPECT_EQ(p.ops[2].bound, Bound::overhead);
  EXPECT_EQ(p.ops[3].bound, Bound::overhead);
  classify(p, machine(), MachinePeaks());  // nobody knows its peaks
  for (const OpRow& r : p.ops) EXPECT_EQ(r.bound, Bound::unknown);
  p.device_busy_seconds = -1;  // only launches were timed
  classify(p, machine(), gpu);
  for (const OpRow& r : p.ops) EXPECT_TRUE(std::isnan(r.of_limit));
}

// Figures of any machine this runs on: all there, in a sensible order, and the same object again.
TEST(Peaks, OfThisMachine) {
  const MachinePeaks& peaks = machine_peaks();
  EXPECT_EQ(peaks.threads, num_threads());
  EXPECT_GT(peaks.f32, 1);
  EXPECT_GE(peaks.bf16, 0.5 * peaks.f32);
  EXPECT_GE(peaks.int8, 0.5 * peaks.f32);
  EXPECT_GT(peaks.copy, 0.5);
  EXPECT_GT(peaks.read, 0.5);
  EXPECT_EQ(&machine_peaks(), &peaks);
  EXPECT_EQ(peaks.gflops(DType::f64), peaks.f32 / 2);
  EXPECT_EQ(peaks.gflops(DType::u8), peaks.int8);
}

TEST(Peaks, AreMeasuredWhenAskedFor) {
  Peaks peaks(num_threads(), Care::none);
  EXPECT_TRUE(peaks.computed().empty() && peaks.bandwidths().empty());
  const ComputePeak& f32 = peaks.compute(Arithmetic::f32);
  EXPECT_GT(f32.gflops, 0);
  EXPECT_FALSE(f32.instruction.empty());
  EXPECT_EQ(&peaks.compute(Arithmetic::f32), &f32);
  EXPECT_GT(peaks.bandwidth(2, 1), 0);
  EXPECT_EQ(peaks.computed().size(), 1u);
  EXPECT_EQ(peaks.bandwidths().size(), 1u);
  EXPECT_EQ(mix_name(2, 1), "2 reads, 1 write");
  EXPECT_EQ(mix_name(1, 1), "copy");
  EXPECT_STREQ(name_of(Arithmetic::bf16), "bf16");
}

}  // namespace
}  // namespace deft::profile
