// Text as numbers: bytes as tokens, split into training and test, cut into batches for language models.
#pragma once

#include <string>

#include "core/tensor.h"

namespace deft::data {

inline constexpr int64_t kByteTokens = 256;

struct TextSet {
  Tensor train, test;  // u8: the last tenth of the text is for the test
  int64_t classes = kByteTokens;
};
// LoadError if the file cannot be read or has fewer than `least` bytes.
TextSet read_text(const std::string& path, int64_t least = 10'000);
// The King James Bible as `./dev setup` leaves it; ValueError that says how to get it if it is not there.
std::string bible_file();

// `rows` pieces of `length` + 1 tokens from random places: inputs are the first `length`, targets the last, both i64
// [rows, length]. Batch `index` depends only on (seed, index).
struct TextBatch {
  Tensor inputs, targets;
};
TextBatch take_text(const Tensor& text, int64_t rows, int64_t length, uint64_t seed, uint64_t index);
// The text cut into `rows` parts that are read side by side, `length` tokens at a time: what models with a memory need.
// The number of batches, and one of them.
int64_t stream_batches(const Tensor& text, int64_t rows, int64_t length);
TextBatch stream_text(const Tensor& text, int64_t rows, int64_t length, int64_t index);

}  // namespace deft::data
