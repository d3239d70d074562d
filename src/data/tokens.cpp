#include "data/tokens.h"

#include <algorithm>
#include <cstring>

#include "data/mapped_file.h"
#include "io/source.h"

namespace deft::data {

namespace {

void check(const TokenOptions& o) {
  DEFT_CHECK(o.length > 0 && o.length < INT32_MAX, ValueError, "TokenWindows: length must be positive, found {}",
             o.length);
  DEFT_CHECK(o.stride >= 0 && o.random_windows >= 0 && o.header_bytes >= 0 && o.vocabulary >= 0, ValueError,
             "TokenWindows: stride {}, random_windows {}, header_bytes {} and vocabulary {} must not be negative",
             o.stride, o.random_windows, o.header_bytes, o.vocabulary);
  DEFT_CHECK(!o.stride || !o.random_windows, ValueError,
             "TokenWindows: give a stride or a number of random windows, not both");
  DEFT_CHECK(o.token_bytes == 2 || o.token_bytes == 4, ValueError, "TokenWindows: tokens have 2 or 4 bytes, found {}",
             o.token_bytes);
  DEFT_CHECK(o.dtype == DType::i64 || (o.dtype == DType::i32 && (o.token_bytes == 2 || o.vocabulary)), DTypeError,
             "TokenWindows: fields can be i64, or i32 if the tokens fit (2 bytes, or a vocabulary), found {}",
             name_of(o.dtype));
}

}  // namespace

TokenWindows::TokenWindows(const std::vector<std::string>& paths, const TokenOptions& options) : options_(options) {
  check(options);
  step_ = options.random_windows ? 1 : options.stride ? options.stride : options.length;
  for (const std::string& path : paths) {
    files_.push_back(std::make_unique<MappedFile>(path, "tokens"));
    first_.push_back(windows_);
    int64_t places = tokens_in(*files_.back()) - options.length;  // a window may start at
    if (places > 0) windows_ += (places - 1) / step_ + 1;
  }
  DEFT_CHECK(windows_ > 0, ValueError, "TokenWindows: no file holds the {} tokens of a window", options.length + 1);
  size_ = options.random_windows ? options.random_windows : windows_;
  fields_ = {{"inputs", options.dtype, {options.length}}, {"targets", options.dtype, {options.length}}};
}

TokenWindows::~TokenWindows() = default;

int64_t TokenWindows::tokens_in(const MappedFile& file) const {
  auto bytes = static_cast<int64_t>(file.bytes().size()) - options_.header_bytes;
  io::Source source{"tokens", file.path()};
  if (bytes < 0)
    source.fail("header", 0, "the file ends at byte {}, before its first token at {}", file.bytes().size(),
                options_.header_bytes);
  if (bytes % options_.token_bytes)
    source.fail("data", static_cast<uint64_t>(options_.header_bytes),
                "found {} bytes, expected a multiple of the token size, {} bytes", bytes, options_.token_bytes);
  return bytes / options_.token_bytes;
}

int64_t TokenWindows::tokens() const {
  int64_t sum = 0;
  for (auto& file : files_) sum += tokens_in(*file);
  return sum;
}

TokenWindows::Place TokenWindows::place(int64_t window) const {
  auto file = static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), window) - first_.begin()) - 1;
  return {files_[file].get(), (window - first_[file]) * step_};
}

void TokenWindows::get(int64_t index, SampleWriter& out) const {
  DEFT_CHECK(index >= 0 && index < size_, IndexError, "TokenWindows: window {} of {}", index, size_);
  Place at = place(options_.random_windows ? out.rng().below(windows_) : index);
  at.file->check_unchanged();
  if (options_.token_bytes == 2)
    options_.dtype == DType::i64 ? copy<uint16_t, int64_t>(at, out) : copy<uint16_t, int32_t>(at, out);
  else
    options_.dtype == DType::i64 ? copy<uint32_t, int64_t>(at, out) : copy<uint32_t, int32_t>(at, out);
}

template <class Token, class Out>
void TokenWindows::copy(const Place& place, SampleWriter& out) const {
  int64_t n = options_.length;
  size_t start = static_cast<size_t>(options_.header_bytes) + static_cast<size_t>(place.token) * sizeof(Token);
  const char* from = place.file->bytes().data() + start;
  auto token = [&](int64_t i) {  // a header of odd length leaves them unaligned
    Token t;
    std::memcpy(&t, from + static_cast<size_t>(i) * sizeof(Token), sizeof(Token));
    return t;
  };
  Out *inputs = out.fixed<Out>(0), *targets = out.fixed<Out>(1);
  Token most = token(0);
  inputs[0] = static_cast<Out>(most);
  for (int64_t i = 1; i <= n; ++i) {
    Token t = token(i);
    most = std::max(most, t);
    targets[i - 1] = static_cast<Out>(t);
  }
  std::copy_n(targets, n - 1, inputs + 1);
  if (!options_.vocabulary || most < options_.vocabulary) return;
  int64_t bad = 0;
  while (token(bad) < options_.vocabulary) ++bad;
  io::Source{"tokens", place.file->path()}.fail("token", start + static_cast<size_t>(bad) * sizeof(Token),
                                                "found token {}, expected one below {}", token(bad),
                                                options_.vocabulary);
}

std::string TokenWindows::describe(int64_t index) const {
  if (options_.random_windows)
    return fmt::format("{}{}, random window {}", files_[0]->path(), files_.size() > 1 ? " and others" : "", index);
  Place at = place(index);
  return fmt::format("{}, tokens {} to {}", at.file->path(), at.token, at.token + options_.length);
}

}  // namespace deft::data
