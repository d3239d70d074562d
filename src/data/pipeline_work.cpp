// What a worker does: claims rows, fills them, assembles batches. See Note [Window].
#include <algorithm>

#include "base/check.h"
#include "data/data_error.h"
#include "data/pipeline.h"

namespace deft::data {

namespace {

constexpr double kClaimNs = 200e3;
constexpr int kReplacements = 16;  // tries for one sample
constexpr size_t kMostNotes = 16;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Pipeline::Clock::now().time_since_epoch()).count();
}

// The seed of ops that a data set calls for one sample.
uint64_t mixed(uint64_t seed, int64_t epoch, int64_t sample) {
  uint64_t h = seed;
  for (uint64_t part : {static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample)}) {
    h = (h ^ part) + 0x9E3779B97F4A7C15;
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9;
    h = (h ^ h >> 27) * 0x94D049BB133111EB;
    h ^= h >> 31;
  }
  return h;
}

// The sample is not to blame.
bool is_out_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const OutOfMemoryError&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

bool Pipeline::step(Worker& worker, Lock& lock) {
  if (stop_ || abort_) return false;
  ContextGuard guard(worker.context);
  ++busy_;
  worker.since.store(now_ns(), std::memory_order_relaxed);
  worker.sample.store(-1, std::memory_order_relaxed);
  bool claimed = false;
  try {
    Work work;
    claimed = claim(worker, work, lock);
    if (claimed) {
      if (idle_ > 0 && has_work()) work_.notify_one();
      lock.unlock();
      fill(worker, work);
      lock.lock();
      finish(worker, work, lock);
    }
  } catch (...) {  // no memory to say what went wrong
    if (!lock.owns_lock()) lock.lock();
    fatal_ = std::current_exception();
    feeding_ = claimed = false;
    ready_.notify_all();
  }
  worker.since.store(0, std::memory_order_relaxed);
  if (--busy_ == 0 && abort_) quiet_.notify_all();
  return claimed;
}

// --- Claims

bool Pipeline::has_room() const {
  return !feeding_ && next_ - head_ < depth_ && feed_epoch_ <= last_epoch_ &&
         (held_ == 0 || held_ + largest_ <= options_->prefetch_bytes);
}

bool Pipeline::has_work() const { return open_ < next_ || has_room(); }

int64_t Pipeline::claim_size(const Slot& s) const {
  int64_t left = s.rows - s.claimed;
  if (active_ <= 1) return left;
  // Before anything is known: a few claims for each worker.
  double n = sample_ns_ > 0 ? kClaimNs / sample_ns_ : static_cast<double>(s.rows) / (4.0 * active_);
  return std::clamp<int64_t>(static_cast<int64_t>(n), 1, left);
}

bool Pipeline::claim(Worker& worker, Work& work, Lock& lock) {
  while (!stop_ && !abort_) {
    if (open_ < next_) {
      Slot& s = slot(open_);
      if (s.claimed >= s.rows) {
        ++open_;
        continue;
      }
      if (feed_->has_records() && feeding_) return false;
      work.slot = &s;
      work.begin = s.claimed;
      work.end = s.claimed += claim_size(s);
      if (s.claimed == s.rows) ++open_;
      if (!feed_->has_records() || read(worker, work, lock)) return true;
    } else if (has_room()) {
      open(worker, lock);
    } else {
      return false;
    }
  }
  return false;
}

