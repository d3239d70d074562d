// Files for the tests of the loaders: a folder of their own, bytes put together by hand, errors compared in full.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "base/error.h"
#include "core/state.h"
#include "io/atomic_file.h"
#include "io/load_options.h"
#include "ops/all_ops.h"
#include "source_dir.h"

namespace deft::io {

// A folder that goes with the object.
struct Folder {
  Folder() {
    static int count = 0;
    path = std::filesystem::temp_directory_path() /
           ("deft_io_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()));
  }
  std::filesystem::path path;
};

// Thousands of saves: what they wrote need not outlive a loss of power.
struct NoSync {
  NoSync() {
    detail::file_calls().sync = [](int) { return 0; };
  }
  ~NoSync() { detail::file_calls() = saved; }
  detail::FileCalls saved = detail::file_calls();
};

inline std::string fixture(const std::string& name) { return deft::test::source_dir() + "/tests/fixtures/" + name; }

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
// Thousands of times: file systems force a file to disk that is emptied and written again, but not a new one.
inline void rewrite_file(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);
  write_file(path, bytes);
}
inline std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

template <class... T>
std::string little(T... values) {
  std::string out;
  (out.append(reinterpret_cast<const char*>(&values), sizeof(T)), ...);
  return out;
}

// The load fails with a LoadError about this field at this offset, and says `text`.
inline void expect_load_error(const std::function<void()>& load, const std::string& field, uint64_t offset,
                              const std::string& text) {
  try {
    load();
    ADD_FAILURE() << "loaded; expected an error about " << field;
  } catch (const LoadError& e) {
    EXPECT_EQ(e.field, field) << e.what();
    EXPECT_EQ(e.offset, offset) << e.what();
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what() << "\n  lacks: " << text;
    EXPECT_FALSE(e.file.empty() || e.format.empty());
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another error: " << e.what();
  }
}
inline void expect_unsupported(const std::function<void()>& load, const std::string& text) {
  try {
    load();
    ADD_FAILURE() << "loaded; expected an error: " << text;
  } catch (const UnsupportedError& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what() << "\n  lacks: " << text;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another error: " << e.what();
  }
}
// Damaged files may load or fail, but only so.
inline bool loads(const std::function<void()>& load) {
  try {
    load();
    return true;
  } catch (const LoadError&) {
    return false;
  } catch (const UnsupportedError&) {
    return false;
  }
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.sizes() != b.sizes()) return false;
  Tensor x = a.contiguous(), y = b.contiguous();
  return x.numel() == 0 ||
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}

inline constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16,    DType::i8,
                                   DType::u8,  DType::i32, DType::i64,  DType::boolean};

// Of any type, rank 0 to 5, sometimes empty, sometimes not contiguous; every bit pattern occurs, except in bools.
inline Tensor random_tensor(std::mt19937_64& random, bool bf16 = true) {
  auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  DType type = kTypes[below(9)];
  if (type == DType::bf16 && !bf16) type = DType::f32;
  std::vector<int64_t> sizes;
  for (int64_t i = below(6); i > 0; --i) sizes.push_back(below(20) == 0 ? 0 : 1 + below(5));
  Tensor t = empty(sizes, type);
  auto* p = static_cast<uint8_t*>(t.data_ptr());
  for (int64_t i = 0; i < t.numel() * static_cast<int64_t>(t.element_size()); ++i)
    p[i] = static_cast<uint8_t>(type == DType::boolean ? random() & 1 : random());
  return t.dim() > 1 && below(2) ? t.transpose(0, t.dim() - 1) : t;
}

}  // namespace deft::io
