// The text of a graph, line by line: what is read, and which line of a broken one is named.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/error.h"
#include "graph/ir.h"
#include "ops/all_ops.h"

namespace deft::graph {
namespace {

const char* const kLines[] = {
    "buffer 0 input 64",
    "buffer 1 temporary 64",
    "buffer 2 temporary 16",
    "value 0 b0+0 f32 4,4 4,1 cpu",
    "value 1 b1+0 f32 4,4 4,1 cpu",
    "value 2 b1+0 f32 4,4 1,4 cpu",
    "value 3 b2+0 f32 4 1 cpu",
    "inputs %0",
    "%1 = exp(%0)",
    "%2 view permute(%1) {[1,0]}",
    "%2 write mul(%2, %0)",
    "%3 = sum(%2) {1 false}",
    "outputs %3",
};
constexpr size_t kCount = std::size(kLines);

std::string text_with(size_t changed, const std::string& line) {
  std::string text;
  for (size_t i = 0; i < kCount; ++i) text += (i == changed ? line : kLines[i]) + std::string("\n");
  return text;
}

TEST(IrText, IsWrittenAsItIsRead) {
  const Graph g = parse(text_with(kCount, ""), {});
  EXPECT_EQ(g.instructions.size(), 4u);
  EXPECT_EQ(to_text(g), to_text(parse(to_text(g), {})));
  const std::string text = to_text(g);
  for (const char* line : kLines) EXPECT_NE(text.find(line), text.npos) << line << " is not in\n" << text;
}

TEST(IrText, BrokenLinesAreNamed) {
  struct Broken {
    size_t line;
    const char* text;
    const char* why;
  };
  const Broken all[] = {
      {0, "buffer 1 input 64", "buffers must be in order"},
      {0, "buffer x input 64", "found 'x', expected a number"},
      {0, "buffer 0x input 64", "found '0x', expected a number"},
      {0, "buffer  input 64", "found 'input', expected a number"},
      {0, "buffer 0 somewhere 64", "found the kind 'somewhere'"},
      {0, "buffer 0 input", "found '', expected a number"},
      {0, "buffer 0 input -1", "less than no bytes"},
      {0, "buffer 0 input 99999999999999999999", "expected a number"},
      {1, "buffer 1 constant 64", "more constants are named than were given"},
      {4, "value 2 b1+0 f32 4,4 4,1 cpu", "values must be in order"},
      {4, "value 1 1+0 f32 4,4 4,1 cpu", "found the place '1+0'"},
      {4, "value 1 b1 f32 4,4 4,1 cpu", "found the place 'b1'"},
      {4, "value 1 b3+0 f32 4,4 4,1 cpu", "there is no such buffer"},
      {4, "value 1 b-1+0 f32 4,4 4,1 cpu", "there is no such buffer"},
      {4, "value 1 b1+z f32 4,4 4,1 cpu", "found 'z', expected a number"},
      {4, "value 1 b1+0 f33 4,4 4,1 cpu", "found the type 'f33'"},
      {4, "value 1 b1+0 f32 4,4 4 cpu", "sizes and strides differ in number"},
      {4, "value 1 b1+0 f32 4,-4 4,1 cpu", "a size is negative"},
      {4, "value 1 b1+0 f32 4,4 4,-1 cpu", "a stride is negative"},
      {4, "value 1 b1+0 f32 1,1,1,1,1,1,1,1,1,1,1,1,1 1 cpu", "too many dimensions"},
      {4, "value 1 b1+0 f32 4,4 4,1 gpu", "gpu"},
      {7, "inputs 0", "found '0', expected a value"},
      {7, "inputs %4", "there is no value %4"},
      {7, "inputs %-1", "there is no value %-1"},
      {8, "%1 = exp", "expected an instruction"},
      {8, "%1 = exp(%0", "expected an instruction"},
      {8, "%1 = exp)%0(", "expected an instruction"},
      {8, "exp(%0)", "expected an instruction"},
      {8, "= exp(%0)", "expected an instruction"},
      {8, "(%0)", "expected an instruction"},
      {8, ")(", "expected an instruction"},
      {8, "%1 = exq(%0)", "there is no op 'exq'"},
      {8, "%1 makes exp(%0)", "found 'makes', expected =, write or view"},
      {8, "%1 = exp(%0, %0)", "the number of inputs is wrong"},
      {8, "%1 = exp()", "the number of inputs is wrong"},
      {8, "%1 = exp(0)", "found '0', expected a value"},
      {8, "call exp(%0) writes 0", "a graph that calls code outside cannot be read back"},
      {9, "%2 view permute(%1) {[1,}", ""},
      {9, "%2 view permute(%1) {[1,0],7}", ""},
  };
  for (const Broken& b : all) {
    SCOPED_TRACE(fmt::format("line {}: {}", b.line + 1, b.text));
    try {
      parse(text_with(b.line, b.text), {});
      ADD_FAILURE() << "was read";
    } catch (const LoadError& e) {
      const std::string what = e.what(), text = text_with(kCount, "");
      EXPECT_NE(what.find(b.why), what.npos) << what;
      EXPECT_TRUE(
          what.starts_with(fmt::format("graph: text: line {} at byte {}: ", b.line + 1, text.find(kLines[b.line]))))
          << what;
    }
  }
}

// Buffers and values are numbered by their lines.
TEST(IrText, LinesMissingOrTwice) {
  for (size_t i = 0; i < kCount; ++i) {
    const std::string line = kLines[i];
    if (!line.starts_with("buffer") && !line.starts_with("value")) continue;
    EXPECT_THROW(parse(text_with(i, ""), {}), LoadError) << "without " << line;
    EXPECT_THROW(parse(text_with(i, line + "\n" + line), {}), LoadError) << "twice " << line;
  }
  EXPECT_THROW(parse(text_with(8, ""), {}), Error) << "nobody makes %1";
}

}  // namespace
}  // namespace deft::graph
