// A captured program: ops in the order in which they ran, on values that lie in buffers. Values are places in memory,
// not single assignments: an op in place writes a value again, and views of the same buffer see it, as in eager mode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/op.h"

namespace deft::graph {

using ValueId = int32_t;
using BufferId = int32_t;
inline constexpr int32_t kNone = -1;                                 // an input that was not given
inline size_t index(int32_t id) { return static_cast<size_t>(id); }  // of a value, a buffer or an instruction

enum class BufferKind : uint8_t {
  input,      // memory of a tensor the caller gives
  constant,   // memory that was there before: weights, running statistics, numbers
  temporary,  // made by the program
};

struct Buffer {
  BufferKind kind = BufferKind::temporary;
  size_t bytes = 0;
  Tensor constant;       // constants: any tensor on that memory
  bool written = false;  // constants: the program changes it (running statistics)
  bool kept = false;     // temporaries: a weight that was cast, which the next run finds again (keep_casts)
};

struct Value {
  Meta meta;
  BufferId buffer = kNone;
  int64_t offset = 0;  // bytes from the buffer's first
};

enum class Action : uint8_t {
  make,   // outputs are new
  write,  // output 0 is input 0, written in place
  view,   // output 0 is another form of input 0: nothing runs
  call,   // code outside the graph runs on the inputs and writes the first of them; there are no outputs
};

// An optimizer's step, say: code that keeps a state of its own.
struct OutsideCall {
  std::string name;
  size_t written = 0;  // how many inputs, from the first, are written; the others are only read
  std::function<void(std::span<const Tensor>)> run;
};
extern const OpDef kOutsideCall;  // the op of such instructions: a name and no more

struct Instruction {
  const OpDef* def = nullptr;
  Action action = Action::make;
  std::vector<ValueId> inputs, outputs;
  std::vector<std::byte> params;
  Site site;
  std::shared_ptr<const OutsideCall> outside = nullptr;  // of calls
  std::vector<ValueId> effects = {};  // of ops that write an input beside what they make: outputs, then those inputs
  bool again = false;                 // a checkpoint computes it a second time, to spare the memory in between
};

// Fills `effects`: batch norm in training moves its running statistics.
void note_effects(Instruction& x);
// The values that the instruction makes or writes, and the part of them that existed before.
std::span<const ValueId> written_values(const Instruction& x);
std::span<const ValueId> rewritten_values(const Instruction& x);

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Value> values;
  std::vector<Instruction> instructions;
  std::vector<ValueId> inputs, outputs;

  ValueId add_value(const Meta& meta, BufferId buffer, int64_t offset = 0);
  BufferId add_buffer(BufferKind kind, size_t bytes, Tensor constant = {});
  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  const Buffer& buffer_of(ValueId id) const { return buffers[static_cast<size_t>(value(id).buffer)]; }
};

// The value on the memory of `t`, whatever part of it `t` shows.
Tensor on_memory_of(const Tensor& t, const Value& value);

// InternalError, naming the instruction and the pass, where the graph breaks a rule: ids in range, values made before
// they are read, outputs as the op's own rule infers them, views within their buffers, inputs and constants written
// only where they may be.
void verify(const Graph& graph, const char* after);

// One line per instruction, for people and for files; parse() restores the same graph. Constants are listed by shape
// and bound by position to `constants`. LoadError with the line where the text is not a graph.
std::string to_text(const Graph& graph);
Graph parse(const std::string& text, const std::vector<Tensor>& constants);

}  // namespace deft::graph
