#include "data/pipeline.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>

#include "base/check.h"
#include "core/grad_mode.h"
#include "data/data_error.h"
#include "runtime/parallel.h"

namespace deft::data {

namespace {

// The context of samples: the default of the process, without gradients.
ExecContext sample_context(Generator& random) {
  ExecContext c;
  detail::take_process_default(c);
  c.bits |= kGradOff;
  c.grad_site = Site::current();
  c.rng = &random;
  return c;
}

}  // namespace

Pipeline::Pipeline(std::unique_ptr<Feed> feed, std::shared_ptr<const LoaderOptions> options, int most_prefetch,
                   const Site& site)
    : options_(std::move(options)),
      feed_(std::move(feed)),
      layout_(std::make_shared<BatchLayout>(feed_->fields(), options_->max_sample_bytes, !options_->device.is_cpu(),
                                            site)) {
  if (!options_->device.is_cpu()) copy_stream_ = Stream::create(options_->device);
  for (int i = 0; i < most_prefetch; ++i) slots_.push_back(std::make_unique<Slot>(layout_));
}

Pipeline::Slot& Pipeline::slot(int64_t number) { return *slots_[static_cast<size_t>(number) % slots_.size()]; }

void Pipeline::start_threads(int workers) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals belong to the program's own threads
  try {
    while (static_cast<int>(workers_.size()) < workers) {
      auto worker = std::make_unique<Worker>(static_cast<int>(workers_.size()));
      worker->thread = std::thread([self = shared_from_this(), w = worker.get()] { self->run(*w); });
      pthread_setname_np(worker->thread.native_handle(), "deft-data");
      ++alive_;
      workers_.push_back(std::move(worker));
    }
  } catch (const std::system_error&) {  // as many as can be had
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Pipeline::set_workers(int workers, int prefetch) {
  Lock lock(mutex_);
  workers_.reserve(static_cast<size_t>(workers));
  start_threads(workers);
  active_ = std::min(workers, static_cast<int>(workers_.size()));
  if (active_ == 0 && !inline_) {
    inline_ = std::make_unique<Worker>(0);
    inline_->context = sample_context(inline_->random);
  }
  depth_ = active_ == 0 ? 1 : std::min(prefetch, static_cast<int>(slots_.size()));
  stats_.workers = active_;
  stats_.prefetch = depth_;
  work_.notify_all();
  rest_.notify_all();
}

void Pipeline::run(Worker& worker) {
  SerialScope serial;
  worker.context = sample_context(worker.random);
  std::exception_ptr error;
  try {
    if (options_->worker_init) {
      ContextGuard guard(worker.context);
      options_->worker_init(worker.id);
    }
  } catch (...) {
    std::exception_ptr cause = std::current_exception();
    error = std::make_exception_ptr(DataError(-1, "", worker.id, "worker_init: " + message_of(cause), cause));
  }
  Lock lock(mutex_);
  if (error) {
    fatal_ = error;
    ready_.notify_all();
  }
  while (!stop_ && !error) {
    if (worker.id >= active_) {
      rest_.wait(lock);
    } else if (!step(worker, lock) && !stop_) {  // step() may have let go of the lock
      ++idle_;
      work_.wait(lock);
      --idle_;
    }
  }
  worker.exited = true;
  --alive_;
  quiet_.notify_all();
}

// --- The consumer

Pipeline::Slot* Pipeline::find_ready() {
  for (int64_t n = head_; n < next_; ++n) {
    Slot& s = slot(n);
    if (s.state == Slot::State::ready && (n == head_ || !s.job.end)) return &s;
    // Nothing overtakes the end of an epoch.
    if (options_->ordered || s.job.end) return nullptr;
  }
  return nullptr;
}

Pipeline::Slot* Pipeline::wait_ready(Lock& lock, Delivery& result) {
  Slot* s = fatal_ ? nullptr : find_ready();
  if (s || fatal_) return s;
  if (active_ == 0) {
    while (!(s = find_ready()) && !fatal_) DEFT_ASSERT(step(*inline_, lock) || find_ready() || fatal_);
    return s;
  }
  StageScope stage(consumer_times_, Stage::wait);
  auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(std::max(options_->timeout, 0.0)));
  consumer_waits_ = true;
  while (!(s = find_ready()) && !fatal_) {
    if (options_->timeout <= 0) {
      ready_.wait(lock);
    } else if (ready_.wait_until(lock, deadline) == std::cv_status::timeout && !(s = find_ready())) {
      result.kind = Delivery::Kind::late;
      result.error = hanging();
      break;
    }
  }
  consumer_waits_ = false;
  return s;
}

Delivery Pipeline::take(Batch& out, int64_t last_epoch) {
  Delivery result;
  Lock lock(mutex_);
  last_epoch_ = last_epoch;
  if (idle_ > 0 && has_work()) work_.notify_one();
  Slot* s = wait_ready(lock, result);
  add_times(consumer_times_);
  if (!s) {
    if (result.kind != Delivery::Kind::late) {
      result.kind = Delivery::Kind::failed;
      result.error = fatal_;
      result.epoch = -1;
    }
    return result;
  }
  deliver(*s, out, result);
  return result;
}

void Pipeline::deliver(Slot& s, Batch& out, Delivery& result) {
  using Kind = Delivery::Kind;
  result.epoch = s.job.epoch;
  result.index = s.job.index;
  result.kind = s.error ? Kind::failed : s.job.end ? Kind::end : s.batch.rows() == 0 ? Kind::nothing_left : Kind::batch;
  stats_.skipped += s.skipped;
  if (!s.error) stats_.replaced += s.replaced;
  stats_.failed += s.error != nullptr;
  if (copy_stream_ && result.kind == Kind::batch) {
    NoGradGuard no_grad;
    StageScope stage(consumer_times_, Stage::copy);
    if (!s.on_device) to_device(s);
    for (int64_t n = head_; n < std::min(next_, head_ + kDeviceBatches + 1); ++n) {
      Slot& ahead = slot(n);
      if (&ahead != &s && ahead.state == Slot::State::ready && !ahead.on_device && ahead.batch.rows() > 0)
        to_device(ahead);
    }
  }
  result.error = std::move(s.error);
  if (result.kind == Kind::batch) {
    ++stats_.batches;
    stats_.samples += s.batch.rows();
    stats_.bytes += static_cast<int64_t>(s.bytes);
    std::swap(out, s.batch);
  }
  s.batch = Batch();
  held_ -= s.bytes;
  s.state = Slot::State::delivered;
  for (; head_ < next_ && slot(head_).state == Slot::State::delivered; ++head_) slot(head_).state = Slot::State::free;
  if (idle_ > 0 && has_work()) work_.notify_one();
}

// Which sample has been under way for longest.
std::exception_ptr Pipeline::hanging() const {
  const Worker* oldest = nullptr;
  for (const auto& w : workers_) {
    int64_t since = w->since.load(std::memory_order_relaxed);
    if (since != 0 && (!oldest || since < oldest->since.load(std::memory_order_relaxed))) oldest = w.get();
  }
  std::string found =
      fmt::format("no batch within the timeout of {} s; raise it, or repair the data set", options_->timeout);
  if (!oldest) return std::make_exception_ptr(DataError(-1, "", 0, found));
  int64_t sample = oldest->sample.load(std::memory_order_relaxed);
  std::string file;
  try {
    if (sample >= 0 && !feed_->has_records()) file = feed_->describe(sample, nullptr);
  } catch (...) {
  }
  return std::make_exception_ptr(DataError(sample, file, oldest->id, found));
}

// --- Beginning and end

bool Pipeline::wait_quiet(Lock& lock, const int& count, double patience) {
  auto quiet = [&] { return count == 0; };
  if (patience > 0) return quiet_.wait_for(lock, std::chrono::duration<double>(patience), quiet);
  quiet_.wait(lock, quiet);
  return true;
}

bool Pipeline::seek(int64_t epoch, int64_t batch, std::vector<int64_t> done) {
  Lock lock(mutex_);
  abort_ = true;
  if (!wait_quiet(lock, busy_, options_->timeout)) return false;
  for (auto& s : slots_) {
    s->state = Slot::State::free;
    s->batch = Batch();
    s->builder.clear();
    s->error = nullptr;
  }
  head_ = next_ = open_ = 0;
  held_ = 0;
  feed_->seek(epoch, batch, std::move(done));
  feed_epoch_ = last_epoch_ = epoch;
  abort_ = false;
  work_.notify_all();
  return true;
}

void Pipeline::close(double patience) {
  Lock lock(mutex_);
  stop_ = true;
  abort_ = true;
  work_.notify_all();
  rest_.notify_all();
  wait_quiet(lock, alive_, patience);
  for (auto& w : workers_) {
    if (w->exited)
      w->thread.join();  // past its last lock
    else
      w->thread.detach();
  }
}

LoaderStats Pipeline::stats() const {
  Lock lock(mutex_);
  return stats_;
}

}  // namespace deft::data
