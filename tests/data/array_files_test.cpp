#include "data/array_files.h"

#include <gtest/gtest.h>

#include "data/captured_sample.h"
#include "data/mapped_file.h"
#include "io/io_util.h"
#include "io/npy.h"
#include "io/npy_header.h"
#include "io/safetensors.h"

namespace deft::data {
namespace {

using io::expect_load_error;
using io::expect_unsupported;
using io::fixture;

Tensor counting(const Shape& sizes, DType type = DType::f32) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return arange(0, n, 1, DType::f32).to(type).view(sizes);
}

void expect_rows(const Dataset& set, size_t field, const Tensor& expected) {
  ASSERT_EQ(set.size(), expected.size(0));
  EXPECT_EQ(set.fields()[field].dtype, expected.dtype());
  for (int64_t i = 0; i < set.size(); ++i) {
    Tensor row = expected[i].contiguous();
    EXPECT_EQ(set.fields()[field].shape, row.sizes());
    EXPECT_EQ(capture(set, i).text(field), std::string(static_cast<const char*>(row.data_ptr()),
                                                       static_cast<size_t>(row.numel()) * row.element_size()));
  }
}

TEST(ArrayFiles, ColumnsFromSeveralFiles) {
  io::Folder folder;
  Tensor x = counting({5, 2, 3}), y = counting({5}, DType::i64);
  io::save_npy(folder / "x.npy", x);
  io::save_npy(folder / "y.npy", y);
  ArrayFiles set({{"image", folder / "x.npy"}, {"label", folder / "y.npy"}});
  EXPECT_EQ(set.fields()[0].name, "image");
  expect_rows(set, 0, x);
  expect_rows(set, 1, y);
  EXPECT_EQ(set.describe(3), folder / "x.npy" + std::string(", ") + (folder / "y.npy") + ", row 3");
  EXPECT_THROW(capture(set, 5), IndexError);
  EXPECT_THROW(capture(set, -1), IndexError);
}

TEST(ArrayFiles, EveryTypeInEveryFormat) {
  io::Folder folder;
  for (DType type : io::kTypes) {
    Tensor x = counting({4, 3}, type), odd = counting({4}, DType::u8);
    // An odd number of bytes in front: what follows is not aligned.
    NamedTensors both{{"a", counting({4, 3}, DType::i8).narrow(1, 0, 1).contiguous()}, {"x", x}, {"z", odd}};
    io::save_npz(folder / "a.npz", both);
    io::save_safetensors(folder / "a.safetensors", both);
    ArrayFiles safetensors(folder / "a.safetensors"), npz(folder / "a.npz");
    for (size_t i = 0; i < 3; ++i) {
      const Tensor* expected = find_tensor(both, safetensors.fields()[i].name);
      ASSERT_NE(expected, nullptr);
      expect_rows(safetensors, i, *expected);
    }
    expect_rows(npz, 1, type == DType::bf16 ? x.to(DType::f32) : x);
    expect_rows(npz, 2, odd);
    if (type == DType::bf16) continue;
    io::save_npy(folder / "x.npy", x);
    ArrayFiles npy(folder / "x.npy");
    EXPECT_EQ(npy.fields()[0].name, "array");
    expect_rows(npy, 0, x);
  }
}

TEST(ArrayFiles, FilesOfNumPy) {
  for (const char* name : {"io/float32.npy", "io/big_f8.npy", "io/bool.npy", "io/version2.npy", "io/version3.npy"}) {
    SCOPED_TRACE(name);
    expect_rows(ArrayFiles(fixture(name)), 0, io::load_npy(fixture(name)));
  }
  for (const char* name : {"io/stored.npz", "io/packed.npz"}) {
    SCOPED_TRACE(name);
    for (const NamedTensor& t : io::load_npz(fixture(name))) {
      if (t.tensor.dim() == 0) continue;
      if (!t.tensor.is_contiguous())
        expect_unsupported([&] { ArrayFiles({{"x", fixture(name), t.name}}); }, "Fortran order");
      else
        expect_rows(ArrayFiles({{"x", fixture(name), t.name}}), 0, t.tensor);
    }
  }
  expect_unsupported([] { ArrayFiles(fixture("io/fortran.npy")); }, "save it in C order");
  EXPECT_THROW(ArrayFiles(fixture("io/scalar.npy")), ShapeError);
}

TEST(ArrayFiles, RefusesWhatDoesNotFit) {
  io::Folder folder;
  io::save_npz(folder / "a.npz", {{"x", ones({2})}, {"y", ones({3})}});
  EXPECT_THROW(ArrayFiles(folder / "a.npz"), ShapeError);
  EXPECT_EQ(ArrayFiles({{"f", folder / "a.npz", "y"}}).size(), 3);
  EXPECT_THROW(ArrayFiles({{"f", folder / "a.npz", "z"}}), ValueError);
  EXPECT_THROW(ArrayFiles({{"f", folder / "a.npz"}}), ValueError);  // which one?
  EXPECT_THROW(ArrayFiles(std::vector<ArrayColumn>{}), ValueError);
  EXPECT_THROW(ArrayFiles(folder / "missing.npy"), LoadError);
  EXPECT_THROW(ArrayFiles(folder.path.string()), LoadError);
  io::write_file(folder / "empty.npy", "");
  EXPECT_THROW(ArrayFiles(folder / "empty.npy"), LoadError);
  io::write_file(folder / "text.npy", "hello");
  EXPECT_THROW(ArrayFiles(folder / "text.npy"), LoadError);
  std::string npy = (io::save_npy(folder / "x.npy", ones({4})), io::read_file(folder / "x.npy"));
  io::write_file(folder / "short.npy", npy.substr(0, npy.size() - 1));
  EXPECT_THROW(ArrayFiles(folder / "short.npy"), LoadError);
  io::LoadOptions hash{.sha256 = std::string(64, '0')};
  EXPECT_THROW(ArrayFiles(folder / "x.npy", hash), LoadError);
}

TEST(ArrayFiles, BoolsAreCheckedRowByRow) {
  io::Folder folder;
  io::save_npy(folder / "b.npy", ones({3, 2}, DType::boolean));
  std::string bytes = io::read_file(folder / "b.npy");
  bytes[bytes.size() - 3] = 2;
  io::write_file(folder / "b.npy", bytes);
  ArrayFiles set(folder / "b.npy");
  EXPECT_EQ(capture(set, 0).values<uint8_t>(0), (std::vector<uint8_t>{1, 1}));
  expect_load_error([&] { capture(set, 1); }, "data of 'array'", 128 + 3, "found 2");
}

// Touching bytes that a shorter file lost would end the program.
TEST(ArrayFiles, AFileThatShrinksIsAnError) {
  io::Folder folder;
  for (const char* name : {"a.npy", "a.npz", "a.safetensors"}) {
    std::string path = folder / name;
    Tensor x = ones({100, 1000});
    if (path.ends_with(".npy")) io::save_npy(path, x);
    if (path.ends_with(".npz")) io::save_npz(path, {{"x", x}});
    if (path.ends_with(".safetensors")) io::save_safetensors(path, {{"x", x}});
    ArrayFiles set(path);
    capture(set, 99);
    std::filesystem::resize_file(path, 5000);
    expect_load_error([&] { capture(set, 99); }, "file", 0, "was changed after it was opened");
  }
}

TEST(ArrayFiles, ReplacingAFileLeavesTheOldOne) {
  io::Folder folder;
  io::save_npy(folder / "a.npy", ones({2}));
  ArrayFiles set(folder / "a.npy");
  io::save_npy(folder / "a.npy", zeros({5}));
  EXPECT_EQ(capture(set, 1).values<float>(0), std::vector<float>{1});
}

TEST(MappedFile, MapsAndRefuses) {
  io::Folder folder;
  io::write_file(folder / "a", "hello");
  EXPECT_EQ(MappedFile(folder / "a", "text").bytes(), "hello");
  io::write_file(folder / "empty", "");
  MappedFile empty(folder / "empty", "text");
  EXPECT_TRUE(empty.bytes().empty());
  empty.check_unchanged();
  io::write_file(folder / "empty", "no more");
  EXPECT_THROW(empty.check_unchanged(), LoadError);
  expect_load_error([&] { MappedFile(folder / "missing", "text"); }, "path", 0, "cannot open the file");
  expect_load_error([&] { MappedFile(folder.path.string(), "text"); }, "path", 0, "a regular file is needed");
}

// A hole takes no room on disk, and pages that nobody touches none in memory.
TEST(ArrayFiles, MayBeLargerThanTheMemory) {
#if defined(DEFT_TSAN)
  GTEST_SKIP() << "ThreadSanitizer leaves no room for a terabyte of addresses";
#endif
  io::Folder folder;
  std::string header = R"({"x":{"dtype":"U8","shape":[1073741824,1024],"data_offsets":[0,1099511627776]}})";
  io::write_file(folder / "a.safetensors", io::little(uint64_t{header.size()}) + header + "first row");
  std::filesystem::resize_file(folder / "a.safetensors", 8 + header.size() + (uint64_t{1} << 40));
  ArrayFiles safetensors(folder / "a.safetensors");
  EXPECT_EQ(capture(safetensors, 0).text(0).substr(0, 9), "first row");
  EXPECT_EQ(capture(safetensors, safetensors.size() - 1).text(0), std::string(1024, '\0'));
  header = io::npy_header_text(DType::u8, {1 << 30, 1024});
  io::write_file(folder / "a.npy", header + std::string(1024, '\1'));
  std::filesystem::resize_file(folder / "a.npy", header.size() + (uint64_t{1} << 40));
  ArrayFiles array(folder / "a.npy");
  EXPECT_EQ(capture(array, 0).text(0), std::string(1024, '\1'));
  EXPECT_EQ(capture(array, array.size() - 1).text(0), std::string(1024, '\0'));
}

}  // namespace
}  // namespace deft::data
