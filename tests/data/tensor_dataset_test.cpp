#include "data/tensor_dataset.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/captured_sample.h"
#include "data/glyphs.h"
#include "io/io_util.h"
#include "ops/all_ops.h"
#ifdef DEFT_HAS_ZLIB
#include <zlib.h>
#endif

namespace deft::data {
namespace {

TEST(TensorDataset, RowsAreFields) {
  Tensor x = arange(0, 24, 1, DType::f32).view({4, 2, 3}), y = arange(4), z = ones({4, 0});
  TensorDataset set({{"x", x}, {"y", y}, {"z", z}});
  EXPECT_EQ(set.size(), 4);
  ASSERT_EQ(set.fields().size(), 3u);
  EXPECT_EQ(set.fields()[0].name, "x");
  EXPECT_EQ(set.fields()[0].shape, Shape({2, 3}));
  EXPECT_EQ(set.fields()[1].shape, Shape());
  EXPECT_EQ(set.fields()[1].dtype, DType::i64);
  for (int64_t i = 0; i < 4; ++i) {
    CapturedSample s = capture(set, i);
    EXPECT_EQ(s.values<float>(0), x[i].to_vector<float>());
    EXPECT_EQ(s.values<int64_t>(1), std::vector<int64_t>{i});
  }
  EXPECT_THROW(capture(set, 4), IndexError);
  EXPECT_THROW(capture(set, -1), IndexError);
}

TEST(TensorDataset, EveryTypeAndLayout) {
  for (DType type : io::kTypes) {
    Tensor x = arange(0, 12, 1, DType::f32).to(type).view({3, 4});
    TensorDataset rows({{"x", x}}), columns({{"x", x.t()}});
    CapturedSample row = capture(rows, 1), column = capture(columns, 2);
    Tensor second = x[1].contiguous(), third = x.t()[2].contiguous();
    EXPECT_EQ(row.text(0), std::string(static_cast<const char*>(second.data_ptr()), 4 * size_of(type)));
    EXPECT_EQ(column.text(0), std::string(static_cast<const char*>(third.data_ptr()), 3 * size_of(type)));
  }
}

TEST(TensorDataset, SharesContiguousTensors) {
  Tensor x = zeros({2, 2}), narrowed = arange(0, 10, 1, DType::f32).narrow(0, 3, 4);
  TensorDataset set({{"x", x}}), part({{"x", narrowed}});
  x.data<float>()[3] = 5;
  EXPECT_EQ(capture(set, 1).values<float>(0), (std::vector<float>{0, 5}));
  EXPECT_EQ(capture(part, 3).values<float>(0), std::vector<float>{6});
}

TEST(TensorDataset, RefusesWhatHasNoRows) {
  EXPECT_THROW(TensorDataset({}), ValueError);
  EXPECT_THROW(TensorDataset({{"x", Tensor()}}), ValueError);
  EXPECT_THROW(TensorDataset({{"x", ones({})}}), ShapeError);
  EXPECT_THROW(TensorDataset({{"x", ones({2})}, {"y", ones({3})}}), ShapeError);
  EXPECT_EQ(TensorDataset({{"x", ones({0, 3})}}).size(), 0);
}

TEST(TensorDataset, SaysWhereASampleIsFrom) {
  NamedTensors x{{"x", ones({2})}};
  EXPECT_EQ(TensorDataset(x).describe(1), "row 1 of 'x'");
  EXPECT_EQ(TensorDataset(x, "train.idx").describe(1), "train.idx, row 1");
}

TEST(TensorDataset, PicturesAndLabels) {
  ImageSet glyphs = make_glyphs(1, 5);
  TensorDataset set = image_dataset(glyphs, "glyphs");
  EXPECT_EQ(set.fields()[0].dtype, DType::u8);
  EXPECT_EQ(set.fields()[0].shape, Shape({1, kGlyphSize, kGlyphSize}));
  CapturedSample s = capture(set, 3);
  EXPECT_EQ(s.values<uint8_t>(0), glyphs.images[3].to_vector<uint8_t>());
  EXPECT_EQ(s.values<int64_t>(1)[0], glyphs.labels.to_vector<int64_t>()[3]);
}

#ifdef DEFT_HAS_ZLIB
TEST(TensorDataset, GzippedMnist) {
  io::Folder folder;
  auto write = [&](const std::string& name, const std::string& bytes) {
    gzFile gz = gzopen((folder / name).c_str(), "wb");
    gzwrite(gz, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(gz);
  };
  write("train-images-idx3-ubyte.gz", std::string("\0\0\x8\x3\0\0\0\x2\0\0\0\x1\0\0\0\x2"
                                                  "abcd",
                                                  20));
  write("train-labels-idx1-ubyte.gz", std::string("\0\0\x8\x1\0\0\0\x2\x7\x9", 10));
  TensorDataset set = image_dataset(read_mnist(folder.path, true), folder.path);
  CapturedSample s = capture(set, 1);
  EXPECT_EQ(s.text(0), "cd");
  EXPECT_EQ(s.values<int64_t>(1)[0], 9);
  EXPECT_EQ(set.describe(1), folder.path.string() + ", row 1");
}
#endif

}  // namespace
}  // namespace deft::data
