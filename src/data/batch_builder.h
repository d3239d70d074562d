// A batch while its samples are written: by several threads at once, each its own rows. Fields of a fixed shape go
// straight to their place; those that vary wait in an arena until the largest is known.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/spin_lock.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/sample_writer.h"

namespace deft::data {

// What the fields of a data set need in a batch: the same for all batches of a loader.
struct BatchLayout {
  struct Place {
    std::string name;
    DType dtype;
    Shape shape;  // of a sample
    std::array<char, 8> pad{};
    size_t row_bytes = 0;   // of a fixed field
    int varying = -1;       // its number among the varying fields
    int first_varying = 0;  // which of its dimensions gives the lengths
  };
  // ValueError if the fields cannot form a batch.
  BatchLayout(const std::vector<Field>& fields, size_t max_sample_bytes, bool pinned, const Site& site = {});
  std::vector<Place> places;
  std::shared_ptr<const std::vector<std::string>> names;
  int varying = 0;         // fields
  size_t fixed_bytes = 0;  // of a sample
  size_t max_sample_bytes;
  bool pinned;  // memory that a device copies from
  Site site;    // of the loader, where the memory of batches belongs
};

// Memory handed out piece by piece and taken back all at once. Thread safe but for clear().
class Arena {
 public:
  Arena() = default;
  ~Arena() { release(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  char* allocate(size_t bytes);  // 64-byte aligned
  void clear();                  // keeps the memory, as one block

 private:
  struct Block {
    char* data;
    size_t bytes;
  };
  void release() noexcept;
  SpinLock lock_;
  std::vector<Block> blocks_;
  size_t used_ = 0, total_ = 0;  // of the last block; of all
};

class BatchBuilder {
 public:
  explicit BatchBuilder(std::shared_ptr<const BatchLayout> layout) : layout_(std::move(layout)) {}
  void begin(int64_t rows);  // takes the memory
  // Truncates the batch to that many rows: called before finish(), when no worker writes.
  void shorten(int64_t rows) { rows_ = rows; }
  void drop(int64_t row) { dropped_[static_cast<size_t>(row)] = 1; }
  void set_sample(int64_t row, int64_t sample) { samples_[row] = sample; }
  // Closes gaps and pads. Afterwards the builder is empty.
  void finish(Batch& out);
  void clear();

 private:
  friend class RowWriter;
  struct Piece {
    Shape shape;
    const char* data = nullptr;
  };
  Tensor make(const Shape& sizes, DType dtype) const;
  Tensor keep(const Tensor& rows, size_t row_bytes) const;
  Tensor pad(const BatchLayout::Place& place, int64_t kept) const;
  Tensor lengths_of(const BatchLayout::Place& place, int64_t kept) const;
  const Piece& piece(int64_t row, int varying) const {
    return pieces_[static_cast<size_t>(row) * static_cast<size_t>(layout_->varying) + static_cast<size_t>(varying)];
  }

  std::shared_ptr<const BatchLayout> layout_;
  int64_t rows_ = 0;
  int64_t* samples_ = nullptr;  // bytes of indices_
  Tensor indices_;
  std::array<Tensor, kMaxFields> fixed_;
  std::array<char*, kMaxFields> data_{};
  std::vector<Piece> pieces_;  // rows x varying fields
  std::vector<uint8_t> dropped_;
  Arena arena_;
};

// Writes one row after the other, of any builder.
class RowWriter final : public SampleWriter {
 public:
  explicit RowWriter(StageTimes& times) : times_(times) {}
  void begin(BatchBuilder& builder, int64_t row, const SampleRng& rng);
  void end();  // ValueError if a field was not written
  SampleRng& rng() override { return rng_; }

 private:
  void* fixed_bytes(int field) override;
  void* varying_bytes(int field, const Shape& shape) override;
  StageTimes& times() override { return times_; }
  const BatchLayout::Place& place(int field);

  StageTimes& times_;
  BatchBuilder* builder_ = nullptr;
  int64_t row_ = 0;
  uint32_t written_ = 0;  // fields, as bits
  size_t bytes_ = 0;
  SampleRng rng_;
};

}  // namespace deft::data
