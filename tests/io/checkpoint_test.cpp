// Checkpoints: everything comes back bit for bit, no damage goes unnoticed, and a run killed at any moment can go on.
#include "io/checkpoint.h"

#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <random>

#include "checkpoint_util.h"
#include "io/checksum.h"
#include "io/load_tensors.h"
#include "io/safetensors.h"
#include "io_util.h"

namespace deft::io {
namespace {

TEST(Checkpoint, ComesBackBitForBit) {
  Folder folder;
  State state = example();
  save_checkpoint(folder / "a.safetensors", state, {42, "model=x"});
  Checkpoint back = load_checkpoint(folder / "a.safetensors");
  expect_same(state, back.state);
  EXPECT_EQ(back.info.step, 42);
  EXPECT_EQ(back.info.config, "model=x");
}

TEST(Checkpoint, NanComesBack) {
  Folder folder;
  State state;
  state.values["x"] = std::nan("");
  save_checkpoint(folder / "a.safetensors", state);
  EXPECT_TRUE(std::isnan(load_checkpoint(folder / "a.safetensors").state.get<double>("x")));
}

// The stored form of a list in a list in a list...
std::string nested_lists(int depth) {
  std::vector<std::string> heads;  // innermost first
  size_t size = 2;
  for (int i = 1; i < depth; ++i) {
    heads.push_back("[" + std::to_string(size) + ":");
    size += heads.back().size() + 1;
  }
  std::string text;
  for (size_t i = heads.size(); i-- > 0;) text += heads[i];
  return text + "[s" + std::string(heads.size(), 's');
}
TEST(Checkpoint, AFileDoesNotDecideHowDeepCallsGo) {
  Folder folder;
  for (int depth : {1, 2, 50'000}) {
    Metadata metadata{
        {"deft.checkpoint", "1"}, {"deft.step", "1"}, {"deft.config", ""}, {"value.x", nested_lists(depth)}};
    metadata["deft.crc32"] = checksum(metadata, {}, "deft.crc32");
    save_safetensors(folder / "a.safetensors", {}, metadata);
    if (depth == 1) {
      EXPECT_TRUE(load_checkpoint(folder / "a.safetensors").state.get<std::vector<std::string>>("x").empty());
      continue;
    }
    expect_load_error([&] { load_checkpoint(folder / "a.safetensors"); }, "value 'x'", 8, "is not of a known form");
  }
}

// FI8
TEST(Checkpoint, TruncatedAnywhere) {
  Folder folder;
  save_checkpoint(folder / "a.safetensors", example());
  std::string bytes = read_file(folder / "a.safetensors");
  for (size_t size = 0; size < bytes.size(); ++size) {
    rewrite_file(folder / "b.safetensors", bytes.substr(0, size));
    EXPECT_THROW(load_checkpoint(folder / "b.safetensors"), LoadError) << size;
  }
}

// By readers that want the tensors alone, too.
TEST(Checkpoint, EveryReaderChecksTheSum) {
  Folder folder;
  const State state = example();
  save_checkpoint(folder / "a.safetensors", state, {3, "model=x"});
  const std::string bytes = read_file(folder / "a.safetensors");
  int detected = 0, harmless = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); bit += 5) {
    std::string bad = bytes;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    rewrite_file(folder / "b.safetensors", bad);
    try {
      const NamedTensors back = load_tensors(folder / "b.safetensors");
      for (const NamedTensor& t : state.tensors) {
        const Tensor* same = find_tensor(back, t.name);
        ASSERT_TRUE(same && same_bits(t.tensor, *same)) << "bit " << bit;
      }
      ++harmless;
    } catch (const Error&) {
      ++detected;
    }
  }
  EXPECT_GT(detected, 1000);
  EXPECT_LT(harmless, 10);
}

TEST(Checkpoint, FilesOfOthersHaveNoSum) {
  Folder folder;
  save_safetensors(folder / "a.safetensors", {{"w", ones({2})}}, {{"format", "pt"}});
  EXPECT_EQ(load_tensors(folder / "a.safetensors").size(), 1u);
}

TEST(Checkpoint, ConfigsDifferByName) {
  EXPECT_EQ(config_value("model=cnn lr=0.1 freeze=", "lr"), "0.1");
  EXPECT_EQ(config_value("model=cnn", "lr"), "");
  EXPECT_EQ(config_difference("a=1 b=2 c=", "a=1 b=3 c=x"), "b is 2 there, 3 here; c is empty there, x here");
  EXPECT_EQ(config_difference("a=1 b=2", "a=1 d=4"), "b is 2 there, not set here; d is not set there, 4 here");
  EXPECT_EQ(config_difference("one", "two"), "it has 'one', this run 'two'");
}

TEST(Checkpoint, FolderListsAndClears) {
  Folder folder;
  CheckpointFolder checkpoints(folder / "run");
  for (int64_t step : {3, 12}) checkpoints.save(example(step), {step, "c"});
  rewrite_file((folder / "run") + "/notes.txt", "kept");
  const std::vector<std::string> files = checkpoints.files();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_TRUE(files[0].ends_with("step-0000000012.safetensors")) << files[0];
  checkpoints.clear();
  EXPECT_TRUE(checkpoints.files().empty());
  EXPECT_EQ(read_file((folder / "run") + "/notes.txt"), "kept");
}

// FI9
TEST(Checkpoint, OneFlippedBitIsDetectedOrHarmless) {
  Folder folder;
  State state = example();
  save_checkpoint(folder / "a.safetensors", state, {3, "config"});
  std::string bytes = read_file(folder / "a.safetensors");
  std::mt19937_64 random(1);
  int detected = 0, harmless = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string bad = bytes;
    size_t bit = random() % (8 * bad.size());
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    rewrite_file(folder / "b.safetensors", bad);
    try {
      Checkpoint back = load_checkpoint(folder / "b.safetensors");
      expect_same(state, back.state);
      EXPECT_EQ(back.info.step, 3);
      EXPECT_EQ(back.info.config, "config");
      ++harmless;
    } catch (const Error&) {
      ++detected;
    }
  }
  EXPECT_GT(detected, 9'000);
  EXPECT_EQ(detected + harmless, 10'000);
}

TEST(Checkpoint, OtherFilesAreNamed) {
  Folder folder;
  save_safetensors(folder / "weights.safetensors", {{"w", ones({2})}});
  try {
    load_checkpoint(folder / "weights.safetensors");
    FAIL();
  } catch (const LoadError& e) {
    EXPECT_NE(std::string(e.what()).find("no checkpoint of Deft"), std::string::npos) << e.what();
  }
}

TEST(CheckpointFolder, KeepsTheNewest) {
  Folder folder;
  CheckpointFolder checkpoints(folder / "run");
  EXPECT_FALSE(checkpoints.newest());
  for (int64_t step : {5, 100, 20}) checkpoints.save(example(step), {step, "c"});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "run"), std::filesystem::directory_iterator()),
            2);
  auto found = checkpoints.newest("c");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->checkpoint.info.step, 100);
  EXPECT_TRUE(found->skipped.empty());
  EXPECT_THROW(checkpoints.newest("another"), ValueError);
  EXPECT_THROW(CheckpointFolder(folder / "run", 0), ValueError);
}

