// The lines of a text file as samples.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/mapped_file.h"

namespace deft::data {

// Appends the tokens of a text. Called by several threads at once.
using Tokenizer = std::function<void(std::string_view text, std::vector<int32_t>& tokens)>;

struct TextLinesOptions {
  // Without one, the field is "text": the bytes of the line, u8. With one, it is "tokens".
  Tokenizer tokenizer = {};
  DType token_type = DType::i64;  // or i32
  double pad = 0;
  bool skip_empty = false;         // lines without a byte are no samples
  int64_t longest_line = 1 << 20;  // bytes; LoadError when a longer one is asked for
};

// Lines end with \n or \r\n, which are no part of them; the last may have no end. Bytes are taken as they are, also
// those that are not UTF-8. The file is mapped and scanned once; 8 bytes are kept of each line.
class TextLines final : public Dataset {
 public:
  explicit TextLines(std::string path, TextLinesOptions options = {});

  int64_t size() const override { return static_cast<int64_t>(starts_.size()); }
  const std::vector<Field>& fields() const override { return fields_; }
  // LoadError if the file was changed or shortened since it was opened.
  void get(int64_t index, SampleWriter& out) const override;
  std::string describe(int64_t index) const override;
  // The line in the mapped file.
  std::string_view line(int64_t index) const;

 private:
  size_t start(int64_t index) const;

  MappedFile file_;
  TextLinesOptions options_;
  std::vector<Field> fields_;
  std::vector<uint64_t> starts_;  // of the lines, in the file
};

}  // namespace deft::data
