// The loader: batches of a data set, made ahead of time by threads.
//
// What comes out is a pure function of (seed, epoch, index): the same bits for any number of workers, in order or not,
// and after any number of stops and resumes in the middle of an epoch. See docs/guide/data.md.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>

#include "core/state.h"
#include "data/data_error.h"
#include "data/dataset.h"
#include "data/loader_options.h"

namespace deft::data {

// For one thread at a time. In a child of fork() it goes on from the same place with threads of its own.
class DataLoader {
 public:
  // ValueError if options contradict each other.
  explicit DataLoader(std::shared_ptr<const Dataset> dataset, LoaderOptions options = {}, Site site = Site::current());
  // Batches of `batch_size` records in the order of the stream: there is no sampler, no shuffle and no replace.
  explicit DataLoader(std::shared_ptr<const StreamDataset> dataset, LoaderOptions options = {},
                      Site site = Site::current());
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;

  // The next batch of the epoch; the memory of the one given is reused. False at the end; the call after that begins
  // the next epoch. DataError if a sample could not be had; the call after that goes on with the batch behind it.
  bool next(Batch& batch, Site site = Site::current());

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    Batch& operator*() { return batch_; }
    Batch* operator->() { return &batch_; }
    Iterator& operator++() {
      more_ = loader_->next(batch_, site_);
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !more_; }

   private:
    friend class DataLoader;
    Iterator(DataLoader& loader, const Site& site) : loader_(&loader), site_(site) { ++*this; }
    DataLoader* loader_;
    Site site_;  // of the loop
    Batch batch_;
    bool more_ = false;
  };
  // for (Batch& batch : loader): an epoch. After a loop that was left early the next one begins with the next epoch;
  // after load_state() it goes on where that was.
  Iterator begin(Site site = Site::current());
  std::default_sentinel_t end() const { return {}; }

  int64_t epoch() const;          // of the batch that comes next
  void start(int64_t epoch);      // at its first batch
  int64_t batches() const;        // in this epoch; UnsupportedError for streams
  State state() const;            // where the consumer is
  void load_state(const State&);  // ValueError if it is of another seed, data set, sampler or batch size
  LoaderStats stats() const;
  // What workers = kAuto decided and why, a line each: "data-bound: 71 % waiting; 1 -> 2 workers".
  std::string tuning() const;
  Site made_at() const;  // the line of its options

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deft::data