// Puts the next batch of the feed into the window.
void Pipeline::open(Worker& worker, Lock& lock) {
  feeding_ = true;
  Slot& s = slot(next_);
  lock.unlock();
  s.error = nullptr;
  s.on_device = s.dropped = false;
  s.rows = s.claimed = s.done = s.skipped = s.replaced = 0;
  s.job = BatchJob();
  s.job.index = -1;
  try {
    feed_->next(s.job);
    if (!s.job.end) s.builder.begin(s.job.rows);
  } catch (...) {
    std::exception_ptr cause = std::current_exception();
    s.error = std::make_exception_ptr(DataError(-1, "", worker.id, message_of(cause), cause));
    if (s.job.index < 0) {  // not the memory: the rest of this epoch cannot be had
      s.job.epoch = feed_->epoch();
      feed_->skip_epoch();
    }
  }
  lock.lock();
  feeding_ = false;
  feed_epoch_ = feed_->epoch();
  s.number = next_++;
  s.rows = s.error ? 0 : s.job.rows;
  s.bytes = std::max(largest_, static_cast<size_t>(s.rows) * layout_->fixed_bytes);
  held_ += s.bytes;
  s.state = Slot::State::filling;
  if (s.rows == 0) make_ready(s);
}

// The records of claimed rows. False: there are none left.
bool Pipeline::read(Worker& worker, Work& work, Lock& lock) {
  Slot& s = *work.slot;
  feeding_ = true;
  int64_t count = work.end - work.begin, got = 0;
  std::exception_ptr cause;
  lock.unlock();
  try {
    StageScope stage(worker.times, Stage::read);
    feed_->read(worker.records, count, got);
  } catch (...) {
    cause = std::current_exception();
    feed_->skip_epoch();  // what follows cannot be had
  }
  lock.lock();
  feeding_ = false;
  if (idle_ > 0) work_.notify_one();
  if (cause) {
    fail(s, work.begin + got, error_of(cause, s.job.sample(work.begin + got), nullptr, worker.id));
    got = 0;
  }
  if (got < count) {
    work.end = s.rows = s.claimed = work.begin + got;
    s.dropped = feed_->drops_short();
  }
  if (got > 0) return true;
  settle(worker, s, lock);
  return false;
}

// --- Samples

void Pipeline::fill(Worker& worker, Work& work) {
  StageScope stage(worker.times, Stage::read);
  worker.since.store(now_ns(), std::memory_order_relaxed);
  for (int64_t row = work.begin; row < work.end; ++row) {
    if (abort_.load(std::memory_order_relaxed)) {
      work.end = row;
      return;
    }
    fill_row(worker, work, row);
  }
}

void Pipeline::fill_sample(Worker& worker, const Work& work, int64_t row, int64_t sample) {
  const BatchJob& job = work.slot->job;
  worker.sample.store(sample, std::memory_order_relaxed);
  context() = worker.context;  // whatever the last sample left
  worker.random.set_state({mixed(options_->seed, job.epoch, sample), 0});
  work.slot->builder.set_sample(row, sample);
  worker.writer.begin(work.slot->builder, row, SampleRng(options_->seed, job.epoch, sample));
  const Record* record = feed_->has_records() ? &worker.records[static_cast<size_t>(row - work.begin)] : nullptr;
  feed_->fill(sample, record, worker.writer);
  worker.writer.end();
}

void Pipeline::fill_row(Worker& worker, Work& work, int64_t row) {
  int64_t sample = work.slot->job.sample(row);
  std::exception_ptr error;
  try {
    fill_sample(worker, work, row, sample);
    return;
  } catch (...) {
    std::exception_ptr cause = std::current_exception();
    const Record* record = feed_->has_records() ? &worker.records[static_cast<size_t>(row - work.begin)] : nullptr;
    error = error_of(cause, sample, record, worker.id);
    if (work.notes.size() < kMostNotes) work.notes.push_back(message_of(error));
    bool forgiven = options_->on_error != OnError::raise && !is_out_of_memory(cause);
    if (forgiven && options_->on_error == OnError::skip) {
      work.slot->builder.drop(row);
      ++work.skipped;
      return;
    }
    if (forgiven && replace(worker, work, row)) return;
  }
  if (!work.error) {
    work.error = error;
    work.error_row = row;
  }
}

bool Pipeline::replace(Worker& worker, Work& work, int64_t row) {
  const BatchJob& job = work.slot->job;
  for (int attempt = 0; attempt < kReplacements; ++attempt) {
    try {
      fill_sample(worker, work, row, feed_->replacement(job, job.sample(row), attempt));
      ++work.replaced;
      return true;
    } catch (...) {
      if (is_out_of_memory(std::current_exception())) return false;
    }
  }
  return false;
}

