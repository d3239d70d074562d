#include "data/tar.h"

#include <gtest/gtest.h>
#ifdef DEFT_HAS_ZLIB
#include <zlib.h>
#endif

#include "data/tar_builder.h"
#include "io/io_util.h"

namespace deft::data {
namespace {

using io::bytes_of;
using io::expect_load_error;
using io::expect_unsupported;

struct Found {
  std::string name, bytes;
  bool operator==(const Found&) const = default;
};

std::vector<Found> members(TarReader& reader) {
  std::vector<Found> found;
  TarMember m;
  for (std::vector<char> bytes; reader.next(m);) {
    reader.read(bytes);
    EXPECT_EQ(bytes.size(), m.size);
    found.push_back({m.name, {bytes.begin(), bytes.end()}});
  }
  EXPECT_FALSE(reader.next(m));
  return found;
}
std::vector<Found> members(const std::string& archive, const TarLimits& limits = {}) {
  TarReader reader(bytes_of(archive), "a.tar", limits);
  return members(reader);
}
std::vector<std::string> names(const std::string& archive, const TarLimits& limits = {}) {
  TarReader reader(bytes_of(archive), "a.tar", limits);
  std::vector<std::string> found;
  for (TarMember m; reader.next(m);) found.push_back(m.name);
  return found;
}
void expect_error(const std::string& archive, const std::string& field, uint64_t offset, const std::string& text,
                  const TarLimits& limits = {}) {
  expect_load_error([&] { members(archive, limits); }, field, offset, text);
}

TEST(Tar, ReadsMembersInOrder) {
  std::string big(3000, 'b');
  std::string archive = tar({{"a.txt", "one"}, {"dir/", "", '5'}, {"dir/b.txt", big}, {"empty", ""}});
  std::vector<Found> expected{{"a.txt", "one"}, {"dir/b.txt", big}, {"empty", ""}};
  EXPECT_EQ(members(archive), expected);
  EXPECT_EQ(names(archive), (std::vector<std::string>{"a.txt", "dir/b.txt", "empty"}));  // nothing read
}

TEST(Tar, FilesGzippedFilesAndLargeMembers) {
  io::Folder folder;
  std::vector<Found> expected;
  std::string archive;
  for (size_t i = 0; i < 50; ++i) {  // sizes around those of the reader's buffer
    size_t size = i < 40 ? i * 97 : (i - 39) * 60'000;
    std::string bytes(size, static_cast<char>('a' + i % 26));
    for (size_t k = 0; k < size; k += 251) bytes[k] = static_cast<char>(k);
    expected.push_back({"m" + std::to_string(i), bytes});
    archive += tar_entry({expected.back().name, bytes});
  }
  archive += tar_end();
  io::write_file(folder / "a.tar", archive);
  TarReader plain(folder / "a.tar");
  EXPECT_FALSE(plain.gzipped());
  EXPECT_EQ(members(plain), expected);
  TarReader skipping(folder / "a.tar");  // reads every third
  TarMember m;
  std::vector<char> bytes;
  for (size_t i = 0; skipping.next(m); ++i) {
    EXPECT_EQ(m.name, expected[i].name);
    if (i % 3) continue;
    skipping.read(bytes);
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()), expected[i].bytes);
  }
#ifdef DEFT_HAS_ZLIB
  gzFile gz = gzopen((folder / "a.tar.gz").c_str(), "wb1");
  gzwrite(gz, archive.data(), static_cast<unsigned>(archive.size()));
  gzclose(gz);
  TarReader packed(folder / "a.tar.gz");
  EXPECT_TRUE(packed.gzipped());
  EXPECT_EQ(members(packed), expected);
  std::string half = io::read_file(folder / "a.tar.gz");
  io::write_file(folder / "half.tar.gz", half.substr(0, half.size() / 2));
  EXPECT_THROW(
      {
        TarReader reader(folder / "half.tar.gz");
        members(reader);
      },
      LoadError);
#endif
  expect_load_error([&] { TarReader(folder / "missing"); }, "path", 0, "cannot open");
  expect_load_error([&] { TarReader(folder.path.string()); }, "path", 0, "directory");
}

TEST(Tar, ArchivesOfPython) {
  std::string accents;
  for (int i = 0; i < 10; ++i) accents += "\xc3\xa9";
  std::string name = "folder/" + std::string(120, 'd') + "/" + accents + ".long.txt";
  std::vector<Found> expected{{"a.cls", "7"}, {"a.txt", std::string(700, 't')}, {"folder/b.cls", ""}, {name, "long"}};
  for (const char* file : {"io/ustar.tar", "io/gnu.tar", "io/pax.tar"}) {
    SCOPED_TRACE(file);
    TarReader reader(io::fixture(file));
    EXPECT_EQ(members(reader), expected);
  }
}

