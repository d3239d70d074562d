#include "data/text_lines.h"

#include <algorithm>
#include <cstring>

#include "io/source.h"
#include "runtime/per_thread.h"

namespace deft::data {

namespace {

// Where the line that starts at `from` ends: at its \n, or at the end of the text.
size_t line_end(std::string_view text, size_t from) {
  const void* end = std::memchr(text.data() + from, '\n', text.size() - from);
  return end ? static_cast<size_t>(static_cast<const char*>(end) - text.data()) : text.size();
}

std::string_view without_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::vector<uint64_t> find_lines(std::string_view text, bool skip_empty) {
  std::vector<uint64_t> starts;
  for (size_t at = 0; at < text.size();) {
    size_t end = line_end(text, at);
    if (!skip_empty || !without_return(text.substr(at, end - at)).empty()) starts.push_back(at);
    at = end + 1;
  }
  starts.shrink_to_fit();
  return starts;
}

Field field_of(const TextLinesOptions& o) {
  if (!o.tokenizer) return {"text", DType::u8, {-1}, o.pad};
  DEFT_CHECK(o.token_type == DType::i64 || o.token_type == DType::i32, DTypeError,
             "TextLines: tokens can be i32 or i64, found {}", name_of(o.token_type));
  return {"tokens", o.token_type, {-1}, o.pad};
}

}  // namespace

TextLines::TextLines(std::string path, TextLinesOptions options)
    : file_(std::move(path), "text"), options_(std::move(options)), fields_{field_of(options_)} {
  DEFT_CHECK(options_.longest_line > 0, ValueError, "TextLines: longest_line must be positive, found {}",
             options_.longest_line);
  starts_ = find_lines(file_.bytes(), options_.skip_empty);
  file_.check_unchanged();
}

size_t TextLines::start(int64_t index) const {
  DEFT_CHECK(index >= 0 && index < size(), IndexError, "TextLines: line {} of {} in {}", index, size(), file_.path());
  return starts_[static_cast<size_t>(index)];
}

std::string_view TextLines::line(int64_t index) const {
  size_t at = start(index);
  file_.check_unchanged();
  std::string_view text = file_.bytes();
  auto longest = static_cast<size_t>(options_.longest_line);
  // No further than a line may reach with its end: a huge one is not searched.
  std::string_view line =
      text.substr(at, line_end(text.substr(0, std::min(text.size() - at, longest + 2) + at), at) - at);
  line = without_return(line);
  if (line.size() > longest)
    io::Source{"text", file_.path()}.fail("line", at, "it has more than {} bytes; split it or raise longest_line",
                                          longest);
  return line;
}

void TextLines::get(int64_t index, SampleWriter& out) const {
  std::string_view text = line(index);
  if (!options_.tokenizer) {
    uint8_t* to = out.varying<uint8_t>(0, {static_cast<int64_t>(text.size())});
    if (!text.empty()) std::memcpy(to, text.data(), text.size());
    return;
  }
  struct Tokens : std::vector<int32_t> {};
  Tokens& tokens = PerThread<Tokens>::get();
  tokens.clear();
  {
    StageScope scope = out.stage(Stage::decode);
    options_.tokenizer(text, tokens);
  }
  Shape shape{static_cast<int64_t>(tokens.size())};
  if (options_.token_type == DType::i64)
    std::copy(tokens.begin(), tokens.end(), out.varying<int64_t>(0, shape));
  else
    std::copy(tokens.begin(), tokens.end(), out.varying<int32_t>(0, shape));
}

std::string TextLines::describe(int64_t index) const {
  if (!options_.skip_empty) return fmt::format("{}, line {}", file_.path(), index + 1);
  std::string_view before = file_.bytes().substr(0, start(index));
  return fmt::format("{}, line {}", file_.path(), 1 + std::count(before.begin(), before.end(), '\n'));
}

}  // namespace deft::data