std::exception_ptr Pipeline::error_of(std::exception_ptr cause, int64_t sample, const Record* record,
                                      int worker) const {
  std::string file;
  try {
    file = feed_->describe(sample, record);
  } catch (...) {  // the first error is the one to tell
  }
  return std::make_exception_ptr(DataError(sample, file, worker, message_of(cause), cause));
}

// --- Complete batches

// The error of the lowest row is reported, whichever worker failed first.
void Pipeline::fail(Slot& s, int64_t row, std::exception_ptr error) {
  if (s.error && s.error_row <= row) return;
  s.error = std::move(error);
  s.error_row = row;
}

void Pipeline::finish(Worker& worker, Work& work, Lock& lock) {
  Slot& s = *work.slot;
  int64_t rows = work.end - work.begin;
  s.done += rows;
  s.skipped += work.skipped;
  s.replaced += work.replaced;
  if (work.error) fail(s, work.error_row, std::move(work.error));
  for (std::string& note : work.notes)
    if (stats_.errors.size() < kMostNotes) stats_.errors.push_back(std::move(note));
  if (rows > 0) {
    auto ns = static_cast<double>(now_ns() - worker.since.load(std::memory_order_relaxed));
    double each = ns / static_cast<double>(rows);
    sample_ns_ = sample_ns_ > 0 ? 0.75 * sample_ns_ + 0.25 * each : each;
  }
  settle(worker, s, lock);
  add_times(worker.times);
}

// Assembles the batch if this was its last part.
void Pipeline::settle(Worker& worker, Slot& s, Lock& lock) {
  if (abort_ || s.state != Slot::State::filling || s.done < s.rows || s.claimed < s.rows) return;
  if (s.error || s.dropped || s.rows == 0) {
    s.builder.clear();
    return make_ready(s);
  }
  s.state = Slot::State::assembling;
  bool near = !options_->device.is_cpu() && s.number < head_ + kDeviceBatches;
  lock.unlock();
  try {
    assemble(s, worker, near);
  } catch (...) {
    std::exception_ptr cause = std::current_exception();
    s.error = std::make_exception_ptr(
        DataError(-1, "", worker.id, fmt::format("batch {}: {}", s.job.index, message_of(cause)), cause));
  }
  lock.lock();
  make_ready(s);
}

void Pipeline::assemble(Slot& s, Worker& worker, bool to_device_now) {
  {
    StageScope stage(worker.times, Stage::collate);
    context() = worker.context;
    s.builder.shorten(s.rows);
    s.batch.index = s.job.index;
    s.batch.epoch = s.job.epoch;
    s.batch.seed = options_->seed;
    s.builder.finish(s.batch);
    worker.random.set_state({mixed(options_->seed, s.job.epoch, -1 - s.job.index), 0});
    if (options_->collate && s.batch.rows() > 0) options_->collate(s.batch);
  }
  if (to_device_now) {
    StageScope stage(worker.times, Stage::copy);
    to_device(s);
  }
}

// The copy is only begun; ops of other streams wait for it on the device, and pinned memory is kept until it is done.
void Pipeline::to_device(Slot& s) {
  StreamGuard guard(*copy_stream_);
  s.batch.to(options_->device);
  s.on_device = true;
}

void Pipeline::make_ready(Slot& s) {
  s.state = Slot::State::ready;
  size_t bytes = s.batch.bytes();
  held_ += bytes - s.bytes;
  s.bytes = bytes;
  largest_ = std::max(largest_, bytes);
  if (consumer_waits_ && (!options_->ordered || s.number == head_)) ready_.notify_one();
}

void Pipeline::add_times(StageTimes& times) {
  for (size_t i = 0; i < kStages; ++i) stats_.seconds[i] += static_cast<double>(times.ns[i]) * 1e-9;
  times.ns = {};
}

}  // namespace deft::data
