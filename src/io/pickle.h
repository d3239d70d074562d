// Reads a pickle as a tree of values. It is never executed: names of functions are looked up in a short list and become
// part of the tree, with their arguments. What is not on the list is an error.
#pragma once

#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "io/load_options.h"
#include "io/source.h"

namespace deft::io {

struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,      // integer
    integer,      // integer
    big_integer,  // text: little-endian two's complement of more than 8 bytes
    real,         // real
    string,       // text: UTF-8
    bytes,        // text; Python 2 calls it a string
    tuple,        // items
    list,         // items
    set,          // items
    dict,         // items: key, value, key, value...
    global,       // text: "torch.FloatStorage"
    call,         // items: a global and the tuple of arguments. Nothing was called
    persistent,   // items: one value, the id
  };
  Kind kind = Kind::none;
  mutable uint16_t mark = 0;  // for walks over the tree; how deep what lies below is nested, after reading
  uint32_t offset = 0;        // in the pickle, of the opcode that made it
  union {
    int64_t integer = 0;
    double real;
  };
  std::string_view text;  // in the pickle's bytes
  std::vector<const PickleValue*> items;
};

class Pickle {
 public:
  Pickle(const Pickle&) = delete;
  // The bytes must outlive the object. `room` bounds the memory of the values, in bytes.
  Pickle(std::span<const std::byte> bytes, const Source& source, const LoadLimits& limits, uint64_t room);
  // No value contains itself, and nesting stays within the limit.
  const PickleValue& root() const { return *root_; }

 private:
  friend class PickleReader;
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace deft::io
