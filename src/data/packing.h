// Several sequences in one row, none of which sees another: no padding but at the ends of rows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/bucket_sampler.h"

namespace deft::data {

// Where each sequence goes: after the one before it if the row has room, otherwise to the start of the next row.
class PackPlan {
 public:
  struct Place {
    int64_t row, begin, length;
  };
  // `rows` is how many rows there are in any case, so that batches have one shape; 0: as many as are needed.
  PackPlan(std::span<const int64_t> lengths, int64_t capacity, int64_t rows = 0);

  int64_t rows() const { return rows_; }
  int64_t capacity() const { return capacity_; }
  const std::vector<Place>& places() const { return places_; }  // of the sequences, in their order

  // A batch [n, length, ...] as rows [rows, capacity, ...], filled up with `pad`.
  Tensor pack(const Tensor& batch, double pad = 0) const;
  // Results [rows, capacity, ...] as a batch [n, longest, ...] with zeros after the end of each sequence. Has a
  // gradient.
  Tensor unpack(const Tensor& rows) const;
  // These are on the CPU.
  Tensor segments() const;   // i64 [rows, capacity]: 1, 2, ... in each row, 0 where there is no token
  Tensor positions() const;  // i64 [rows, capacity]: of the token in its sequence
  // bool [rows, capacity, capacity]: tokens that are in the same sequence. What models::Bert and models::Gpt2 take.
  Tensor mask() const;

 private:
  std::vector<Place> places_;
  int64_t rows_ = 0, capacity_;
};

struct PackingOptions {
  int64_t capacity = 512;  // tokens per row
  int64_t rows = 8;        // per batch
  // As BucketOptions. Within a window the longest sequences go first, each to the fullest row that has room.
  int64_t window_batches = 16;
  bool shuffle = true;
  bool drop_last = false;             // leaves out a last batch with fewer rows
  TooLong too_long = TooLong::error;  // or truncate, to `capacity`
};

// Batches that PackPlan(lengths of the batch, capacity) puts into at most `rows` rows.
class PackingSampler : public BatchSampler {
 public:
  explicit PackingSampler(std::vector<int64_t> lengths, PackingOptions options = {});
  BatchPlan batches(uint64_t seed, int64_t epoch) const override;
  std::string describe() const override;
  int64_t window() const { return window_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }  // with TooLong::truncate at most the capacity

 private:
  std::vector<std::vector<int64_t>> fill_rows(std::span<int64_t> samples) const;

  std::vector<int64_t> lengths_;
  PackingOptions options_;
  int64_t window_ = 0;
};

}  // namespace deft::data
