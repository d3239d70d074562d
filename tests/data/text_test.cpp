#include "data/text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "ops/all_ops.h"

namespace deft::data {
namespace {

bool same(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes() && (a == b).all().item<bool>(); }

Tensor numbers(int64_t n) { return arange(n).to(DType::u8); }

TEST(Text, SplitsAFile) {
  std::string path = std::filesystem::temp_directory_path() / ("deft_text_" + std::to_string(getpid()));
  std::ofstream(path) << std::string(90, 'a') + std::string(10, 'b');
  TextSet set = read_text(path, 100);
  EXPECT_EQ(set.train.numel(), 90);
  EXPECT_EQ(set.test.to_vector<int>(), std::vector<int>(10, 'b'));
  EXPECT_THROW(read_text(path, 101), LoadError);
  std::filesystem::remove(path);
  EXPECT_THROW(read_text(path), LoadError);
}

TEST(Text, RandomBatchesAreShiftedByOneAndRepeatable) {
  Tensor text = numbers(200);
  TextBatch a = take_text(text, 4, 10, 1, 0), b = take_text(text, 4, 10, 1, 0), c = take_text(text, 4, 10, 1, 1);
  EXPECT_TRUE(same(a.inputs, b.inputs));
  EXPECT_FALSE(same(a.inputs, c.inputs));
  EXPECT_TRUE(same(a.inputs + 1, a.targets));
  EXPECT_THROW(take_text(text, 4, 200, 1, 0), ValueError);
}

TEST(Text, StreamCoversTheTextInOrder) {
  Tensor text = numbers(101);
  ASSERT_EQ(stream_batches(text, 2, 7), 7);  // parts of 50 tokens: 49 with a next one
  TextBatch first = stream_text(text, 2, 7, 0), last = stream_text(text, 2, 7, 6);
  EXPECT_EQ(first.inputs[1].to_vector<int>()[0], 50);
  EXPECT_EQ(last.inputs[0].to_vector<int>()[0], 42);
  EXPECT_EQ(last.targets[0].to_vector<int>()[6], 49);
  EXPECT_THROW(stream_text(text, 2, 7, 7), IndexError);
}

}  // namespace
}  // namespace deft::data
