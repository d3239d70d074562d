// Order between streams without a word from the caller, and the streams and events themselves.
#include <thread>

#include "cuda_util.h"

namespace deft {
namespace {

class CudaStream : public GpuTest {};

TEST_F(CudaStream, AnotherStreamReadsWhatWasWritten) {
  Stream a = Stream::create(kCUDA), b = Stream::create(kCUDA);
  Tensor x = zeros({kBusyElements}, on_gpu());
  Tensor y, z;
  {
    StreamGuard guard(a);
    y = busy(x);
  }
  bool running = !a.query();
  {
    StreamGuard guard(b);
    z = y * 2;
  }
  expect_all(z, 2 * kBusySteps);
  EXPECT_TRUE(running) << "the first stream was done too early to show anything";
}

TEST_F(CudaStream, AWriteWaitsForReaders) {
  Stream a = Stream::create(kCUDA), b = Stream::create(kCUDA);
  Tensor x = ones({kBusyElements}, on_gpu()), y;
  {
    StreamGuard guard(a);
    y = busy(zeros({kBusyElements}, on_gpu())) + x;
  }
  {
    StreamGuard guard(b);
    x.fill_(100);
  }
  expect_all(y, kBusySteps + 1);
  expect_all(x, 100);
}

TEST_F(CudaStream, AWriteWaitsForTheWriteBefore) {
  Stream a = Stream::create(kCUDA), b = Stream::create(kCUDA);
  Tensor x = ones({kBusyElements}, on_gpu());
  {
    StreamGuard guard(a);
    Tensor late = busy(zeros({kBusyElements}, on_gpu()));
    x.copy_(late);
  }
  {
    StreamGuard guard(b);
    x.add_(1);
  }
  expect_all(x, kBusySteps + 1);
}

TEST_F(CudaStream, ReadersOnManyStreams) {
  Tensor x = full({1 << 20}, 3, on_gpu());
  std::vector<Tensor> results;
  for (int i = 0; i < 8; ++i) {
    StreamGuard guard(Stream::create(kCUDA));
    results.push_back(x + i);
  }
  x.fill_(50);
  for (int i = 0; i < 8; ++i) expect_all(results[static_cast<size_t>(i)], 3 + i);
}

TEST_F(CudaStream, MemoryStillReadElsewhereIsNotReused) {
  Stream a = Stream::create(kCUDA), b = Stream::create(kCUDA);
  Tensor x, y;
  {
    StreamGuard guard(a);
    x = full({kBusyElements}, 3, on_gpu());
  }
  {
    StreamGuard guard(b);
    y = busy(zeros({kBusyElements}, on_gpu())) + x;
  }
  void* address = x.data_ptr();
  x = Tensor();
  StreamGuard guard(a);
  Tensor z = full({kBusyElements}, 99, on_gpu());
  EXPECT_NE(z.data_ptr(), address) << "the block was handed out while the other stream reads it";
  expect_all(y, kBusySteps + 3);
  expect_all(z, 99);
}

TEST_F(CudaStream, ViewsAndInPlaceWritesAreOrderedToo) {
  Stream a = Stream::create(kCUDA), b = Stream::create(kCUDA);
  Tensor x = zeros({2, kBusyElements / 2}, on_gpu());
  {
    StreamGuard guard(a);
    Tensor late = busy(zeros({kBusyElements}, on_gpu()));
    x[1].copy_(late.narrow(0, 0, kBusyElements / 2));
  }
  {
    StreamGuard guard(b);
    x[1].mul_(2);
  }
  EXPECT_EQ(x[0].amax().item<double>(), 0);
  expect_all(x[1], 2 * kBusySteps);
}

TEST_F(CudaStream, GuardsNestAndThreadsHaveTheirOwn) {
  Stream none = Stream::default_stream(kCUDA), a = Stream::create(kCUDA), b = Stream::create(kCUDA, true);
  EXPECT_EQ(current_stream(kCUDA), none);
  {
    StreamGuard outer(a);
    EXPECT_EQ(current_stream(kCUDA), a);
    {
      StreamGuard inner(b);
      EXPECT_EQ(current_stream(kCUDA), b);
    }
    EXPECT_EQ(current_stream(kCUDA), a);
    std::thread([&] { EXPECT_EQ(current_stream(kCUDA), none); }).join();
  }
  EXPECT_EQ(current_stream(kCUDA), none);
  EXPECT_NE(a.native(), nullptr);
  EXPECT_NE(a.native(), b.native());
}

TEST_F(CudaStream, ThereAreOnlySoMany) {
  for (int i = 0; i < 3 * kMaxStreams; ++i) {
    Stream s = Stream::create(kCUDA);
    EXPECT_GT(s.id(), 0);
    EXPECT_LT(s.id(), kMaxStreams);
    StreamGuard guard(s);
    Tensor x = ones({3}, on_gpu()) + 1;
    EXPECT_VALUES(x, 2, 2, 2);
  }
}

TEST_F(CudaStream, Events) {
  Stream a = Stream::create(kCUDA);
  Event nothing;
  EXPECT_TRUE(nothing.query());
  nothing.synchronize();
  Event begin(kCUDA, true), end(kCUDA, true), never(kCUDA);
  EXPECT_TRUE(never.query());
  Tensor x = zeros({kBusyElements}, on_gpu()), y;
  synchronize(kCUDA);
  {
    StreamGuard guard(a);
    begin.record(a);
    y = busy(x);
    end.record(a);
  }
  EXPECT_FALSE(end.query());
  end.synchronize();
  EXPECT_TRUE(end.query());
  double ms = begin.elapsed_ms(end);
  EXPECT_GT(ms, 0.5);
  EXPECT_LT(ms, 5000);
}

TEST_F(CudaStream, WaitsByHand) {
  Stream a = Stream::create(kCUDA), b = Stream::create(kCUDA);
  {
    StreamGuard guard(a);
    busy(zeros({kBusyElements}, on_gpu()));
  }
  Event done(kCUDA);
  done.record(a);
  b.wait(done);
  b.synchronize();
  EXPECT_TRUE(a.query()) << "b did not wait for a";
  b.wait(a);
  a.wait(b);
  synchronize(kCUDA);
  EXPECT_TRUE(a.query());
  EXPECT_TRUE(b.query());
}

TEST_F(CudaStream, BackwardRunsWhereForwardRan) {
  Stream a = Stream::create(kCUDA);
  Tensor w = ones({kBusyElements}, on_gpu()).requires_grad_(), loss;
  {
    StreamGuard guard(a);
    Tensor scale = busy(zeros({kBusyElements}, on_gpu()));
    loss = (w * scale).sum();
  }
  loss.backward();
  EXPECT_EQ(current_stream(kCUDA), Stream::default_stream(kCUDA));
  EXPECT_EQ(w.grad().impl()->storage->memory->owner, a.id());
  expect_all(w.grad(), kBusySteps);
}

TEST_F(CudaStream, BackwardOverTwoStreams) {
  Stream a = Stream::create(kCUDA), b = Stream::create(kCUDA);
  Tensor w = full({1 << 20}, 2, on_gpu()).requires_grad_();
  Tensor x, y;
  {
    StreamGuard guard(a);
    x = w * 3;
  }
  {
    StreamGuard guard(b);
    y = w * w + x;
  }
  y.backward(ones({1 << 20}, on_gpu()));
  expect_all(w.grad(), 7);
}

TEST_F(CudaStream, ThreadsWithStreamsOfTheirOwn) {
  constexpr int kThreads = 6, kRounds = 150;
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads);
  Tensor shared = full({1000}, 2, on_gpu());
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      StreamGuard guard(Stream::create(kCUDA));
      for (int round = 0; round < kRounds; ++round) {
        Tensor x = full({1000 + 64 * (round % 7)}, t + round, on_gpu());
        Tensor y = (x.narrow(0, 0, 1000) * shared + 1).requires_grad_();
        (y * y).sum().backward();
        double want = 2.0 * (2 * (t + round) + 1);
        if (y.grad().amin().item<double>() != want || y.grad().amax().item<double>() != want)
          ++wrong[static_cast<size_t>(t)];
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads));
}

}  // namespace
}  // namespace deft
