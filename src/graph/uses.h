// Makers, readers and writers of values, for passes that fuse instructions.
#pragma once

#include <optional>
#include <vector>

#include "graph/ir.h"

namespace deft::graph {

// Valid for the current graph as long as passes only remove instructions (def = nullptr) and let later ones do their
// work: a read or write at a place still happens there, or its instruction was removed.
class Uses {
 public:
  explicit Uses(const Graph& graph);

  // The last instruction before `at` that makes or writes `id`; -1 where there is none.
  int maker(ValueId id, size_t at) const;
  // `id` is a temporary without views that only the instruction `reader` reads, after it was made by `maker` and before
  // it is written; or `reader` writes over it before any view exists.
  bool only_between(ValueId id, size_t maker, size_t reader) const;
  // No input of `from` is written between the two instructions.
  bool inputs_stand(size_t from, size_t to) const;
  // The instruction `to` now does the work of `from`, which was taken out. Without that answers are the same, later.
  void moved(size_t from, size_t to) { now_[from] = static_cast<int32_t>(to); }

 private:
  // Where a buffer was read and written when this was made, in order.
  struct Places {
    std::vector<int32_t> reads, writes;
    int values = 0;  // on this buffer
  };
  bool writes(const Instruction& x, BufferId buffer) const;
  bool reads(const Instruction& x, BufferId buffer) const;
  // Where the instruction that was at `place` is now; -1 if unknown.
  int32_t place_now(int32_t place) const;
  // Whether one of `places`, as far as that is known, is in [from, to).
  std::optional<bool> any_within(const std::vector<int32_t>& places, size_t from, size_t to) const;
  // Whether an instruction in [from, reader) makes a view of the buffer of `id`, or `reader` reads one.
  bool is_seen_within(ValueId id, size_t from, size_t reader) const;
  // Whether an instruction in [from, to) does so.
  bool written_within(BufferId buffer, size_t from, size_t to) const;
  bool read_within(BufferId buffer, size_t from, size_t to) const;

  const Graph& g_;
  std::vector<Places> places_;
  std::vector<int32_t> now_;  // by instruction: the one that does its work, or itself
};

// All uses of a buffer, in order.
struct BufferUses {
  struct Read {
    size_t at, input;
  };
  std::vector<Read> reads;            // views are none
  std::vector<size_t> writes, views;  // instructions
  std::vector<ValueId> values;        // on the buffer, each once
  bool is_output = false;
  // After `from`, up to `to`.
  bool written_within(size_t from, size_t to) const;
};
std::vector<BufferUses> buffer_uses(const Graph& graph);

// Instructions that a pass took out have no op.
void remove_taken(Graph& graph);

}  // namespace deft::graph
