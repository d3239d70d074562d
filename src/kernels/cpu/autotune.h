// Which of several ways to run an op is the fastest here: found once per class of shapes by timing the first calls, and
// kept in memory and in a file.
//
//   TunedRun run(TunedOp::gemm, dtype, layout, {m, n, k}, std::size(blockings), m * n * k);
//   multiply(blockings[run.choice()]);
//
// Note [Candidates]: all candidates must give the same result bit for bit, so that tuning never changes a number.
// Candidate 0 is what calculation says is best; the others follow by how promising they are. While a class is new,
// each call runs the next candidate and is timed: no work is done twice. The first run, which finds cold caches and
// fresh pages, does not count.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/numerics.h"

namespace deft::cpu {

enum class TunedOp : uint8_t { gemm = 1, conv };

// Exact below 64, then four classes per octave.
int size_class(int64_t size);

// What is tuned together. Threads and instruction-set level are those of the moment.
struct TuneKey {
  static constexpr size_t kMostSizes = 7;
  // `layout`: 16 bits for what else decides the speed (transposed or packed sides, the epilogue).
  TuneKey(TunedOp op, DType dtype, uint32_t layout, std::initializer_list<int64_t> sizes);
  TuneKey(uint64_t shape_bits, uint64_t kind_bits) : shape(shape_bits), kind(kind_bits) {}
  bool operator==(const TuneKey&) const = default;
  int threads() const { return static_cast<int>(kind >> 4 & 0x7ff); }

  uint64_t shape;  // size classes, 9 bits each
  uint64_t kind;   // op, threads, level, dtype, layout; never 0
};
struct TuneKeyHash {
  size_t operator()(const TuneKey& k) const {
    uint64_t h = (k.shape ^ k.kind * 0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93;
    return h ^ h >> 32;
  }
};

class Tuner {
 public:
  static constexpr int kMostCandidates = 16, kShortList = 4;  // exhaustive; on
  static constexpr int kRuns = 3;                             // of each candidate; the best one counts
  static constexpr int64_t kMostTime = 50'000'000;            // ns spent on a class, if each candidate had a run
  static constexpr double kGain = 1.02;                       // that another candidate must have over the first,
  static constexpr double kGainOfFew = 1.15;                  // or if some had fewer runs: any of them may be disturbed
  static constexpr size_t kMostKeys = 2048, kMostLines = 4096;

  struct Options {
    std::string file;     // empty: memory only
    std::string machine;  // the CPU and what else makes measurements comparable; one line
    int64_t (*now)(bool several_threads);
  };
  explicit Tuner(Options options);
  ~Tuner();  // saves
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  struct Pick {
    int choice;
    bool timed;  // finish() is to be called
  };
  Pick pick(const TuneKey& key, int candidates, Autotune mode);
  void finish(const TuneKey& key, int choice, int64_t ns);  // ns < 0: the run failed and says nothing
  int64_t now(bool several_threads) const { return options_.now(several_threads); }
  // The candidate found for a key; -1: not tuned.
  int found(const TuneKey& key) const;
  size_t keys() const { return keys_.load(std::memory_order_relaxed); }
  // Adds what was found since the last time to the file. A file that cannot be written is no error.
  void save();

 private:
  struct Result {
    int16_t choice = 0, tried = 0;  // tried 0: not tuned
  };
  struct Slot {
    std::atomic<uint64_t> kind{0}, shape{0};
    std::atomic<Result> result;
  };
  struct Trial {
    int wanted = 0;
    bool warm = false;
    int64_t spent = 0;
    uint8_t started[kMostCandidates] = {}, done[kMostCandidates] = {};
    int64_t best[kMostCandidates] = {};
  };
  struct Line;

  Slot* find(const TuneKey& key) const;
  Slot* find_or_add(const TuneKey& key);
  Pick try_next(const TuneKey& key, int wanted);
  void decide(const TuneKey& key, const Trial& trial);
  void load();
  void save_locked();

  static constexpr size_t kSlots = 2 * kMostKeys;
  const Options options_;
  // Read without a lock; slots are filled under it and never emptied.
  std::unique_ptr<Slot[]> slots_;
  std::atomic<size_t> keys_{0};
  std::mutex mutex_;
  std::unordered_map<TuneKey, Trial, TuneKeyHash> trials_;
  std::unordered_map<TuneKey, Result, TuneKeyHash> unsaved_;
  int64_t last_save_;
};

// Of this process. Its file is autotune.txt in $DEFT_CACHE_DIR, $XDG_CACHE_HOME/deft or ~/.cache/deft.
Tuner& tuner();
std::string tuner_file();

// One run of an op. `work` in multiply-adds: below kLeastWork there is nothing to win, and candidate 0 runs at no cost.
class TunedRun {
 public:
  static constexpr int64_t kLeastWork = 1 << 19;
  TunedRun(TunedOp op, DType dtype, uint32_t layout, std::initializer_list<int64_t> sizes, int64_t candidates,
           int64_t work) {
    if (work >= kLeastWork && candidates > 1) start(TuneKey(op, dtype, layout, sizes), candidates, nullptr);
  }
  TunedRun(const TuneKey& key, int64_t candidates, int64_t work, Tuner* use = nullptr) {
    if (work >= kLeastWork && candidates > 1) start(key, candidates, use);
  }
  ~TunedRun() {
    if (timed_by_) report();
  }
  TunedRun(const TunedRun&) = delete;
  TunedRun& operator=(const TunedRun&) = delete;
  int choice() const { return choice_; }

 private:
  void start(const TuneKey& key, int64_t candidates, Tuner* use);
  void report() noexcept;

  TuneKey key_{0, 0};
  int choice_ = 0;
  int exceptions_ = 0;
  Tuner* timed_by_ = nullptr;
  int64_t start_ = 0;
};

}  // namespace deft::cpu