TEST(CheckpointFolder, DamagedOnesAreSkippedWithTheReason) {
  Folder folder;
  CheckpointFolder checkpoints(folder / "run", 3);
  for (int64_t step : {1, 2, 3}) checkpoints.save(example(step), {step, ""});
  std::string newest = folder / "run/step-0000000003.safetensors", bytes = read_file(newest);
  write_file(newest, bytes.substr(0, bytes.size() / 2));
  write_file(folder / "run/step-0000000004.safetensors", "");  // FI10: what a crash may have left
  write_file(folder / "run/step-0000000009.safetensors.tmp-1-2", "rubbish");
  auto found = checkpoints.newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->checkpoint.info.step, 2);
  EXPECT_EQ(found->skipped.size(), 2u);
  expect_same(found->checkpoint.state, example(2));
}

TEST(CheckpointFolder, FolderThatCannotBeMade) {
  Folder folder;
  write_file(folder / "file", "x");
  EXPECT_THROW(CheckpointFolder(folder / "file/run"), SaveError);
}

// FI1: killed at a random moment of saving, a thousand times; the newest that was complete always loads.
TEST(CheckpointFolder, KilledWhileSaving) {
  Folder folder;
  NoSync fast;
  std::mt19937 random(1);
  CheckpointFolder checkpoints(folder / "run");
  checkpoints.save(example(0), {0, ""});
  int64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    int done[2];
    ASSERT_EQ(pipe(done), 0);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int64_t step = last + 1;; ++step) {
        checkpoints.save(example(step), {step, ""});
        if (write(done[1], &step, sizeof step) != sizeof step) _exit(1);
      }
    }
    usleep(200 + random() % 3000);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    close(done[1]);
    int64_t step, complete = last;
    while (read(done[0], &step, sizeof step) == sizeof step) complete = step;
    close(done[0]);
    auto found = checkpoints.newest();
    ASSERT_TRUE(found);
    ASSERT_TRUE(found->skipped.empty()) << found->skipped[0];
    ASSERT_GE(found->checkpoint.info.step, complete);
    ASSERT_LE(found->checkpoint.info.step, complete + 1);
    expect_same(found->checkpoint.state, example(found->checkpoint.info.step));
    last = found->checkpoint.info.step;
  }
  EXPECT_GT(last, 100);
}

}  // namespace
}  // namespace deft::io
