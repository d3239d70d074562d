// The records of tar shards, one after the other, shuffled on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/tar.h"
#include "runtime/random.h"

namespace deft::data {

struct TarOptions {
  bool shuffle_shards = false;
  // Records kept in memory to draw the next one from: the larger, the better they are mixed. 0: none.
  int64_t shuffle_buffer = 0;
  TarLimits limits = {};
};

// What a stream reads.
struct TarShards {
  std::vector<std::string> paths;
  std::vector<std::string> parts;  // other parts of the records are skipped; none: all are read
  TarOptions options;
};

// A record is what follows each other in a shard under names that agree up to the first dot of the last component; the
// rest, in lower case, names the part. Files without a dot, or with one in front, are passed over. After an error in a
// shard, next() goes on behind it: after the record if a part was there twice, else with the next shard.
class TarStream final : public RecordStream {
 public:
  TarStream(std::shared_ptr<const TarShards> shards, uint64_t seed, int64_t epoch);
  ~TarStream() override;

  bool next(Record& record) override;
  // As many calls of next(), but only headers are read unless a shard is gzipped; how many records there were.
  int64_t skip(int64_t count) override;

 private:
  struct Slot {
    Record record;
    const std::string* shard = nullptr;  // to be read from yet: the bytes of each part
    struct Piece {
      uint64_t offset, bytes;
    };
    std::vector<Piece> pieces;
  };
  Slot* draw(bool read);
  bool read_record(Slot& slot, bool read);
  void add_part(Slot& slot, size_t count, std::string_view part, bool read);
  bool wants(std::string_view part) const;
  void find_member();
  void load(Slot& slot) const;

  std::shared_ptr<const TarShards> shards_;
  PhiloxState draws_;
  uint64_t drawn_ = 0;
  std::vector<int64_t> order_;  // of the shards
  size_t shard_ = 0;            // in order_: the one to open next
  std::unique_ptr<TarReader> reader_;
  TarMember member_;  // the first of the next record
  std::string record_name_, part_name_;
  std::vector<Slot> slots_;
  size_t filled_ = 0;
};

}  // namespace deft::data
