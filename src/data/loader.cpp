#include "data/loader.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "base/check.h"
#include "core/observer.h"
#include "data/padding.h"
#include "data/pipeline.h"
#include "data/tuner.h"
#include "runtime/parallel.h"

namespace deft::data {

namespace {

using Clock = std::chrono::steady_clock;

// How often this process was forked off: threads of loaders made before are not there.
std::atomic<int> forks{0};
int fork_count() {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  return forks.load(std::memory_order_relaxed);
}

void check(const LoaderOptions& o) {
  DEFT_CHECK(o.batch_size >= 1, ValueError, "data loader: the batch size must be at least 1, found {}", o.batch_size);
  DEFT_CHECK(o.workers == kAuto || (o.workers >= 0 && o.workers <= kMaxWorkers), ValueError,
             "data loader: found {} workers, expected 0 to {} or kAuto", o.workers, kMaxWorkers);
  DEFT_CHECK(o.prefetch == kAuto || (o.prefetch >= 1 && o.prefetch <= 1 << 16), ValueError,
             "data loader: prefetch must be 1 to {} or kAuto, found {}", 1 << 16, o.prefetch);
  DEFT_CHECK(o.timeout >= 0 && o.timeout <= 1e8, ValueError, "data loader: a timeout of {} s; expected 0 to 1e8",
             o.timeout);
}

std::shared_ptr<const BatchSampler> sampler_of(const LoaderOptions& o, int64_t size) {
  DEFT_CHECK(!(o.sampler && o.shuffle), ValueError,
             "data loader: `sampler` decides the order; leave `shuffle` out, or take a ShuffledSampler");
  DEFT_CHECK(!o.batch_sampler || (!o.sampler && !o.shuffle && !o.drop_last && o.batch_size == 1), ValueError,
             "data loader: `batch_sampler` makes the batches; leave batch_size, shuffle, drop_last and sampler out");
  if (o.batch_sampler) return o.batch_sampler;
  std::shared_ptr<const Sampler> sampler = o.sampler;
  if (!sampler && o.shuffle) sampler = std::make_shared<ShuffledSampler>(size);
  if (!sampler) sampler = std::make_shared<SequentialSampler>(size);
  return std::make_shared<FixedBatchSampler>(std::move(sampler), o.batch_size, o.drop_last);
}

// Where the consumer is in an epoch.
struct Place {
  int64_t epoch = 0;
  int64_t batch = 0;           // the first that it has not had
  std::vector<int64_t> ahead;  // those behind it that it has had: only where they come out of order
  bool at_start = true;        // of a loop: the next one begins here

  void had(int64_t index) {
    at_start = false;
    if (index != batch) {
      if (index > batch) ahead.push_back(index);
      return;
    }
    ++batch;
    for (auto at = ahead.end(); (at = std::find(ahead.begin(), ahead.end(), batch)) != ahead.end(); ++batch)
      ahead.erase(at);
  }
};

}  // namespace

struct DataLoader::Impl {
  using MakeFeed = std::function<std::unique_ptr<Feed>()>;
  Impl(LoaderOptions o, MakeFeed feed, const Site& site)
      : options(std::make_shared<const LoaderOptions>(std::move(o))),
        made_at(site),
        make_feed(std::move(feed)),
        info(make_feed()),
        tuner(options->workers == kAuto ? num_threads() : 0) {
    BatchLayout(info->fields(), options->max_sample_bytes, false);  // throws if they are wrong
    fork_count();
  }
  ~Impl() { drop_pipeline(options->timeout); }

  bool is_auto() const { return options->workers == kAuto; }
  LoaderSetting setting() const {
    LoaderSetting s = tuner.setting();
    if (!is_auto()) s = {options->workers, prefetch_for(options->workers)};
    if (options->prefetch != kAuto) s.prefetch = options->prefetch;
    return s;
  }
  int most_prefetch() const {
    if (options->prefetch != kAuto) return options->prefetch;
    return prefetch_for(is_auto() ? num_threads() : options->workers);
  }