TEST(Tar, LongNames) {
  std::string deep = std::string(120, 'd') + "/" + std::string(90, 'f') + ".jpg";
  EXPECT_EQ(names(tar({{std::string(90, 'f') + ".jpg", "x", '0', "", std::string(120, 'd')}})),
            std::vector<std::string>{deep});
  TarEntry gnu{"././@LongLink", deep + std::string(1, '\0'), 'L', "", "", gnu_magic()};
  EXPECT_EQ(members(tar({gnu, {"short", "x", '0', "", "", gnu_magic()}})), (std::vector<Found>{{deep, "x"}}));
  // GNU has times where POSIX has the prefix.
  EXPECT_EQ(names(tar({{"n", "x", '0', "", "14000000000", gnu_magic()}})), std::vector<std::string>{"n"});
  TarEntry pax{"PaxHeaders/x", pax_line("mtime", "1.5") + pax_line("path", deep), 'x'};
  EXPECT_EQ(members(tar({pax, {"short", "x"}, {"next", "y"}})), (std::vector<Found>{{deep, "x"}, {"next", "y"}}));
  std::string full(100, 'n');  // no NUL at the end of the field
  EXPECT_EQ(names(tar({{full, ""}})), std::vector<std::string>{full});
}

TEST(Tar, OldAndUnusualOnes) {
  EXPECT_EQ(names(tar({{"v7", "x", '\0', "", "", std::string(8, '\0')}, {"dir/", "", '\0'}})),
            std::vector<std::string>{"v7"});
  EXPECT_EQ(names(tar({{"./a", "x"}, {"././b", "x"}})), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(names(tar({{"g", pax_line("comment", "hello"), 'g'}, {"a", "x"}})), std::vector<std::string>{"a"});
  EXPECT_EQ(members(tar({{"a", "xyz", '0', "          3 "}})), (std::vector<Found>{{"a", "xyz"}}));
  std::string binary(12, '\0');  // base 256
  binary[0] = '\x80', binary[11] = 3;
  EXPECT_EQ(members(tar({{"a", "xyz", '0', binary}})), (std::vector<Found>{{"a", "xyz"}}));
  TarEntry size{"p", pax_line("size", "3"), 'x'};
  EXPECT_EQ(members(tar({size, {"a", "xyz", '0', octal(0, 11)}})), (std::vector<Found>{{"a", "xyz"}}));
}

TEST(Tar, EndsWithoutZerosOrWithMany) {
  std::string one = tar_entry({"a", "x"}), two = tar_entry({"b", "y"});
  std::vector<std::string> both{"a", "b"};
  EXPECT_EQ(names(one + two), both);
  EXPECT_EQ(names(one + two + std::string(512, '\0')), both);
  EXPECT_EQ(names(one + two + std::string(700, '\0')), both);
  EXPECT_EQ(names(one + tar_end() + two + tar_end()), both);   // joined archives
  EXPECT_EQ(names(one + tar_header({"b", "y"}) + "y"), both);  // not filled up to a block
  EXPECT_TRUE(names("").empty());
  EXPECT_TRUE(names(tar_end()).empty());
}

TEST(Tar, BrokenHeaders) {
  std::string one = tar_entry({"a", "x"});
  expect_error(one + tar_header({"b", "y"}).substr(0, 300), "header", 1024, "ends after 300 of its 512 bytes");
  expect_error(one + tar_entry({.name = "b", .bytes = "y", .good_checksum = false}), "checksum", 1024 + 148, "says");
  expect_error(std::string(2000, 'x'), "checksum", 148, "not an octal number");
  expect_error("short", "header", 0, "ends after 5");
  expect_error(one + tar_header({"b", std::string(600, 'y')}) + std::string(512, 'y'), "data", 1024 + 512,
               "ends inside a member of 600 bytes");
  // The same when nobody reads the member.
  expect_load_error(
      [&] {
        names(one + tar_header({"b", std::string(600, 'y')}) + "yyy");
      },
      "data", 1024 + 512, "ends inside a member of 600 bytes");
}

TEST(Tar, BrokenSizes) {
  auto with = [](const std::string& size) { return tar({{"a", "xyz", '0', size}}); };
  expect_error(with("-0000000001\0"), "size", 124, "not an octal number");
  expect_error(with("00000000009\0"), "size", 124, "not an octal number");
  expect_error(with("garbage....."), "size", 124, "not an octal number");
  expect_error(with("00000000 12 "), "size", 124, "not an octal number");
  expect_error(with(std::string(12, ' ')), "size", 124, "not an octal number");
  expect_error(with("777777777777"), "size", 124, "68719476735 bytes; the limit is 1073741824");
  expect_error(with(std::string(12, '\xff')), "size", 124, "negative");
  std::string huge(12, '\xff');
  huge[0] = '\x80';
  expect_error(with(huge), "size", 124, "more than 64 bits");
  huge = std::string(4, '\0') + std::string(8, '\xff');
  huge[0] = '\x80';
  expect_error(with(huge), "size", 124, "overflow", {.member_bytes = UINT64_MAX});
  expect_error(with(octal(1 << 20, 11)), "data", 512, "ends inside a member of 1048576 bytes");
  expect_error(with(octal(101, 11)), "size", 124, "101 bytes; the limit is 100", {.member_bytes = 100});
}

TEST(Tar, BrokenNames) {
  expect_error(tar({{"../a", "x"}}), "name", 0, "leads out of the archive");
  expect_error(tar({{"a/../../b", "x"}}), "name", 0, "leads out of the archive");
  expect_error(tar({{"/etc/passwd", "x"}}), "name", 0, "is an absolute path");
  expect_error(tar({{".//etc/passwd", "x"}}), "name", 0, "is an absolute path");
  expect_error(tar({{"", "x"}}), "name", 0, "is empty");
  expect_error(tar({{"a\nb", "x"}}), "name", 0, "control character");
  expect_error(tar({{"abcdef", "x"}}), "name", 0, "is too long", {.name_bytes = 5});
  TarEntry link{"L", std::string(2000, 'n'), 'L', "", "", gnu_magic()};
  expect_error(tar({link, {"a", "x"}}), "long name", 124, "2000 bytes; the limit is 1025");
  expect_error(tar({{"p", pax_line("path", "../x"), 'x'}, {"a", "x"}}), "name", 1024, "leads out");
}

TEST(Tar, BrokenPaxHeaders) {
  auto pax = [](const std::string& bytes) { return tar({{"p", bytes, 'x'}, {"a", "x"}}); };
  expect_error(pax("99 path=x\n"), "pax header", 512, "no line of the form");
  expect_error(pax("0 path=x\n"), "pax header", 512, "no line of the form");
  expect_error(pax("3 =\n"), "pax header", 512, "no line of the form");
  expect_error(pax("99999999999999999999 path=x\n"), "pax header", 512, "no line of the form");
  expect_error(pax("-9 path=x\n"), "pax header", 512, "no line of the form");
  expect_error(pax("9 path=xy\n"), "pax header", 512, "no line of the form");
  expect_error(pax("8 nokey\n"), "pax header", 512, "no '='");
  expect_error(pax(pax_line("a", "b") + "x"), "pax header", 512 + 6, "no line of the form");
  expect_error(pax(pax_line("size", "-1")), "pax header", 512, "not a number of bytes");
  expect_error(pax(pax_line("size", "")), "pax header", 512, "not a number of bytes");
  expect_error(pax(pax_line("size", "99999999999999999999999")), "pax header", 512, "not a number of bytes");
  expect_error(pax(pax_line("size", "18446744073709551615")), "size", 1024 + 124, "overflow",
               {.member_bytes = UINT64_MAX});
  expect_error(tar({{"p", pax_line("size", "3"), 'g'}, {"a", "xyz"}}), "pax header", 0, "all members");
  expect_error(tar_entry({"p", pax_line("path", "b"), 'x'}), "header", 1024, "before the member it announced");
  expect_error(pax(std::string(200, 'x')), "pax header", 124, "200 bytes; the limit is 100", {.pax_bytes = 100});
  expect_unsupported([&] { members(pax(pax_line("GNU.sparse.major", "1"))); }, "sparse");
}

TEST(Tar, LinksAndUnknownTypesAreNoSilentLoss) {
  expect_error(tar({{"a", "", '1'}}), "type", 156, "is a link");
  expect_error(tar({{"a", "", '2'}}), "type", 156, "is a link");
  expect_unsupported([&] { members(tar({{"a", "", 'S'}})); }, "type");
}

TEST(Tar, EveryDamageIsATypedError) {
  std::string good = tar({{"p", pax_line("path", "long/name"), 'x'}, {"a", "one"}, {"L", "gnu", 'L'}, {"b", "two"}});
  std::mt19937_64 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) bad[random() % bad.size()] = static_cast<char>(random());
    if (random() % 2) bad.resize(random() % bad.size());
    for (size_t at = 0; at + 512 <= bad.size(); at += 512) {  // let it pass the first check
      std::string block = bad.substr(at, 512);
      set_checksum(block);
      if (at / 512 % 2 == 0) put(bad, at, block);
    }
    io::loads([&] { members(bad); });
  }
}

}  // namespace
}  // namespace deft::data
