#include "data/tokens.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "data/captured_sample.h"
#include "io/io_util.h"

namespace deft::data {
namespace {

using io::expect_load_error;

// Tokens begin, begin + 1 ...
template <class T>
std::string tokens(T begin, size_t count) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), begin);
  return {reinterpret_cast<const char*>(values.data()), count * sizeof(T)};
}

std::vector<int64_t> range(int64_t begin, int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

void expect_window(const Dataset& set, int64_t index, int64_t first, int64_t length) {
  CapturedSample s = capture(set, index);
  EXPECT_EQ(s.values<int64_t>(0), range(first, length)) << index;
  EXPECT_EQ(s.values<int64_t>(1), range(first + 1, length)) << index;
}

struct Files {
  std::string write(const std::string& name, const std::string& bytes) {
    io::write_file(folder / name, bytes);
    return folder / name;
  }
  io::Folder folder;
};

TEST(TokenWindows, CoverTheFile) {
  Files files;
  std::string path = files.write("a.bin", tokens<uint16_t>(0, 33));
  TokenWindows set({path}, {.length = 8});
  EXPECT_EQ(set.tokens(), 33);
  ASSERT_EQ(set.size(), 4);
  for (int64_t i = 0; i < 4; ++i) expect_window(set, i, 8 * i, 8);
  EXPECT_EQ(set.fields()[0].name, "inputs");
  EXPECT_EQ(set.fields()[1].name, "targets");
  EXPECT_EQ(set.fields()[1].shape, Shape({8}));
  EXPECT_EQ(set.describe(2), path + ", tokens 16 to 24");
  EXPECT_THROW(capture(set, 4), IndexError);
  EXPECT_THROW(capture(set, -1), IndexError);
  EXPECT_EQ(TokenWindows({files.write("b.bin", tokens<uint16_t>(0, 32))}, {.length = 8}).size(), 3);  // no last target
}

TEST(TokenWindows, StridesAndWideTokens) {
  Files files;
  TokenWindows set({files.write("a.bin", tokens<uint32_t>(4'000'000'000u, 20))},
                   {.length = 5, .stride = 3, .token_bytes = 4});
  ASSERT_EQ(set.size(), 5);
  for (int64_t i = 0; i < 5; ++i) expect_window(set, i, 4'000'000'000 + 3 * i, 5);
  TokenWindows one({files.write("b.bin", tokens<uint16_t>(65530, 6))}, {.length = 5, .stride = 1});
  ASSERT_EQ(one.size(), 1);
  expect_window(one, 0, 65530, 5);
  TokenWindows narrow({files.folder / "b.bin"}, {.length = 1, .dtype = DType::i32});
  EXPECT_EQ(capture(narrow, 1).values<int32_t>(1), std::vector<int32_t>{65532});
}

TEST(TokenWindows, SeveralFilesWithHeaders) {
  Files files;
  std::string head = "odd header.";
  std::vector<std::string> paths{files.write("a", head + tokens<uint16_t>(0, 9)),
                                 files.write("b", head + tokens<uint16_t>(50, 3)),
                                 files.write("c", head + tokens<uint16_t>(100, 13)), files.write("d", head)};
  TokenWindows set(paths, {.length = 4, .header_bytes = 11});
  EXPECT_EQ(set.tokens(), 25);
  ASSERT_EQ(set.size(), 5);  // two, none, three, none
  expect_window(set, 1, 4, 4);
  expect_window(set, 2, 100, 4);
  expect_window(set, 4, 108, 4);
  EXPECT_EQ(set.describe(3), paths[2] + ", tokens 4 to 8");
}

TEST(TokenWindows, RandomOnesDependOnTheSample) {
  Files files;
  TokenOptions options{.length = 4, .random_windows = 1000};
  TokenWindows set({files.write("a", tokens<uint16_t>(0, 9)), files.write("b", tokens<uint16_t>(100, 6))}, options);
  ASSERT_EQ(set.size(), 1000);
  std::set<int64_t> starts;
  int same = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    int64_t start = capture(set, i).values<int64_t>(0)[0];
    starts.insert(start);
    expect_window(set, i, start, 4);
    same += start == capture(set, i, 1).values<int64_t>(0)[0];
  }
  EXPECT_EQ(starts, (std::set<int64_t>{0, 1, 2, 3, 4, 100, 101}));  // every place, none over the border
  EXPECT_LT(same, 300);                                             // another epoch, other places
  EXPECT_EQ(set.describe(7), (files.folder / "a") + " and others, random window 7");
}

TEST(TokenWindows, Vocabulary) {
  Files files;
  std::string path = files.write("a", "head" + tokens<uint16_t>(90, 20));
  TokenWindows set({path}, {.length = 4, .header_bytes = 4, .vocabulary = 100});
  expect_window(set, 1, 94, 4);
  expect_load_error([&] { capture(set, 2); }, "token", 4 + 2 * 10, "found token 100, expected one below 100");
}

TEST(TokenWindows, Errors) {
  Files files;
  std::string path = files.write("a", tokens<uint16_t>(0, 20)), odd = files.write("odd", "abc");
  expect_load_error([&] { TokenWindows({odd}, {.length = 1}); }, "data", 0,
                    "found 3 bytes, expected a multiple of the token size, 2 bytes");
  expect_load_error([&] { TokenWindows({odd}, {.length = 1, .header_bytes = 4}); }, "header", 0, "ends at byte 3");
  EXPECT_THROW(TokenWindows({files.folder / "missing"}, {}), LoadError);
  EXPECT_THROW(TokenWindows({}, {}), ValueError);
  EXPECT_THROW(TokenWindows({path}, {.length = 20}), ValueError);
  EXPECT_THROW(TokenWindows({path}, {.length = 0}), ValueError);
  EXPECT_THROW(TokenWindows({path}, {.length = 2, .stride = -1}), ValueError);
  EXPECT_THROW(TokenWindows({path}, {.length = 2, .stride = 1, .random_windows = 5}), ValueError);
  EXPECT_THROW(TokenWindows({path}, {.length = 2, .token_bytes = 3}), ValueError);
  EXPECT_THROW(TokenWindows({path}, {.length = 2, .dtype = DType::f32}), DTypeError);
  EXPECT_THROW(TokenWindows({path}, {.length = 2, .token_bytes = 4, .dtype = DType::i32}), DTypeError);
  TokenWindows set({path}, {.length = 2});
  std::filesystem::resize_file(path, 2);
  expect_load_error([&] { capture(set, 0); }, "file", 0, "was changed after it was opened");
}

}  // namespace
}  // namespace deft::data
