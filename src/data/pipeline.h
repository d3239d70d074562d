// The threads that fill batches, and the window of batches between them and the consumer.
//
// Note [Window]: batches are numbered in the order of the feed, the end of each epoch among them. Numbers head_ to
// next_ - 1 are in the window, each in a slot. Workers claim rows of the first slot that has unclaimed ones: so many
// that a claim takes about kClaimNs, which is a whole batch of tiny samples, or one slow sample. Who completes a slot
// assembles it. A slot that is ready belongs to the consumer. Nothing that a sample sees depends on who fills it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/batch_builder.h"
#include "data/feed.h"
#include "data/loader_options.h"
#include "runtime/context.h"
#include "runtime/random.h"
#include "runtime/stream.h"

namespace deft::data {

// What take() got.
struct Delivery {
  enum class Kind { batch, nothing_left, end, failed, late };  // nothing_left: every sample was skipped
  Kind kind = Kind::batch;
  int64_t epoch = 0, index = 0;
  std::exception_ptr error;
};

class Pipeline : public std::enable_shared_from_this<Pipeline> {
 public:
  using Clock = std::chrono::steady_clock;
  // `site`: the line that made the loader.
  Pipeline(std::unique_ptr<Feed> feed, std::shared_ptr<const LoaderOptions> options, int most_prefetch,
           const Site& site);
  // Goes to a batch. False: a sample hangs; only close() may follow.
  bool seek(int64_t epoch, int64_t batch, std::vector<int64_t> done);
  // Starts threads, or lets some rest.
  void set_workers(int workers, int prefetch);
  // The next batch; work goes on up to `last_epoch`. After Kind::late only close() may follow.
  Delivery take(Batch& out, int64_t last_epoch);
  // Ends the threads; those that hang are left alone after that many seconds, 0: never.
  void close(double patience);
  LoaderStats stats() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr int64_t kDeviceBatches = 2;  // copied to the device ahead of the consumer
  struct Slot {
    enum class State : uint8_t { free, filling, assembling, ready, delivered };
    explicit Slot(const std::shared_ptr<const BatchLayout>& layout) : builder(layout) {}
    State state = State::free;
    bool on_device = false, dropped = false;
    int64_t number = 0;
    BatchJob job;
    BatchBuilder builder;
    Batch batch;
    int64_t rows = 0, claimed = 0, done = 0;
    int64_t skipped = 0, replaced = 0;
    int64_t error_row = 0;
    std::exception_ptr error;
    size_t bytes = 0;
  };
  struct Worker {
    explicit Worker(int id_) : id(id_), writer(times), random({0, 0}) {}
    int id;
    std::thread thread;
    bool exited = false;
    StageTimes times;
    RowWriter writer;
    std::vector<Record> records;
    Generator random;
    ExecContext context;
    std::atomic<int64_t> since{0};  // when it began what it does now, ns of Clock; 0: nothing
    std::atomic<int64_t> sample{-1};
  };
  // Rows of a slot, and what became of them.
  struct Work {
    Slot* slot = nullptr;
    int64_t begin = 0, end = 0;
    int64_t skipped = 0, replaced = 0;
    int64_t error_row = 0;
    std::exception_ptr error;
    std::vector<std::string> notes;
  };

  Slot& slot(int64_t number);
  void run(Worker& worker);
  bool step(Worker& worker, Lock& lock);  // false: there is nothing to do
  bool claim(Worker& worker, Work& work, Lock& lock);
  void open(Worker& worker, Lock& lock);
  bool read(Worker& worker, Work& work, Lock& lock);
  bool has_room() const;
  bool has_work() const;
  int64_t claim_size(const Slot& s) const;
  void fill(Worker& worker, Work& work);
  void fill_row(Worker& worker, Work& work, int64_t row);
  void fill_sample(Worker& worker, const Work& work, int64_t row, int64_t sample);
  bool replace(Worker& worker, Work& work, int64_t row);
  void finish(Worker& worker, Work& work, Lock& lock);
  void settle(Worker& worker, Slot& s, Lock& lock);
  void assemble(Slot& s, Worker& worker, bool to_device);
  void to_device(Slot& s);
  void make_ready(Slot& s);
  void fail(Slot& s, int64_t row, std::exception_ptr error);
  std::exception_ptr error_of(std::exception_ptr cause, int64_t sample, const Record* record, int worker) const;
  std::exception_ptr hanging() const;
  Slot* find_ready();
  Slot* wait_ready(Lock& lock, Delivery& result);
  void deliver(Slot& s, Batch& out, Delivery& result);
  void add_times(StageTimes& times);
  bool wait_quiet(Lock& lock, const int& count, double patience);
  void start_threads(int workers);

  const std::shared_ptr<const LoaderOptions> options_;
  const std::unique_ptr<Feed> feed_;
  const std::shared_ptr<const BatchLayout> layout_;
  std::optional<Stream> copy_stream_;

  mutable std::mutex mutex_;
  std::condition_variable work_, rest_, ready_, quiet_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::unique_ptr<Worker> inline_;  // does the work in take(), where there are no threads
  int active_ = 0, alive_ = 0, busy_ = 0, idle_ = 0;
  int depth_ = 1;
  bool feeding_ = false;  // a thread is in the feed
  bool stop_ = false, consumer_waits_ = false;
  std::atomic<bool> abort_{false};  // drop what is under way
  int64_t head_ = 0, next_ = 0, open_ = 0;
  int64_t feed_epoch_ = 0, last_epoch_ = 0;
  size_t held_ = 0, largest_ = 0;  // bytes in the window; of the largest batch so far
  double sample_ns_ = 0;           // what a sample takes, about
  std::exception_ptr fatal_;
  LoaderStats stats_;
  StageTimes consumer_times_;
};

}  // namespace deft::data
