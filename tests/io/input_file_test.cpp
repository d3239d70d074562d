// What goes wrong before any format is looked at: CM1 to CM7.
#include "io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io/load_tensors.h"
#include "io/npy.h"
#include "io/pt.h"
#include "io/safetensors.h"
#include "io/sha256.h"
#include "io_util.h"

namespace {
int disturbed_reads = 0;  // 0: they are not
}

// In place of the C library's. The first call of two is interrupted, the other gives 70 bytes at most.
extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  if (disturbed_reads && disturbed_reads++ % 2) {
    errno = EINTR;
    return -1;
  }
  return syscall(SYS_pread64, fd, to, disturbed_reads ? std::min<size_t>(bytes, 70) : bytes, offset);
}

namespace deft::io {
namespace {

void expect_all_fail(const std::string& path, const std::string& field, uint64_t offset, const std::string& text) {
  expect_load_error([&] { load_safetensors(path); }, field, offset, text);
  expect_load_error([&] { load_safetensors_index(path); }, field, offset, text);
  expect_load_error([&] { load_npy(path); }, field, offset, text);
  expect_load_error([&] { load_npz(path); }, field, offset, text);
  expect_load_error([&] { load_pt(path); }, field, offset, text);
  expect_load_error([&] { load_tensors(path); }, field, offset, text);
}

TEST(CommonBad, CM1_EmptyFile) {
  Folder folder;
  write_file(folder / "x", "");
  expect_all_fail(folder / "x", "file", 0, "the file is empty");
}
TEST(CommonBad, CM2_NotARegularFile) {
  Folder folder;
  expect_all_fail(folder.path.string(), "path", 0, "this is a directory");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_all_fail(folder / "pipe", "path", 0, "this is a device, pipe or socket");
  expect_all_fail("/dev/zero", "path", 0, "this is a device, pipe or socket");
}
TEST(CommonBad, CM3_UnreadableOrMissing) {
  Folder folder;
  expect_all_fail(folder / "missing", "path", 0, "cannot open the file (No such file or directory)");
  write_file(folder / "secret", "x");
  ASSERT_EQ(chmod((folder / "secret").c_str(), 0), 0);
  bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chmod(folder.path.c_str(), 0755), 0);
    ASSERT_EQ(seteuid(65534), 0);
  }
  expect_all_fail(folder / "secret", "path", 0, "cannot open the file (Permission denied)");
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
}
TEST(CommonBad, CM4_ChangesWhileRead) {
  Folder folder;
  write_file(folder / "x", std::string(100, 'x'));
  char bytes[100];
  {
    InputFile file(folder / "x", "test");
    ASSERT_EQ(truncate((folder / "x").c_str(), 50), 0);
    expect_load_error([&] { file.read(0, bytes, 100, "data"); }, "data", 50,
                      "the file became shorter while it was read");
    expect_load_error([&] { file.check_unchanged(); }, "file", 0, "it had 100 bytes, now 50");
  }
  {
    InputFile file(folder / "x", "test");
    file.read(0, bytes, 50, "data");
    file.check_unchanged();
    ASSERT_EQ(truncate((folder / "x").c_str(), 60), 0);
    expect_load_error([&] { file.check_unchanged(); }, "file", 0, "it had 50 bytes, now 60");
  }
}
// Written over with as many bytes as it had: only the time tells.
TEST(CommonBad, CM4_ChangesWhileReadToTheSameSize) {
  Folder folder;
  write_file(folder / "x", std::string(100, 'x'));
  InputFile file(folder / "x", "test");
  file.check_unchanged();
  struct stat s = {};
  ASSERT_EQ(stat((folder / "x").c_str(), &s), 0);
  for (const timespec& moved : {timespec{0, 1}, timespec{1, 0}}) {
    const timespec times[] = {s.st_atim,
                              {s.st_mtim.tv_sec + moved.tv_sec, (s.st_mtim.tv_nsec + moved.tv_nsec) % 1'000'000'000}};
    ASSERT_EQ(utimensat(AT_FDCWD, (folder / "x").c_str(), times, 0), 0);
    expect_load_error([&] { file.check_unchanged(); }, "file", 0, "it had 100 bytes, now 100");
  }
}
TEST(CommonBad, CM5_AnotherFormatThanTheExtension) {
  Folder folder;
  auto copy = [&](const std::string& from, const std::string& to) {
    std::filesystem::copy_file(fixture(from), folder / to, std::filesystem::copy_options::overwrite_existing);
    return folder / to;
  };
  std::string st = folder / "w.safetensors";
  save_safetensors(st, {{"w", ones({2})}});
  expect_load_error([&] { load_safetensors(copy("io/tensor.pt", "a.safetensors")); }, "file", 0,
                    "this is a zip archive (npz or PyTorch), expected a safetensors file");
  expect_load_error([&] { load_safetensors(copy("io/float32.npy", "a.safetensors")); }, "file", 0,
                    "this is an npy file");
  expect_load_error([&] { load_safetensors(copy("io/legacy.pt", "a.safetensors")); }, "file", 0,
                    "from before version 1.6");
  expect_load_error([&] { load_pt(st); }, "file", 0, "this is a safetensors file, expected a zip archive");
  expect_load_error([&] { load_npy(st); }, "file", 0, "this is a safetensors file, expected an npy file");
  expect_load_error([&] { load_npz(copy("io/float32.npy", "a.npz")); }, "file", 0,
                    "this is an npy file, expected a zip archive");
  expect_load_error([&] { load_tensors(copy("io/tensor.pt", "a.safetensors")); }, "file", 0, "this is a zip archive");
  expect_load_error([&] { load_tensors(copy("io/float32.npy", "a.pt")); }, "file", 0, "this is an npy file");
  expect_load_error([&] { load_tensors(copy("io/stored.npz", "a.pt")); }, "file", 0,
                    "this is an npz archive, which its extension denies");
  expect_load_error([&] { load_tensors(copy("io/state_dict.pt", "a.npz")); }, "file", 0, "this is no npz archive");
  write_file(folder / "noise", "this is nothing");
  expect_load_error([&] { load_tensors(folder / "noise"); }, "file", 0,
                    "neither safetensors, npy, npz nor a PyTorch checkpoint");
}
TEST(CommonBad, CM6_WrongHash) {
  Folder folder;
  save_safetensors(folder / "x", {{"w", ones({2})}});
  Sha256 hash;
  hash.add(bytes_of(read_file(folder / "x")));
  LoadOptions options;
  options.sha256 = hash.hex();
  EXPECT_EQ(load_safetensors(folder / "x", options).tensors.size(), 1u);
  EXPECT_EQ(load_tensors(folder / "x", options).size(), 1u);
  options.sha256[0] = options.sha256[0] == '0' ? '1' : '0';
  expect_load_error([&] { load_safetensors(folder / "x", options); }, "sha256", 0, "expected " + options.sha256);
  expect_load_error([&] { load_npy(folder / "x", options); }, "sha256", 0, "the file has SHA-256");
  expect_load_error([&] { load_pt(folder / "x", options); }, "sha256", 0, "the file has SHA-256");
  expect_load_error([&] { load_tensors(folder / "x", options); }, "sha256", 0, "the file has SHA-256");
}
TEST(CommonBad, CM7_PathWithNul) {
  expect_all_fail(std::string("a\0b", 3), "path", 1, "the path holds a NUL character");
}

// Reads that a signal interrupts, and reads that give less than was asked for, go on.
TEST(InputFile, InterruptedAndShortReads) {
  Folder folder;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i % 26);
  write_file(folder / "x", text);
  InputFile file(folder / "x", "test");
  std::string read(text.size(), ' ');
  disturbed_reads = 1;
  file.read(0, read.data(), read.size(), "data");
  const int calls = disturbed_reads;
  disturbed_reads = 0;
  EXPECT_EQ(read, text);
  EXPECT_GT(calls, 20);
}

TEST(InputFile, NothingIsAllocatedForBytesThatAreNotThere) {
  std::string small = "0123456789";
  InputFile file(bytes_of(small), "small", "test");
  expect_load_error([&] { file.read(5, uint64_t{1} << 60, "data"); }, "data", 5,
                    "1152921504606846976 bytes are needed, but the file ends at byte 10");
  expect_load_error([&] { file.read(11, 0, "data"); }, "data", 11, "0 bytes are needed");
  expect_load_error([&] { file.read(~uint64_t{0}, 2, "data"); }, "data", ~uint64_t{0}, "2 bytes are needed");
}

TEST(Sha256, KnownDigests) {
  auto hex = [](const std::string& s) {
    Sha256 h;
    h.add(bytes_of(s));
    return h.hex();
  };
  EXPECT_EQ(hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string block = "abc\x80" + std::string(59, '\0') + "\x18";
  detail::sha256_blocks_portable(state, bytes_of(block).data(), 1);
  EXPECT_EQ(state[0], 0xba7816bfu);
  EXPECT_EQ(state[7], 0xf20015adu);
  for (size_t n = 0; n < 200; ++n) {  // cut anywhere
    std::string s(200, 'x');
    Sha256 h;
    h.add(bytes_of(s).first(n));
    h.add(bytes_of(s).subspan(n));
    EXPECT_EQ(h.hex(), hex(s));
  }
}

TEST(LoadTensors, EveryFormat) {
  Folder folder;
  save_safetensors(folder / "a.safetensors", {{"w", ones({2})}});
  EXPECT_EQ(load_tensors(folder / "a.safetensors")[0].name, "w");
  write_file(folder / "m.index.json", R"({"weight_map":{"w":"a.safetensors"}})");
  EXPECT_EQ(load_tensors(folder / "m.index.json")[0].name, "w");
  EXPECT_EQ(load_tensors(fixture("io/float32.npy"))[0].name, "array");
  EXPECT_EQ(load_tensors(fixture("io/stored.npz")).size(), 16u);
  EXPECT_EQ(load_tensors(fixture("io/state_dict.pt")).size(), 9u);
  EXPECT_EQ(load_tensors(fixture("io/checkpoint.pt")).size(), 9u);
  expect_unsupported([] { load_tensors(fixture("io/legacy.pt")); }, "save it again with torch.save");
}

}  // namespace
}  // namespace deft::io
