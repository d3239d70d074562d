#include "io/tensor_names.h"

#include <algorithm>

#include "io/json_reader.h"

namespace deft::io {

const char* name_fault(std::string_view name, uint64_t max_bytes) {
  if (name.empty()) return "is empty";
  if (name.size() > max_bytes) return "is too long";
  if (valid_utf8(name) != name.size()) return "is not valid UTF-8";
  bool control =
      std::any_of(name.begin(), name.end(), [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; });
  return control ? "holds a control character" : nullptr;
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 64;
  std::string out(text.substr(0, kShown));
  bool utf8 = valid_utf8(text) == text.size();
  for (char& c : out)
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f || (!utf8 && static_cast<uint8_t>(c) >= 0x80)) c = '?';
  out.resize(std::min(out.size(), valid_utf8(out)));  // not in the middle of a character
  return text.size() > kShown ? out + "..." : out;
}

}  // namespace deft::io