  // The pipeline, at the place of the consumer.
  Pipeline& pipeline() {
    if (running && forked_at != fork_count()) forget_pipeline();
    if (!running) {
      running = std::make_shared<Pipeline>(make_feed(), options, most_prefetch(), made_at);
      forked_at = fork_count();
      running->seek(place.epoch, place.batch, place.ahead);
      running->set_workers(setting().workers, setting().prefetch);
    }
    return *running;
  }
  void drop_pipeline(double patience) {
    if (!running) return;
    if (forked_at != fork_count()) return forget_pipeline();
    running->close(patience);
    add(past, running->stats());
    running.reset();
  }
  // Those that do not hang need a moment to end.
  double after_timeout() const { return std::min(0.05 * options->timeout, 0.1); }
  // In the child of fork(): its threads are gone, its locks may be held for ever. Its memory stays.
  void forget_pipeline() {
    static auto* forgotten = new std::vector<std::shared_ptr<Pipeline>>;
    forgotten->push_back(std::move(running));
    running.reset();
  }
  void go_to(Place to) {
    place = std::move(to);
    if (!running) return;
    if (forked_at != fork_count()) return forget_pipeline();
    if (!running->seek(place.epoch, place.batch, place.ahead)) drop_pipeline(after_timeout());
  }

  bool next(Batch& batch);
  void tune();
  static void add(LoaderStats& to, const LoaderStats& from);
  LoaderStats stats() const;

  std::shared_ptr<const LoaderOptions> options;
  Site made_at;
  MakeFeed make_feed;
  std::unique_ptr<Feed> info;  // to ask, not to read from
  Place place;
  std::shared_ptr<Pipeline> running;
  int forked_at = 0;
  Tuner tuner;
  LoaderStats past;  // of pipelines that are closed
  Clock::time_point began{};
};

bool DataLoader::Impl::next(Batch& batch) {
  batch = Batch();
  if (began == Clock::time_point{}) began = Clock::now();
  for (;;) {
    Delivery got = pipeline().take(batch, place.epoch + options->across_epochs);
    switch (got.kind) {
      case Delivery::Kind::batch:
        place.had(got.index);
        if (is_auto() && !tuner.done()) tune();
        return true;
      case Delivery::Kind::nothing_left:
        place.had(got.index);
        break;
      case Delivery::Kind::end:
        place = {.epoch = place.epoch + 1, .batch = 0, .ahead = {}, .at_start = true};
        return false;
      case Delivery::Kind::late:
        place.had(place.batch);
        drop_pipeline(after_timeout());
        std::rethrow_exception(got.error);
      case Delivery::Kind::failed:
        if (got.index >= 0 && got.epoch >= 0) place.had(got.index);
        std::rethrow_exception(got.error);
    }
  }
}

void DataLoader::Impl::tune() {
  LoaderStats s = stats();
  if (!tuner.observe(s.elapsed, s[Stage::wait], s.batches)) return;
  running->set_workers(setting().workers, setting().prefetch);
}

void DataLoader::Impl::add(LoaderStats& to, const LoaderStats& from) {
  for (size_t i = 0; i < kStages; ++i) to.seconds[i] += from.seconds[i];
  to.batches += from.batches;
  to.samples += from.samples;
  to.bytes += from.bytes;
  to.skipped += from.skipped;
  to.replaced += from.replaced;
  to.failed += from.failed;
  to.errors.insert(to.errors.end(), from.errors.begin(), from.errors.end());
  to.workers = from.workers;
  to.prefetch = from.prefetch;
}

LoaderStats DataLoader::Impl::stats() const {
  LoaderStats out = past;
  if (running && forked_at == fork_count()) add(out, running->stats());
  if (began != Clock::time_point{}) out.elapsed = std::chrono::duration<double>(Clock::now() - began).count();
  return out;
}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, LoaderOptions options, Site site) {
  DEFT_CHECK(dataset, ValueError, "data loader: there is no data set");
  check(options);
  auto sampler = sampler_of(options, dataset->size());
  auto feed = [dataset, sampler, seed = options.seed] { return data::make_feed(dataset, sampler, seed); };
  impl_ = std::make_unique<Impl>(std::move(options), feed, effective_site(site));
}

