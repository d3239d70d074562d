#include "data/image_set.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "data/glyphs.h"
#include "ops/all_ops.h"
#include "runtime/parallel.h"

namespace deft::data {
namespace {

bool same(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes() && (a == b).all().item<bool>(); }

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("deft_images_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& bytes) {
    std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string error_of(const std::string& path) {
    try {
      read_idx(path);
    } catch (const LoadError& e) {
      return e.what();
    }
    return "no error";
  }
  std::filesystem::path folder_;
};

std::string idx(std::initializer_list<uint8_t> sizes, size_t bytes) {
  std::string s{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (uint8_t n : sizes) s += std::string{'\0', '\0', '\0', static_cast<char>(n)};
  for (size_t i = 0; i < bytes; ++i) s += static_cast<char>(i % 10);
  return s;
}

TEST_F(Files, ReadsIdx) {
  Tensor t = read_idx(write("a", idx({2, 3}, 6)));
  EXPECT_EQ(t.sizes(), Shape({2, 3}));
  EXPECT_EQ(t.to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST_F(Files, NamesWhatIsWrong) {
  EXPECT_NE(error_of(write("short", idx({2, 3}, 5))).find("has 5 bytes, its sizes say 6"), std::string::npos);
  EXPECT_NE(error_of(write("long", idx({2, 3}, 7))).find("has 7 bytes"), std::string::npos);
  EXPECT_NE(error_of(write("magic", "PNG\r")).find("magic number at byte 0"), std::string::npos);
  EXPECT_NE(error_of(write("empty", "")).find("magic number"), std::string::npos);
  EXPECT_NE(error_of(write("header", idx({2, 3}, 0).substr(0, 7))).find("inside its header"), std::string::npos);
  EXPECT_NE(error_of((folder_ / "missing").string()).find("cannot be opened"), std::string::npos);
  std::string huge{'\0', '\0', '\x08', '\x03'};
  huge += std::string(12, '\xff');
  EXPECT_NE(error_of(write("huge", huge)).find("overflows"), std::string::npos);
}

TEST_F(Files, ReadsMnist) {
  write("train-images-idx3-ubyte", idx({4, 2, 3}, 24));
  write("train-labels-idx1-ubyte", idx({4}, 4));
  ImageSet set = read_mnist(folder_, true);
  EXPECT_EQ(set.images.sizes(), Shape({4, 1, 2, 3}));
  EXPECT_EQ(set.labels.to_vector<int>(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_THROW(read_mnist(folder_, false), LoadError);
  write("train-labels-idx1-ubyte", idx({3}, 3));
  EXPECT_THROW(read_mnist(folder_, true), LoadError);
  std::string bad = idx({4}, 4);
  bad.back() = 10;
  write("train-labels-idx1-ubyte", bad);
  EXPECT_THROW(read_mnist(folder_, true), LoadError);
}

TEST_F(Files, ReadsCifar) {
  std::string record(1 + 3072, '\x05');
  record[0] = 7;
  write("test_batch.bin", record + record);
  ImageSet set = read_cifar(folder_, false);
  EXPECT_EQ(set.images.sizes(), Shape({2, 3, 32, 32}));
  EXPECT_EQ(set.labels.to_vector<int>(), (std::vector<int>{7, 7}));
  write("test_batch.bin", record + "x");
  EXPECT_THROW(read_cifar(folder_, false), LoadError);
}

TEST(TakeImages, Normalizes) {
  ImageSet set{zeros({3, 1, 1, 2}, DType::u8), zeros({3}, DType::i64), 2};
  set.images.data<uint8_t>()[4] = 255;
  set.labels.data<int64_t>()[2] = 1;
  Tensor x = take_images(set, {2, 0}, {0.5f, 0.25f});
  std::vector<float> expected{2, -2, -2, -2}, found = x.to_vector<float>();
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], expected[i], 1e-6);
  EXPECT_EQ(take_labels(set, {2, 0}).to_vector<int>(), (std::vector<int>{1, 0}));
  EXPECT_THROW(take_images(set, {3}), IndexError);
  EXPECT_THROW(take_labels(set, {-1}), IndexError);
}

TEST(Glyphs, DependOnSeedAndIndexOnly) {
  const int threads = num_threads();
  set_num_threads(4);
  ImageSet all = make_glyphs(3, 400);
  set_num_threads(1);
  ImageSet alone = make_glyphs(3, 400), few = make_glyphs(3, 70), other = make_glyphs(4, 70);
  set_num_threads(threads);
  EXPECT_TRUE(same(all.images, alone.images));
  EXPECT_TRUE(same(all.images.narrow(0, 0, 70), few.images));
  EXPECT_TRUE(same(all.labels.narrow(0, 0, 70), few.labels));
  EXPECT_FALSE(same(other.images, few.images));
  std::vector<int64_t> labels = all.labels.to_vector<int64_t>();
  std::set<int64_t> seen(labels.begin(), labels.end());
  EXPECT_EQ(static_cast<int64_t>(seen.size()), glyph_classes());
  EXPECT_LT(*seen.rbegin(), glyph_classes());
}

// Most of a picture is paper, dark or light; the noise on it makes it neither darker nor lighter.
TEST(Glyphs, PaperIsDarkOrLight) {
  const int64_t count = 300;
  ImageSet set = make_glyphs(6, count);
  std::vector<double> pixels = set.images.to_vector<double>();
  const size_t each = pixels.size() / count;
  int dark = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = pixels.begin() + static_cast<std::ptrdiff_t>(i * each);
    std::nth_element(begin, begin + static_cast<std::ptrdiff_t>(each / 2), begin + static_cast<std::ptrdiff_t>(each));
    const double paper = begin[static_cast<std::ptrdiff_t>(each / 2)] / 255;
    dark += paper < 0.5;
    EXPECT_TRUE((paper > 0.03 && paper < 0.33) || (paper > 0.67 && paper < 0.97)) << i << ": " << paper;
  }
  EXPECT_NEAR(dark, count / 2, 50);
}

TEST(Glyphs, EveryPictureHasInkAndPaper) {
  ImageSet set = make_glyphs(5, 100);
  Tensor x = set.images.to(DType::f32).reshape({100, -1});
  Tensor range = x.amax({1}) - x.amin({1});
  EXPECT_GT(range.amin().item(), 80);
}

}  // namespace
}  // namespace deft::data
