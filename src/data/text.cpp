#include "data/text.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "ops/creation.h"
#include "runtime/random.h"

namespace deft::data {

namespace {

Tensor bytes_to_tensor(const std::string& text, size_t begin, size_t end) {
  Tensor out = empty({static_cast<int64_t>(end - begin)}, DType::u8);
  std::copy(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end),
            out.data<uint8_t>());
  return out;
}

// Row r of the batch starts at byte starts(r).
template <class Starts>
TextBatch cut(const Tensor& text, int64_t rows, int64_t length, Starts starts) {
  TextBatch out{empty({rows, length}, DType::i64), empty({rows, length}, DType::i64)};
  const uint8_t* from = text.data<uint8_t>();
  int64_t *inputs = out.inputs.data<int64_t>(), *targets = out.targets.data<int64_t>();
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* p = from + starts(r);
    for (int64_t i = 0; i < length; ++i) {
      inputs[r * length + i] = p[i];
      targets[r * length + i] = p[i + 1];
    }
  }
  return out;
}

}  // namespace

TextSet read_text(const std::string& path, int64_t least) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw LoadError("text", path, "file", 0, "cannot be opened for reading; check the path and its permissions");
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (static_cast<int64_t>(text.size()) < least)
    throw LoadError("text", path, "file", 0, fmt::format("has {} bytes, expected at least {}", text.size(), least));
  size_t split = text.size() / 10 * 9;
  return {bytes_to_tensor(text, 0, split), bytes_to_tensor(text, split, text.size())};
}

std::string bible_file() {
  const char* folder = std::getenv("DEFT_DATA");
  std::string path = (folder ? std::string(folder) : std::string("data")) + "/bible.txt";
  DEFT_CHECK(std::filesystem::exists(path), ValueError,
             "there is no text at {}; run ./dev setup, set DEFT_DATA to the folder of bible.txt, or give a file", path);
  return path;
}

TextBatch take_text(const Tensor& text, int64_t rows, int64_t length, uint64_t seed, uint64_t index) {
  int64_t places = text.numel() - length;
  DEFT_CHECK(rows > 0 && length > 0 && places > 0, ValueError,
             "take_text: {} rows of {} tokens cannot be cut from a text of {}", rows, length, text.numel());
  return cut(text, rows, length, [&](int64_t r) {
    auto words = philox({seed, index}, static_cast<uint64_t>(r));
    uint64_t number = static_cast<uint64_t>(words[0]) << 32 | words[1];
    return static_cast<int64_t>(number % static_cast<uint64_t>(places));
  });
}

int64_t stream_batches(const Tensor& text, int64_t rows, int64_t length) {
  DEFT_CHECK(rows > 0 && length > 0, ValueError, "stream_batches: rows {} and length {} must be positive", rows,
             length);
  return (text.numel() / rows - 1) / length;
}

TextBatch stream_text(const Tensor& text, int64_t rows, int64_t length, int64_t index) {
  int64_t batches = stream_batches(text, rows, length), part = text.numel() / rows;
  DEFT_CHECK(index >= 0 && index < batches, IndexError, "stream_text: batch {} of {}", index, batches);
  return cut(text, rows, length, [&](int64_t r) { return r * part + index * length; });
}

}  // namespace deft::data
