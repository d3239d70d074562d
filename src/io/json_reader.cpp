#include "io/json_reader.h"

#include <charconv>

namespace deft::io {

namespace {

// Length of the UTF-8 sequence at the start of `s`, 0 if it is not a valid one.
size_t utf8_length(std::string_view s) {
  auto byte = [&](size_t i) { return i < s.size() ? static_cast<uint8_t>(s[i]) : 0u; };
  auto tail = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  uint32_t b = byte(0), c = byte(1);
  if (b < 0x80) return 1;
  if (b >= 0xc2 && b <= 0xdf) return tail(1) ? 2 : 0;
  if ((b & 0xf0) == 0xe0) {
    bool shortest = b != 0xe0 || c >= 0xa0, no_surrogate = b != 0xed || c < 0xa0;
    return tail(1) && tail(2) && shortest && no_surrogate ? 3 : 0;
  }
  if (b >= 0xf0 && b <= 0xf4) {
    bool shortest = b != 0xf0 || c >= 0x90, in_range = b != 0xf4 || c < 0x90;
    return tail(1) && tail(2) && tail(3) && shortest && in_range ? 4 : 0;
  }
  return 0;
}

void append_utf8(std::string& out, uint32_t c) {
  auto put = [&](uint32_t b) { out += static_cast<char>(b); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
  }
  put(0x80 | (c & 0x3f));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

size_t valid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    size_t n = static_cast<uint8_t>(text[i]) < 0x80 ? 1 : utf8_length(text.substr(i));
    if (n == 0) return i;
    i += n;
  }
  return i;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (static_cast<uint8_t>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out += '"';
}

void JsonReader::fail_here(Field field, const char* expected) {
  if (at_ >= text_.size()) source_.fail(field, offset(), "the JSON ends here, expected {}", expected);
  auto c = static_cast<uint8_t>(text_[at_]);
  if (c >= 0x20 && c < 0x7f) source_.fail(field, offset(), "found '{}', expected {}", static_cast<char>(c), expected);
  source_.fail(field, offset(), "found byte 0x{:02x}, expected {}", c, expected);
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
}

char JsonReader::peek(Field field) {
  skip_space();
  if (at_ >= text_.size()) fail_here(field, "a value");
  return text_[at_];
}

void JsonReader::expect(char c, Field field) {
  skip_space();
  const char expected[] = {'\'', c, '\'', 0};
  if (at_ >= text_.size() || text_[at_] != c) fail_here(field, expected);
  ++at_;
}

void JsonReader::enter(char c, Field field) {
  expect(c, field);
  if (++depth_ > max_depth_) source_.fail(field, offset() - 1, "values are nested more than {} deep", max_depth_);
}

bool JsonReader::leave(char c, bool first, Field field) {
  if (peek(field) == c) {
    ++at_;
    --depth_;
    return true;
  }
  if (!first) expect(',', field);
  return false;
}

uint32_t JsonReader::hex4(Field field) {
  uint32_t value = 0;
  if (text_.size() - at_ < 4) source_.fail(field, offset(), "the JSON ends within an escape");
  const char* begin = text_.data() + at_;
  if (std::from_chars(begin, begin + 4, value, 16).ptr != begin + 4) fail_here(field, "four hex digits");
  at_ += 4;
  return value;
}

void JsonReader::escape(std::string& out, Field field) {
  if (at_ >= text_.size()) fail_here(field, "an escape");
  constexpr std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
  char c = text_[at_];
  if (size_t i = names.find(c); i != names.npos) {
    ++at_;
    out += values[i];
    return;
  }
  if (c != 'u') fail_here(field, "an escape");
  uint64_t start = offset() - 1;
  ++at_;
  uint32_t unit = hex4(field);
  if (unit >= 0xd800 && unit < 0xdc00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    uint32_t low = hex4(field);
    if (low < 0xdc00 || low > 0xdfff) source_.fail(field, start, "a lone surrogate is no character");
    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
  } else if (unit >= 0xd800 && unit < 0xe000) {
    source_.fail(field, start, "a lone surrogate is no character");
  }
  append_utf8(out, unit);
}

std::string_view JsonReader::string(Field field) {
  if (peek(field) != '"') fail_here(field, "a string");
  size_t start = ++at_, plain_from = start;
  std::string* out = nullptr;  // only once there is an escape
  for (;; ++at_) {
    if (at_ >= text_.size()) fail_here(field, "the end of the string");
    char c = text_[at_];
    if (c == '"') break;
    if (static_cast<uint8_t>(c) < 0x20) fail_here(field, "no control character in a string");
    if (c != '\\') continue;
    if (!out) out = &unescaped_.emplace_back();
    out->append(text_.substr(plain_from, at_ - plain_from));
    ++at_;
    escape(*out, field);
    plain_from = at_--;
  }
  std::string_view rest = text_.substr(plain_from, at_++ - plain_from);
  return out ? std::string_view(out->append(rest)) : rest;
}

uint64_t JsonReader::whole_number(Field field) {
  if (!is_digit(peek(field))) fail_here(field, "a whole number that is not negative");
  uint64_t value = 0, start = offset();
  const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
  auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc()) source_.fail(field, start, "the number is larger than 64 bits");
  if (*begin == '0' && stop - begin > 1) source_.fail(field, start, "a number must not begin with 0");
  at_ += static_cast<size_t>(stop - begin);
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E'))
    source_.fail(field, start, "a fraction, expected a whole number");
  return value;
}

bool JsonReader::boolean(Field field) {
  bool yes = peek(field) == 't';
  std::string_view word = yes ? "true" : "false";
  if (text_.substr(at_, word.size()) != word) fail_here(field, "true or false");
  at_ += word.size();
  return yes;
}

void JsonReader::skip_number(Field field) {
  auto digits = [&] {
    if (at_ >= text_.size() || !is_digit(text_[at_])) fail_here(field, "a digit");
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  };
  auto next_is = [&](std::string_view set) { return at_ < text_.size() && set.find(text_[at_]) != set.npos; };
  if (next_is("-")) ++at_;
  if (next_is("0"))
    ++at_;
  else
    digits();
  if (next_is(".")) ++at_, digits();
  if (!next_is("eE")) return;
  ++at_;
  if (next_is("+-")) ++at_;
  digits();
}

void JsonReader::skip(Field field) {
  char c = peek(field);
  if (c == '{') return object(field, [&](std::string_view, uint64_t) { skip(field); });
  if (c == '[') return array(field, [&] { skip(field); });
  if (c == '"') {
    size_t kept = unescaped_.size();
    string(field);
    return unescaped_.resize(kept);
  }
  if (c == '-' || is_digit(c)) return skip_number(field);
  for (std::string_view word : {"true", "false", "null"}) {
    if (text_.substr(at_, word.size()) != word) continue;
    at_ += word.size();
    return;
  }
  fail_here(field, "a value");
}

void JsonReader::end(Field field) {
  skip_space();
  if (at_ < text_.size()) fail_here(field, "nothing but spaces after the JSON");
}

}  // namespace deft::io
