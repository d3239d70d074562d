#include "data/feed.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "data/sample_writer.h"

namespace deft::data {

namespace {

// Which batch comes next: what both kinds have in common.
class Position {
 public:
  void seek(int64_t epoch, int64_t batch, std::vector<int64_t> done) {
    epoch_ = epoch;
    batch_ = batch;
    done_ = std::move(done);
    over_ = false;
  }
  int64_t epoch() const { return epoch_; }
  int64_t batch() const { return batch_; }
  bool over() const { return over_; }
  void skip_epoch() { over_ = true; }
  bool is_done() const { return std::find(done_.begin(), done_.end(), batch_) != done_.end(); }
  void advance() { ++batch_; }
  void take(BatchJob& job) {
    job = BatchJob();
    job.epoch = epoch_;
    job.index = batch_++;
  }
  void end(BatchJob& job) {
    take(job);
    job.end = true;
    seek(epoch_ + 1, 0, {});
  }

 private:
  int64_t epoch_ = 0, batch_ = 0;
  std::vector<int64_t> done_;  // batches behind batch_ that are not wanted
  bool over_ = false;
};

std::string describe_fields(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& f : fields) out += fmt::format(", {} {}{}", f.name, name_of(f.dtype), to_string(f.shape));
  return out;
}

class MapFeed final : public Feed {
 public:
  MapFeed(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const BatchSampler> sampler, uint64_t seed)
      : dataset_(std::move(dataset)), sampler_(std::move(sampler)), size_(dataset_->size()), seed_(seed) {}
  const std::vector<Field>& fields() const override { return dataset_->fields(); }
  std::string fingerprint() const override {
    return fmt::format("{} samples, {}{}", size_, sampler_->describe(), describe_fields(fields()));
  }
  int64_t batches(int64_t epoch) const override { return sampler_->count(seed_, epoch); }
  void seek(int64_t epoch, int64_t batch, std::vector<int64_t> done) override {
    at_.seek(epoch, batch, std::move(done));
  }
  int64_t epoch() const override { return at_.epoch(); }
  void next(BatchJob& job) override {
    if (at_.over()) return at_.end(job);
    if (!plan_ || planned_ != at_.epoch()) {
      plan_ = std::make_shared<const BatchPlan>(sampler_->batches(seed_, at_.epoch()));
      planned_ = at_.epoch();
    }
    while (at_.is_done()) at_.advance();
    if (at_.batch() >= plan_->size()) return at_.end(job);
    auto samples = (*plan_)[at_.batch()];
    at_.take(job);
    job.rows = static_cast<int64_t>(samples.size());
    job.samples = samples.data();
    job.plan = plan_;
  }
  void skip_epoch() override { at_.skip_epoch(); }
  void fill(int64_t sample, const Record*, SampleWriter& out) const override {
    DEFT_CHECK(sample >= 0 && sample < size_, IndexError, "the data set has {} samples; the sampler asked for this one",
               size_);
    dataset_->get(sample, out);
  }
  std::string describe(int64_t sample, const Record*) const override {
    return sample >= 0 && sample < size_ ? dataset_->describe(sample) : std::string();
  }
  int64_t replacement(const BatchJob& job, int64_t sample, int attempt) const override {
    const std::vector<int64_t>& all = job.plan->indices();
    SampleRng rng(seed_, job.epoch, sample + (int64_t{attempt} + 1) * (int64_t{1} << 38));
    return all[static_cast<size_t>(rng.below(static_cast<int64_t>(all.size())))];
  }

 private:
  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const BatchSampler> sampler_;
  int64_t size_;
  uint64_t seed_;
  Position at_;
  std::shared_ptr<const BatchPlan> plan_;
  int64_t planned_ = -1;  // the epoch of plan_
};

class StreamFeed final : public Feed {
 public:
  StreamFeed(std::shared_ptr<const StreamDataset> dataset, int64_t batch_size, bool drop_last, uint64_t seed)
      : dataset_(std::move(dataset)), batch_size_(batch_size), drop_last_(drop_last), seed_(seed) {}
  const std::vector<Field>& fields() const override { return dataset_->fields(); }
  std::string fingerprint() const override {
    return fmt::format("stream in batches of {}{}{}", batch_size_, drop_last_ ? ", whole ones only" : "",
                       describe_fields(fields()));
  }
  int64_t batches(int64_t) const override {
    DEFT_FAIL(UnsupportedError, "data loader: the number of batches of a stream is known when it has ended");
  }
  void seek(int64_t epoch, int64_t batch, std::vector<int64_t> done) override {
    at_.seek(epoch, batch, std::move(done));
    stream_.reset();
  }
  int64_t epoch() const override { return at_.epoch(); }
  void next(BatchJob& job) override {
    if (!at_.over() && !stream_) open();
    while (!at_.over() && at_.is_done()) {
      pass(batch_size_);
      at_.advance();
    }
    if (at_.over()) {
      stream_.reset();
      return at_.end(job);
    }
    at_.take(job);
    job.rows = batch_size_;
    job.first = job.index * batch_size_;
  }
  void skip_epoch() override { at_.skip_epoch(); }
  bool has_records() const override { return true; }
  bool drops_short() const override { return drop_last_; }
  void read(std::vector<Record>& records, int64_t count, int64_t& got) override {
    if (records.size() < static_cast<size_t>(count)) records.resize(static_cast<size_t>(count));
    for (got = 0; got < count && !at_.over();) {
      if (stream_->next(records[static_cast<size_t>(got)]))
        ++got;
      else
        at_.skip_epoch();
    }
  }
  void fill(int64_t, const Record* record, SampleWriter& out) const override {
    StageScope stage = out.stage(Stage::decode);
    dataset_->decode(*record, out);
  }
  std::string describe(int64_t, const Record* record) const override { return record ? record->name : std::string(); }
  int64_t replacement(const BatchJob&, int64_t, int) const override {
    DEFT_FAIL(UnsupportedError, "data loader: a stream has no other sample to take");
  }

 private:
  void open() {
    stream_ = dataset_->open(seed_, at_.epoch());
    pass(at_.batch() * batch_size_);
  }
  void pass(int64_t count) {
    if (!at_.over() && stream_->skip(count) < count) at_.skip_epoch();
  }

  std::shared_ptr<const StreamDataset> dataset_;
  int64_t batch_size_;
  bool drop_last_;
  uint64_t seed_;
  Position at_;
  std::unique_ptr<RecordStream> stream_;
};

}  // namespace

std::unique_ptr<Feed> make_feed(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const BatchSampler> sampler,
                                uint64_t seed) {
  return std::make_unique<MapFeed>(std::move(dataset), std::move(sampler), seed);
}
std::unique_ptr<Feed> make_feed(std::shared_ptr<const StreamDataset> dataset, int64_t batch_size, bool drop_last,
                                uint64_t seed) {
  return std::make_unique<StreamFeed>(std::move(dataset), batch_size, drop_last, seed);
}

}  // namespace deft::data
