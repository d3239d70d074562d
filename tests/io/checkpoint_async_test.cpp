// Saving on a thread of its own: the state of the moment of the call is written, and no failure is lost.
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <random>
#include <thread>

#include "checkpoint_util.h"
#include "file_fault.h"
#include "runtime/memory.h"

namespace deft::io {
namespace {

// Lets the writer get to its sync, and holds it there until released.
struct Gate {
  Gate() {
    reached = released = false;
    detail::file_calls().sync = [](int) {
      reached = true;
      while (!released) std::this_thread::yield();
      return 0;
    };
  }
  ~Gate() {
    released = true;
    detail::file_calls() = saved;
  }
  static void wait_until_reached() {
    while (!reached) std::this_thread::yield();
  }
  static inline std::atomic<bool> reached, released;
  detail::FileCalls saved = detail::file_calls();
};

TEST(CheckpointAsync, WritesTheStateOfTheMoment) {
  Folder folder;
  NoSync fast;
  CheckpointFolder checkpoints(folder / "run");
  State state = example(1), before = example(1);
  for (int64_t step = 0; step < 50; ++step) {
    checkpoints.save_async(state, {step, "c"});
    state.tensors[0].tensor.fill_(static_cast<double>(step));  // as the next step of training does
    state.values["count"] = step;
    std::string path = checkpoints.wait();
    Checkpoint back = load_checkpoint(path);
    EXPECT_EQ(back.info.step, step);
    expect_same(back.state, before);
    before.tensors[0].tensor = state.tensors[0].tensor.clone();
    before.values["count"] = step;
  }
  EXPECT_EQ(checkpoints.wait(), "");
}

TEST(CheckpointAsync, ReturnsBeforeItIsWritten) {
  Folder folder;
  CheckpointFolder checkpoints(folder / "run");
  EXPECT_FALSE(checkpoints.saving());
  Gate gate;
  checkpoints.save_async(example(1), {1, "c"});
  Gate::wait_until_reached();
  EXPECT_TRUE(checkpoints.saving());
  EXPECT_FALSE(checkpoints.newest());
  Gate::released = true;
  EXPECT_EQ(checkpoints.wait(), folder / "run/step-0000000001.safetensors");
  EXPECT_FALSE(checkpoints.saving());
  EXPECT_EQ(checkpoints.newest()->checkpoint.info.step, 1);
}

TEST(CheckpointAsync, OneAtATime) {
  Folder folder;
  CheckpointFolder checkpoints(folder / "run", 5);
  Gate gate;
  checkpoints.save_async(example(1), {1, "c"});
  Gate::wait_until_reached();
  std::atomic<bool> returned = false;
  std::thread second([&] {
    checkpoints.save_async(example(2), {2, "c"});
    EXPECT_TRUE(std::filesystem::exists(folder / "run/step-0000000001.safetensors"));
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(returned);
  Gate::released = true;
  second.join();
  checkpoints.save(example(3), {3, "c"});  // waits too
  EXPECT_TRUE(std::filesystem::exists(folder / "run/step-0000000002.safetensors"));
  EXPECT_EQ(checkpoints.newest()->checkpoint.info.step, 3);
}

TEST(CheckpointAsync, FailuresComeWithTheNextCall) {
  Folder folder;
  CheckpointFolder checkpoints(folder / "run");
  checkpoints.save(example(1), {1, "c"});
  auto fail = [&] {
    Fault fault(4, ENOSPC);
    checkpoints.save_async(example(2), {2, "c"});
    while (checkpoints.saving()) std::this_thread::yield();
  };
  fail();
  EXPECT_THROW(checkpoints.wait(), SaveError);
  EXPECT_EQ(checkpoints.wait(), "");  // reported once
  fail();
  EXPECT_THROW(checkpoints.save_async(example(3), {3, "c"}), SaveError);
  fail();
  EXPECT_THROW(checkpoints.save(example(3), {3, "c"}), SaveError);
  EXPECT_EQ(checkpoints.newest()->checkpoint.info.step, 1);
  checkpoints.save_async(example(4), {4, "c"});
  checkpoints.wait();
  EXPECT_EQ(checkpoints.newest()->checkpoint.info.step, 4);
}

TEST(CheckpointAsync, DestructorWaits) {
  Folder folder;
  for (int64_t step = 1; step <= 20; ++step) {
    CheckpointFolder(folder / "run").save_async(example(step), {step, "c"});
    EXPECT_EQ(CheckpointFolder(folder / "run").newest()->checkpoint.info.step, step);
  }
  Fault fault(4, ENOSPC);
  CheckpointFolder(folder / "run").save_async(example(99), {99, "c"});  // no caller to report to, nothing breaks
}

TEST(CheckpointAsync, TheCopyGoesWhenItIsWritten) {
  Folder folder;
  CheckpointFolder checkpoints(folder / "run");
  State state;
  state.tensors = {{"w", ones({1000, 1000})}};
  int64_t before = memory_live().total, during = 0;
  {
    Gate gate;
    checkpoints.save_async(state, {1, "c"});
    Gate::wait_until_reached();
    during = memory_live().total;
    Gate::released = true;
    while (checkpoints.saving()) std::this_thread::yield();
  }
  EXPECT_GE(during - before, 4'000'000);
  EXPECT_LE(during - before, 4'100'000);
  EXPECT_LE(memory_live().total - before, 1000);
  checkpoints.wait();
}

// FI1 for the background writer.
TEST(CheckpointAsync, KilledWhileSaving) {
  Folder folder;
  NoSync fast;
  std::mt19937 random(2);
  CheckpointFolder checkpoints(folder / "run");
  checkpoints.save(example(0), {0, ""});
  int64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0)
      for (int64_t step = last + 1;; ++step) checkpoints.save_async(example(step), {step, ""});
    usleep(200 + random() % 4000);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    auto found = checkpoints.newest();
    ASSERT_TRUE(found);
    ASSERT_TRUE(found->skipped.empty()) << found->skipped[0];
    ASSERT_GE(found->checkpoint.info.step, last);
    expect_same(found->checkpoint.state, example(found->checkpoint.info.step));
    last = found->checkpoint.info.step;
  }
  EXPECT_GT(last, 0);  // how many were written before the kills is up to the machine
  checkpoints.save(example(last + 1), {last + 1, ""});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "run"), std::filesystem::directory_iterator()),
            2);
}

}  // namespace
}  // namespace deft::io
