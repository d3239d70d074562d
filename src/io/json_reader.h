// JSON read value by value, strictly (RFC 8259): every error has its offset, nesting is bounded, no tree is built.
#pragma once

#include <algorithm>
#include <deque>
#include <string>

#include "io/load_options.h"
#include "io/source.h"

namespace deft::io {

// The offset of the first byte that is not part of valid UTF-8, or the size.
size_t valid_utf8(std::string_view text);
// `text` as a JSON string with its quotes.
std::string json_string(std::string_view text);

class JsonReader {
 public:
  // `text` must be valid UTF-8 and outlive the reader and the strings it returns; `base` is its offset in the source.
  JsonReader(std::string_view text, const Source& source, uint64_t base, uint64_t max_depth)
      : text_(text), source_(source), base_(base), max_depth_(std::min(max_depth, kDeepest)) {}

  uint64_t offset() const { return base_ + at_; }
  uint64_t next_offset() {  // of the next value
    skip_space();
    return offset();
  }

  // Calls member(key, offset of the key) for every member; it must read the value.
  template <class F>
  void object(Field field, F member) {
    enter('{', field);
    for (bool first = true; !leave('}', first, field); first = false) {
      uint64_t at = next_offset();
      std::string_view key = string(field);
      expect(':', field);
      member(key, at);
    }
  }
  // Calls element() for every element; it must read it.
  template <class F>
  void array(Field field, F element) {
    enter('[', field);
    for (bool first = true; !leave(']', first, field); first = false) element();
  }
  std::string_view string(Field field);
  uint64_t whole_number(Field field);  // no sign, fraction or exponent
  bool boolean(Field field);
  void skip(Field field);  // a value of any kind
  void end(Field field);   // only spaces may follow

 private:
  void skip_space();
  char peek(Field field);  // the next character that is not a space
  void expect(char c, Field field);
  void enter(char c, Field field);
  bool leave(char c, bool first, Field field);
  void escape(std::string& out, Field field);
  uint32_t hex4(Field field);
  void skip_number(Field field);
  [[noreturn]] void fail_here(Field field, const char* expected);

  std::string_view text_;
  const Source& source_;
  uint64_t base_, max_depth_;
  size_t at_ = 0;
  uint64_t depth_ = 0;
  std::deque<std::string> unescaped_;
};

}  // namespace deft::io
