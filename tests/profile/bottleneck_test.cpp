#include "profile/bottleneck.h"

#include <gtest/gtest.h>

#include <functional>

#include "profile/roofline.h"

namespace deft::profile {
namespace {

MachinePeaks machine() {
  return {.of = {}, .threads = 2, .f32 = 100, .f16 = 100, .bf16 = 400, .int8 = 800, .copy = 40, .read = 50};
}

// A profile made up of buckets and rows.
struct MadeUp {
  Profile p;
  MadeUp& time(Bucket bucket, double seconds) {
    p.seconds[static_cast<size_t>(bucket)] += seconds;
    p.wall_seconds = p.sum();
    return *this;
  }
  // An op and the time of its kernels.
  MadeUp& op(const char* name, Bucket bucket, int64_t calls, double seconds, double flops, double bytes,
             double overhead = 0) {
    OpRow row;
    row.name = name, row.bucket = bucket, row.calls = calls;
    row.kernel_seconds = seconds, row.overhead_seconds = overhead;
    row.flops = flops, row.bytes = bytes;
    p.ops.push_back(row);
    return time(bucket, seconds).time(Bucket::dispatch, overhead);
  }
  MadeUp& product(int64_t calls, double seconds, double of_limit) {
    return op("linear", Bucket::linear_algebra, calls, seconds, of_limit * seconds * 100e9, seconds * 1e9);
  }
  MadeUp& pass(int64_t calls, double seconds, double of_limit) {
    return op("softmax", Bucket::kernel, calls, seconds, seconds * 1e9, of_limit * seconds * 40e9);
  }
  Profile judged() {
    judge(p, machine());
    return p;
  }
};

void expect_says(const Profile& p, Bound bound, const std::string& part) {
  EXPECT_EQ(p.bound, bound) << name_of(p.bound) << ": " << p.sentence;
  EXPECT_NE(p.sentence.find(part), std::string::npos) << p.sentence;
  EXPECT_EQ(p.sentence.back(), '.');
  EXPECT_EQ(p.sentence.find('\n'), std::string::npos);
}

TEST(Bottleneck, SharesAddUp) {
  Profile p = MadeUp()
                  .product(10, 3, 0.9)
                  .pass(10, 2, 0.6)
                  .op("odd", Bucket::kernel, 1, 1, 0, 0)
                  .time(Bucket::data_wait, 1.5)
                  .time(Bucket::optimizer, 0.5)
                  .time(Bucket::allocation, 0.25)
                  .time(Bucket::autograd, 0.25)
                  .time(Bucket::copy, 0.5)
                  .time(Bucket::sync, 0.25)
                  .time(Bucket::other, 0.75)
                  .judged();
  Shares s = shares_of(p);
  EXPECT_NEAR(s.input + s.overhead + s.memory + s.compute + s.copy + s.sync + s.own + s.unknown, 1, 1e-12);
  EXPECT_NEAR(s.input, 0.15, 1e-12);
  EXPECT_NEAR(s.compute, 0.3, 1e-4);
  EXPECT_NEAR(s.memory, 0.275, 1e-4);  // the passes, the optimizer and the memory that was mapped
  EXPECT_NEAR(s.overhead, 0.025, 1e-4);
  EXPECT_NEAR(s.own, 0.075, 1e-4);
  EXPECT_NEAR(s.unknown, 0.1, 1e-4);
}

TEST(Bottleneck, InputBound) {
  expect_says(MadeUp().product(10, 2.9, 0.9).time(Bucket::data_wait, 7.1).judged(), Bound::input,
              "71 % of the time the loop waits for its data");
}

TEST(Bottleneck, OverheadBound) {
  // 1.2 million ops of 1.5 us, a fifth of it in the kernels.
  Profile p = MadeUp().op("add", Bucket::kernel, 1'200'000, 0.36, 1e7, 1e8, 1.44).judged();
  expect_says(p, Bound::overhead, "starting 1.2 million small ops (1.5 us each)");
  // By the hundred.
  p = MadeUp().op("add", Bucket::kernel, 300, 1e-4, 1e3, 1e4, 3e-4).judged();
  expect_says(p, Bound::overhead, "starting 300 small ops");
}

TEST(Bottleneck, MemoryBound) {
  expect_says(MadeUp().product(10, 3, 0.9).pass(10, 7, 0.55).judged(), Bound::memory,
              "70 % of the time goes into moving bytes at 55 % of the machine's bandwidth, most of it in softmax");
  expect_says(MadeUp().product(10, 3, 0.9).time(Bucket::optimizer, 7).judged(), Bound::memory, "in the optimizer");
}

TEST(Bottleneck, ComputeBound) {
  expect_says(MadeUp().product(10, 8, 0.9).pass(10, 2, 0.6).judged(), Bound::compute,
              "80 % of the time is arithmetic at 90 % of what the machine can do, most of it in linear: only cheaper");
  expect_says(MadeUp().product(10, 8, 0.3).judged(), Bound::compute, "would bring it nearer");
}

// Exponentials: their bytes would take a tenth of the time.
TEST(Bottleneck, ComputeBoundByElements) {
  expect_says(MadeUp().product(10, 2, 0.9).pass(10, 8, 0.1).judged(), Bound::instructions,
              "is arithmetic on single elements, most of it in softmax");
}

// Layouts are of pictures, and a plan need not be compiled again: whatever is slow.
TEST(Bottleneck, OnlyWhatAppliesIsAdvised) {
  const std::function<MadeUp()> slow[] = {
      [] { return MadeUp().product(10, 8, 0.3); }, [] { return MadeUp().product(10, 3, 0.9).pass(10, 7, 0.55); },
      [] { return MadeUp().op("add", Bucket::kernel, 1'200'000, 0.36, 1e7, 1e8, 1.44); }};
  const auto sentence = [&](int i, bool pictures, bool compiled) {
    MadeUp m = slow[i]();
    if (pictures) m.op("conv2d", Bucket::linear_algebra, 1, 1e-6, 1e4, 1e2);
    if (compiled) m.op("plan", Bucket::dispatch, 1, 0, 0, 0, 1e-6);
    return m.judged().sentence;
  };
  const auto says = [](const std::string& text, const char* word) { return text.find(word) != text.npos; };
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(says(sentence(i, false, false), "compile()")) << sentence(i, false, false);
    EXPECT_FALSE(says(sentence(i, true, true), "compile()")) << sentence(i, true, true);
    EXPECT_FALSE(says(sentence(i, false, false), "channels_last")) << sentence(i, false, false);
  }
  EXPECT_TRUE(says(sentence(0, true, false), "larger batches, channels_last or compile() would bring it nearer"));
  EXPECT_TRUE(says(sentence(0, false, false), ": larger batches or compile() would bring it nearer"));
}

// The table shows buckets: where their percentages are others than the sentence's it says how they add up.
TEST(Bottleneck, OverheadSaysWhatItIsMadeOf) {
  Profile p = MadeUp().op("add", Bucket::kernel, 1'200'000, 0.36, 1e7, 1e8, 1.0).time(Bucket::autograd, 0.44).judged();
  expect_says(p, Bound::overhead, "(dispatch 56 %, autograd 24 %, what calls cost in kernels, allocation and between");
}

// Other programs make everything look slow: it is judged by what it did with the time it had.
TEST(Bottleneck, OnABusyMachine) {
  MadeUp m = MadeUp().product(10, 3, 0.2).pass(10, 7, 0.2);
  EXPECT_EQ(m.judged().bound, Bound::instructions);  // passes at a fifth of the bandwidth
  m.p.core_share = 0.25;
  expect_says(m.judged(), Bound::memory, "at 80 % of the machine's bandwidth, most of it in softmax");
  expect_says(m.judged(), Bound::memory, "Other programs had its core for 75 % of the time.");
  EXPECT_DOUBLE_EQ(m.p.ops[1].of_limit, 0.2);  // as it was
}

TEST(Bottleneck, DevicesMakeTheHostWait) {
  MadeUp idle = MadeUp().product(10, 3, 0.9).time(Bucket::sync, 7);
  expect_says(idle.judged(), Bound::sync, "70 % of the time the program waits for the device");
  idle.p.device_busy_seconds = 4;
  expect_says(idle.judged(), Bound::sync, "which works 40 % of it");
  idle.p.device_busy_seconds = 9;  // as it should be: its kernels are what takes the time
  expect_says(idle.judged(), Bound::compute, "100 % of the time is arithmetic");
  for (OpRow& row : idle.p.ops) row.on_device = true;
  judge(idle.p, machine());  // whose limits nobody knows
  expect_says(idle.p, Bound::unknown, "The device works 90 % of the time");
  expect_says(MadeUp().product(10, 3, 0.9).time(Bucket::copy, 7).judged(), Bound::copy,
              "copies between host and device");
}

TEST(Bottleneck, TheProgramsOwnTimeIsNamedAsSuch) {
  expect_says(MadeUp().product(10, 3, 0.9).time(Bucket::other, 7).judged(), Bound::unknown, "the program's own code");
}

// Kernels in optimizers and loaders have rows, too: their time counts there and not twice.
TEST(Bottleneck, RowsDoNotCountTwice) {
  MadeUp m = MadeUp().product(10, 1, 0.9).time(Bucket::data_wait, 2);
  OpRow inside;
  inside.name = "clone", inside.bucket = Bucket::kernel, inside.calls = 1;
  inside.kernel_seconds = 3, inside.bytes = 3 * 40e9;
  m.p.ops.push_back(inside);
  EXPECT_EQ(m.judged().bound, Bound::input);
}

TEST(Bottleneck, NothingProfiled) {
  Profile p;
  judge(p, machine());
  EXPECT_EQ(p.bound, Bound::unknown);
  EXPECT_EQ(p.sentence, "Nothing was profiled.");
}

Profile on_device(double busy, Bucket of_kernels, Bucket of_gaps) {
  Profile p;
  p.wall_seconds = 10;
  p.device_busy_seconds = busy;
  p.seconds[static_cast<size_t>(of_kernels)] = busy;
  p.seconds[static_cast<size_t>(of_gaps)] += 10 - busy;
  p.device = {{"kernel", of_kernels, 100, busy}};
  judge(p, MachinePeaks());
  return p;
}

TEST(Bottleneck, OfADevice) {
  expect_says(on_device(9, Bucket::linear_algebra, Bucket::dispatch), Bound::compute, "works 90 % of the time");
  expect_says(on_device(9, Bucket::kernel, Bucket::dispatch), Bound::memory, "100 % of that in kernels");
  expect_says(on_device(3, Bucket::kernel, Bucket::dispatch), Bound::overhead, "idle 70 % of the time");
  expect_says(on_device(3, Bucket::kernel, Bucket::data_wait), Bound::input, "70 %");
  expect_says(on_device(3, Bucket::kernel, Bucket::sync), Bound::sync, "70 %");
}

// A busy device whose ops are told apart: most of its time decides.
TEST(Bottleneck, OfADeviceByItsOps) {
  const MachinePeaks gpu = {
      .of = "GPU", .threads = 0, .f32 = 100, .f16 = 100, .bf16 = 400, .int8 = 0, .copy = 40, .read = 50};
  const auto says = [&](MadeUp m, Bound bound, const char* part) {
    m.p.device_busy_seconds = 0.9 * m.p.wall_seconds;
    m.p.device = {{"kernel", Bucket::kernel, 100, m.p.device_busy_seconds}};
    for (OpRow& row : m.p.ops) row.on_device = true;
    judge(m.p, {}, gpu);
    expect_says(m.p, bound, part);
  };
  says(MadeUp().product(10, 7, 0.5).pass(10, 3, 0.6), Bound::compute,
       "70 % of that in arithmetic at 50 % of what it can do, most of it in linear");
  says(MadeUp().product(10, 2, 0.5).pass(10, 8, 0.6), Bound::memory, "80 % of that moving bytes at 60 %");
  says(MadeUp().op("add", Bucket::kernel, 1000000, 3, 0, 1e5, 2), Bound::overhead, "too small to fill it");
}

}  // namespace
}  // namespace deft::profile
