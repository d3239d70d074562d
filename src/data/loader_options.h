// Options and statistics of a loader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/sampler.h"
#include "data/stage.h"
#include "runtime/device.h"

namespace deft::data {

// What to do about a sample that cannot be had: raise throws from next(); skip leaves it out, so that the batch is
// shorter; replace takes another sample of the epoch, always the same one. Neither makes the stream depend on anything
// but (seed, epoch). Out of memory and a timeout are always raised.
enum class OnError : uint8_t { raise, skip, replace };

inline constexpr int kAuto = -1;
inline constexpr int kMaxWorkers = 256;

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;                               // leaves a last, shorter batch out
  std::shared_ptr<const Sampler> sampler{};             // instead of `shuffle`
  std::shared_ptr<const BatchSampler> batch_sampler{};  // instead of all of the above
  uint64_t seed = 0;
  int workers = kAuto;                      // threads; 0: next() does the work itself
  int prefetch = kAuto;                     // batches ahead of the consumer, those under way included
  size_t prefetch_bytes = size_t{1} << 30;  // of these batches; at least one is always made
  bool ordered = true;        // false: finished batches overtake others among those ahead; see Batch::index
  bool across_epochs = true;  // begins the next epoch while the last batches of this one are used
  Device device = kCPU;       // copied there on a stream of its own, from pinned memory
  OnError on_error = OnError::raise;
  size_t max_sample_bytes = size_t{1} << 30;
  // Seconds next() waits for a batch, and the destructor for a sample that is under way; 0: for ever. A thread that
  // hangs cannot be ended: it is left alone, with its memory and the data set, until its sample returns.
  double timeout = 300;
  std::function<void(Batch&)> collate{};          // on a worker, when a batch is complete; chance from Batch::rng()
  std::function<void(int worker)> worker_init{};  // on each worker before its first sample
};

struct LoaderStats {
  std::array<double, kStages> seconds{};          // by stage: of all workers; wait: of the consumer
  double elapsed = 0;                             // since the first next()
  int64_t batches = 0, samples = 0, bytes = 0;    // that came out of next()
  int64_t skipped = 0, replaced = 0, failed = 0;  // samples left out, replaced; batches that threw
  std::vector<std::string> errors;                // of the first skipped samples
  int workers = 0, prefetch = 0;                  // as chosen
  double operator[](Stage stage) const { return seconds[static_cast<size_t>(stage)]; }
  // Share of the time that the consumer waited, 0 to 1.
  double waiting() const { return elapsed > 0 ? (*this)[Stage::wait] / elapsed : 0; }
};

}  // namespace deft::data
