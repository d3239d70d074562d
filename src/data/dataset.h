// What a data set is: samples made of fields, written straight into the memory of a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/shape.h"
#include "data/sample_writer.h"
#include "runtime/dtype.h"

namespace deft::data {

// A part of a sample. Sizes of -1 differ from sample to sample: a batch is as large as its largest sample there and
// filled up with `pad`.
struct Field {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  double pad = 0;
};

// Samples by number.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual const std::vector<Field>& fields() const = 0;
  // Writes every field of sample `index`. Called by several threads at once. All chance comes from out.rng(); what is
  // wrong with the sample is thrown, and the loader adds which sample and which worker it was.
  virtual void get(int64_t index, SampleWriter& out) const = 0;
  // Where the sample comes from, such as its file; for messages.
  virtual std::string describe(int64_t index) const;
};

// A sample as it was read, not decoded yet.
struct Record {
  struct Part {
    std::string name;  // "jpg", "cls": identifies a part of a record
    std::vector<char> bytes;
  };
  std::string name;  // for messages: "shard-000.tar/img_17"
  std::vector<Part> parts;
};

class RecordStream {
 public:
  virtual ~RecordStream() = default;
  // False at the end. `record` may be one that was used before: its memory is reused.
  virtual bool next(Record& record) = 0;
  // Skips this many records and returns how many there were. Reads them unless a stream overrides it.
  virtual int64_t skip(int64_t count);
};

// Samples in sequence, from tar files for example: one reader, many decoders.
class StreamDataset {
 public:
  virtual ~StreamDataset() = default;
  virtual const std::vector<Field>& fields() const = 0;
  // The order is a pure function of (seed, epoch).
  virtual std::unique_ptr<RecordStream> open(uint64_t seed, int64_t epoch) const = 0;
  // Called by several threads at once.
  virtual void decode(const Record& record, SampleWriter& out) const = 0;
};

}  // namespace deft::data
