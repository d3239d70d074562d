// Where a loader's samples come from: the batches of one epoch after the other, as work for its threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

namespace deft::data {

// A batch to fill, or the end of an epoch.
struct BatchJob {
  int64_t epoch = 0, index = 0;
  bool end = false;
  int64_t rows = 0;
  const int64_t* samples = nullptr;       // of a data set, as planned
  std::shared_ptr<const BatchPlan> plan;  // keeps them alive
  int64_t first = 0;                      // sample of a stream: these are counted
  int64_t sample(int64_t row) const { return samples ? samples[row] : first + row; }
};

// seek(), next() and read() are called by one thread at a time, in order; the others by many.
class Feed {
 public:
  virtual ~Feed() = default;
  virtual const std::vector<Field>& fields() const = 0;
  // All that the stream of batches depends on but the seed.
  virtual std::string fingerprint() const = 0;
  // Batches in an epoch; UnsupportedError if unknown.
  virtual int64_t batches(int64_t epoch) const = 0;
  // Advances to this batch, without the batches of `done` behind it.
  virtual void seek(int64_t epoch, int64_t batch, std::vector<int64_t> done) = 0;
  virtual int64_t epoch() const = 0;  // of what next() gives
  virtual void next(BatchJob& job) = 0;
  virtual void skip_epoch() = 0;  // next() gives the end of the epoch
  // Whether rows have to be read in order, before they are filled in any order.
  virtual bool has_records() const { return false; }
  // Reads `count` records to the front of the list; fewer at the end. `got` is right also if it throws.
  virtual void read(std::vector<Record>&, int64_t, int64_t& got) { got = 0; }
  virtual bool drops_short() const { return false; }  // batches that the end of the records left short
  virtual void fill(int64_t sample, const Record* record, SampleWriter& out) const = 0;
  virtual std::string describe(int64_t sample, const Record* record) const = 0;
  // Another sample of the same epoch.
  virtual int64_t replacement(const BatchJob& job, int64_t sample, int attempt) const = 0;
};

std::unique_ptr<Feed> make_feed(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const BatchSampler> sampler,
                                uint64_t seed);
std::unique_ptr<Feed> make_feed(std::shared_ptr<const StreamDataset> dataset, int64_t batch_size, bool drop_last,
                                uint64_t seed);

}  // namespace deft::data
