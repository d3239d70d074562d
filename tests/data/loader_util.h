// Data sets for tests of the loader.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/check.h"
#include "data/loader.h"

namespace deft::data {

// Sample i: a fixed field [2] with i and a random number, and a varying one of i % 5 random numbers.
class MixedSet : public Dataset {
 public:
  explicit MixedSet(int64_t n) : n_(n) {}
  int64_t size() const override { return n_; }
  const std::vector<Field>& fields() const override { return fields_; }
  void get(int64_t index, SampleWriter& out) const override {
    if (before) before(index);
    auto* fixed = out.fixed<double>(0);
    fixed[0] = static_cast<double>(index);
    fixed[1] = out.rng().uniform();
    int64_t n = index % 5;
    auto* varying = out.varying<int32_t>(1, {n, 2});
    for (int64_t i = 0; i < 2 * n; ++i) varying[i] = static_cast<int32_t>(out.rng().below(1000));
  }
  std::string describe(int64_t index) const override { return fmt::format("file-{}", index); }
  std::function<void(int64_t)> before;

 private:
  int64_t n_;
  std::vector<Field> fields_{{"fixed", DType::f64, {2}}, {"varying", DType::i32, {-1, 2}, -7}};
};

// The same as records.
class MixedStream : public StreamDataset {
 public:
  explicit MixedStream(int64_t n) : set_(n) {}
  const std::vector<Field>& fields() const override { return set_.fields(); }
  std::unique_ptr<RecordStream> open(uint64_t, int64_t epoch) const override {
    if (on_open) on_open(epoch);
    return std::make_unique<Reader>(*this, epoch);
  }
  void decode(const Record& record, SampleWriter& out) const override {
    int64_t index = std::stoll(record.name);
    if (before) before(index);
    set_.get(index, out);
  }
  std::function<void(int64_t)> before, on_open, on_read;

 private:
  struct Reader : RecordStream {
    Reader(const MixedStream& s, int64_t e) : stream(s), epoch(e) {}
    bool next(Record& record) override {
      if (stream.on_read) stream.on_read(at);
      if (at == stream.set_.size()) return false;
      record.name = std::to_string((at++ + epoch) % stream.set_.size());  // another order each epoch
      return true;
    }
    const MixedStream& stream;
    int64_t epoch, at = 0;
  };
  MixedSet set_;
};

inline void add_hash(uint64_t& h, const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
}

inline uint64_t hash_of(const Batch& batch) {
  uint64_t h = 0xcbf29ce484222325;
  auto add = [&](const Tensor& t) {
    if (!t.defined()) return;
    for (int64_t size : t.sizes()) add_hash(h, &size, sizeof(size));
    add_hash(h, t.data_ptr(), static_cast<size_t>(t.numel()) * t.element_size());
  };
  add(batch.indices);
  for (int i = 0; i < batch.size(); ++i) {
    add(batch[i]);
    add(batch.lengths(i));
  }
  return h;
}

// Hashes of batches by (epoch, index); each may come once.
using Hashes = std::map<std::pair<int64_t, int64_t>, uint64_t>;
inline void note(Hashes& hashes, const Batch& batch) {
  EXPECT_TRUE(hashes.emplace(std::pair(batch.epoch, batch.index), hash_of(batch)).second)
      << "batch " << batch.index << " of epoch " << batch.epoch << " came twice";
}

inline std::vector<int64_t> sample_numbers(const Batch& batch) { return batch.indices.to_vector<int64_t>(); }

// Entries of a folder of /proc/self: "task" are the threads, "fd" the descriptors.
inline int64_t count_own(const char* what) {
  auto entries = std::filesystem::directory_iterator(std::string("/proc/self/") + what);
  return std::distance(begin(entries), end(entries));
}

}  // namespace deft::data