DataLoader::DataLoader(std::shared_ptr<const StreamDataset> dataset, LoaderOptions options, Site site) {
  DEFT_CHECK(dataset, ValueError, "data loader: there is no data set");
  check(options);
  DEFT_CHECK(!options.shuffle && !options.sampler && !options.batch_sampler, ValueError,
             "data loader: a stream has its own order; leave shuffle, sampler and batch_sampler out");
  DEFT_CHECK(options.on_error != OnError::replace, ValueError,
             "data loader: a stream has no other sample to take; choose OnError::skip");
  auto feed = [dataset, n = options.batch_size, drop = options.drop_last, seed = options.seed] {
    return data::make_feed(dataset, n, drop, seed);
  };
  impl_ = std::make_unique<Impl>(std::move(options), feed, effective_site(site));
}

DataLoader::~DataLoader() = default;
DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&&) noexcept = default;

namespace {

// How far the fields of varying size were filled up. The dimension that lengths are of is the first that has room for
// the longest: a collate function may have made it longer.
void tell_padding(const Batch& batch, Observer& observer, const Site& site) {
  for (int f = 0; f < batch.size(); ++f) {
    if (!batch.lengths(f).defined() || !batch.lengths(f).device().is_cpu()) continue;  // reading a device would wait
    const std::vector<int64_t> lengths = batch.lengths(f).to_vector<int64_t>();
    const int64_t longest = padded_length(lengths);
    const Shape& sizes = batch[f].sizes();
    int dim = 1;
    while (dim < sizes.size() && sizes[dim] < longest) ++dim;
    if (dim < sizes.size()) observer.padded(lengths, batch.rows() * sizes[dim], site);
  }
}

}  // namespace

bool DataLoader::next(Batch& batch, Site site) {
  Zone zone("next batch", Bucket::data_wait, site);
  Observer* o = observer();
  if (!o) return impl_->next(batch);
  const Clock::time_point began = Clock::now();
  const bool found = impl_->next(batch);
  const double waited = std::chrono::duration<double>(Clock::now() - began).count();
  if (!found) return false;
  o->batch_loaded(this, batch.rows(), waited, effective_site(site));
  tell_padding(batch, *o, effective_site(site));
  return true;
}

DataLoader::Iterator DataLoader::begin(Site site) {
  if (!impl_->place.at_start) start(epoch() + 1);
  return Iterator(*this, site);
}

Site DataLoader::made_at() const { return impl_->made_at; }

int64_t DataLoader::epoch() const { return impl_->place.epoch; }

void DataLoader::start(int64_t epoch) {
  DEFT_CHECK(epoch >= 0, ValueError, "data loader: epochs count from 0, found {}", epoch);
  impl_->go_to({.epoch = epoch, .batch = 0, .ahead = {}, .at_start = true});
}

int64_t DataLoader::batches() const { return impl_->info->batches(epoch()); }

State DataLoader::state() const {
  State s;
  s.values["epoch"] = impl_->place.epoch;
  s.values["batch"] = impl_->place.batch;
  s.values["ahead"] = impl_->place.ahead;
  s.values["seed"] = static_cast<int64_t>(impl_->options->seed);
  s.values["source"] = impl_->info->fingerprint();
  return s;
}

void DataLoader::load_state(const State& s) {
  auto seed = static_cast<int64_t>(impl_->options->seed), saved_seed = s.get<int64_t>("seed");
  DEFT_CHECK(saved_seed == seed, ValueError,
             "data loader: the state has seed {}, this loader {}; make it with the same options", saved_seed, seed);
  std::string source = impl_->info->fingerprint(), saved = s.get<std::string>("source");
  DEFT_CHECK(saved == source, ValueError,
             "data loader: the state is of [{}], this loader of [{}]; make it the same way", saved, source);
  Place to{.epoch = s.get<int64_t>("epoch"),
           .batch = s.get<int64_t>("batch"),
           .ahead = s.get<std::vector<int64_t>>("ahead"),
           .at_start = true};
  DEFT_CHECK(to.epoch >= 0 && to.batch >= 0, ValueError, "data loader: the state has epoch {} and batch {}", to.epoch,
             to.batch);
  impl_->go_to(std::move(to));
}

LoaderStats DataLoader::stats() const { return impl_->stats(); }
std::string DataLoader::tuning() const { return impl_->tuner.text(); }

}  // namespace deft::data
