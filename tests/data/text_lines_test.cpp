#include "data/text_lines.h"

#include <gtest/gtest.h>

#include "data/captured_sample.h"
#include "io/io_util.h"

namespace deft::data {
namespace {

using io::expect_load_error;

struct Text {
  explicit Text(const std::string& bytes) { io::write_file(path(), bytes); }
  std::string path() const { return folder / "a.txt"; }
  io::Folder folder;
};

std::vector<std::string> lines(const std::string& bytes, const TextLinesOptions& options = {}) {
  Text text(bytes);
  TextLines set(text.path(), options);
  std::vector<std::string> found;
  for (int64_t i = 0; i < set.size(); ++i) {
    CapturedSample s = capture(set, i);
    found.push_back(s.text(0));
    EXPECT_EQ(s.shape(0), Shape({static_cast<int64_t>(found.back().size())}));
    EXPECT_EQ(set.line(i), found.back());
  }
  return found;
}
using Lines = std::vector<std::string>;

TEST(TextLines, EndsOfLines) {
  EXPECT_EQ(lines("a\nbc\n"), (Lines{"a", "bc"}));
  EXPECT_EQ(lines("a\nbc"), (Lines{"a", "bc"}));  // no final newline
  EXPECT_EQ(lines("a\r\nbc\r\n"), (Lines{"a", "bc"}));
  EXPECT_EQ(lines("a\r\nbc\r"), (Lines{"a", "bc"}));
  EXPECT_EQ(lines("a\rb\n"), (Lines{"a\rb"}));
  EXPECT_EQ(lines("a\n\n\r\nb\n"), (Lines{"a", "", "", "b"}));
  EXPECT_EQ(lines("\n"), (Lines{""}));
  EXPECT_EQ(lines(""), Lines{});
}

TEST(TextLines, BytesPassThrough) {
  std::string odd("\xff\xfe\0\xc3(\x80", 6);
  EXPECT_EQ(lines(odd + "\n" + odd), (Lines{odd, odd}));
}

TEST(TextLines, EmptyOnesCanBeSkipped) {
  EXPECT_EQ(lines("\na\n\n\r\nb\n\n", {.skip_empty = true}), (Lines{"a", "b"}));
  Text text("\na\n\n\r\nb\n\n");
  TextLines skipping(text.path(), {.skip_empty = true}), all(text.path());
  EXPECT_EQ(skipping.describe(1), text.path() + ", line 5");
  EXPECT_EQ(all.describe(4), text.path() + ", line 5");
}

TEST(TextLines, HugeLinesAreErrors) {
  std::string ok(10, 'x'), much(11, 'x');
  TextLinesOptions ten{.longest_line = 10};
  EXPECT_EQ(lines(ok + "\n" + ok + "\r\n" + ok, ten), (Lines{ok, ok, ok}));
  for (const char* end : {"", "\n", "\r\n", "yyyyyyyyyyyy\n"}) {
    Text text("a\n" + much + end);
    TextLines set(text.path(), ten);
    EXPECT_EQ(capture(set, 0).text(0), "a");
    expect_load_error([&] { capture(set, 1); }, "line", 2, "more than 10 bytes");
  }
}

TEST(TextLines, Tokenizer) {
  auto split = [](std::string_view s, std::vector<int32_t>& out) {
    for (char c : s)
      if (c != ' ') out.push_back(c - 'a');
  };
  Text text("a b\n\nzz z\n");
  TextLines set(text.path(), {.tokenizer = split, .pad = -1}),
      narrow(text.path(), {.tokenizer = split, .token_type = DType::i32});
  EXPECT_EQ(set.fields()[0].name, "tokens");
  EXPECT_EQ(set.fields()[0].pad, -1);
  EXPECT_EQ(capture(set, 0).values<int64_t>(0), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(capture(set, 1).shape(0), Shape({0}));
  EXPECT_EQ(capture(narrow, 2).values<int32_t>(0), (std::vector<int32_t>{25, 25, 25}));
  EXPECT_THROW(TextLines(text.path(), {.tokenizer = split, .token_type = DType::f32}), DTypeError);
}

TEST(TextLines, Errors) {
  Text text("a\nb\n");
  TextLines set(text.path());
  EXPECT_EQ(set.fields()[0].name, "text");
  EXPECT_THROW(capture(set, 2), IndexError);
  EXPECT_THROW(capture(set, -1), IndexError);
  EXPECT_THROW(TextLines(text.folder / "missing"), LoadError);
  EXPECT_THROW(TextLines(text.path(), {.longest_line = 0}), ValueError);
  io::write_file(text.path(), "a");
  expect_load_error([&] { capture(set, 1); }, "file", 0, "was changed after it was opened (it had 4 bytes, now 1)");
}

}  // namespace
}  // namespace deft::data
