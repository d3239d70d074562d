// Zip archives: ours, NumPy's and PyTorch's are read; ZP1 to ZP12 are refused.
#include "io/zip.h"

#include "io/npy.h"
#include "io/zip_writer.h"
#include "zip_builder.h"

namespace deft::io {
namespace {

std::string unpack(const ZipArchive& zip, const ZipEntry& e) {
  std::string out(e.size, '\0');
  zip.read(e, out.data());
  return out;
}
// Opens the archive and unpacks everything.
std::map<std::string, std::string> read_all(const std::string& bytes, const LoadOptions& options = {}) {
  InputFile file(bytes_of(bytes), "bad.zip", "zip", options);
  ZipArchive zip(file);
  std::map<std::string, std::string> all;
  for (const ZipEntry& e : zip.entries()) all[std::string(e.name)] = unpack(zip, e);
  return all;
}
void expect_bad(const std::string& bytes, const std::string& field, uint64_t offset, const std::string& text,
                const LoadOptions& options = {}) {
  expect_load_error([&] { read_all(bytes, options); }, field, offset, text);
}
ZipBuilder two() { return {{{"a", "first"}, {"dir/b", "second one"}}}; }

// A deflate stream of stored blocks only.
std::string deflate_stored(const std::string& s) {
  auto n = static_cast<uint16_t>(s.size());
  return little(uint8_t{1}, n, static_cast<uint16_t>(~n)) + s;
}

TEST(Zip, Stored) {
  ZipBuilder b = two();
  auto all = read_all(b.build());
  EXPECT_EQ(all.size(), 2u);
  EXPECT_EQ(all["dir/b"], "second one");
  ZipBuilder commented = two();
  commented.comment = "hello";
  EXPECT_EQ(read_all(commented.build()).size(), 2u);
  EXPECT_EQ(read_all(ZipBuilder{{}}.build()).size(), 0u);
}

TEST(Zip, FindsByName) {
  std::string bytes = two().build();
  InputFile file(bytes_of(bytes), "x.zip", "zip");
  ZipArchive zip(file);
  EXPECT_EQ(zip.find("dir/b")->size, 10u);
  EXPECT_EQ(zip.find("dir"), nullptr);
  EXPECT_EQ(zip.find("zzz"), nullptr);
}

TEST(Zip, SizesAfterTheData) {
  ZipBuilder b = two();
  for (ZipMember& m : b.members) m.flags = 8, m.local_crc = 0, m.local_packed = 0, m.local_size = 0;
  EXPECT_EQ(read_all(b.build())["a"], "first");
}

TEST(Zip, Zip64) {
  ZipBuilder b{{{"a", "first"}}};
  ZipMember& m = b.members[0];
  m.size = m.packed_size = 0xffffffff;
  m.local_size = m.local_packed = 0xffffffff;
  m.extra = little(uint16_t{0x7777}, uint16_t{1}, uint8_t{9}, uint16_t{1}, uint16_t{16}, uint64_t{5}, uint64_t{5});
  m.local_extra = little(uint16_t{1}, uint16_t{16}, uint64_t{5}, uint64_t{5});
  EXPECT_EQ(read_all(b.build())["a"], "first");
}

std::string with_zip64_end(ZipBuilder b, uint64_t entries, uint64_t record_bytes = 44) {
  std::string bytes = b.build();
  std::string directory = bytes.substr(b.directory, b.end - b.directory);
  return bytes.substr(0, b.end) +
         little(uint32_t{0x06064b50}, record_bytes, uint16_t{45}, uint16_t{45}, uint32_t{0}, uint32_t{0}, entries,
                entries, uint64_t{directory.size()}, b.directory) +
         little(uint32_t{0x07064b50}, uint32_t{0}, b.end, uint32_t{1}) + bytes.substr(b.end);
}
TEST(Zip, Zip64EndRecord) { EXPECT_EQ(read_all(with_zip64_end(two(), 2)).size(), 2u); }

TEST(Zip, WriterRoundTrip) {
  Folder folder;
  NoSync no_sync;
  std::mt19937_64 random(3);
  for (int round = 0; round < 100; ++round) {
    std::map<std::string, std::string> members;
    ZipWriter zip(folder / "x.zip");
    for (uint64_t i = random() % 8; i > 0; --i) {
      std::string name = "dir/m" + std::to_string(i), data(random() % 5000, '\0');
      for (char& c : data) c = static_cast<char>(random());
      members[name] = data;
      const std::span<const std::byte> parts[] = {bytes_of(data).first(data.size() / 3),
                                                  bytes_of(data).subspan(data.size() / 3)};
      zip.add(name, parts);
    }
    zip.commit();
    ASSERT_EQ(read_all(read_file(folder / "x.zip")), members);
  }
}

TEST(Zip, WriterUsesZip64ForManyMembers) {
  Folder folder;
  ZipWriter zip(folder / "x.zip");
  for (int i = 0; i < 70'000; ++i) zip.add("m" + std::to_string(i), {});
  zip.commit();
  EXPECT_EQ(read_all(read_file(folder / "x.zip")).size(), 70'000u);
}

TEST(Zip, WriterRefusesBadNames) {
  Folder folder;
  ZipWriter zip(folder / "x.zip");
  for (std::string name : {"", "/a", "../a", "a/../b", "a\\b", "a//b", "./a"})
    EXPECT_THROW(zip.add(name, {}), ValueError) << name;
  zip.add("a", {});
  zip.add("a", {});
  EXPECT_THROW(zip.commit(), ValueError);
}

TEST(Crc32, KnownValuesAndBothWays) {
  EXPECT_EQ(crc32(0, bytes_of("123456789")), 0xcbf43926u);
  EXPECT_EQ(crc32(0, {}), 0u);
  std::mt19937_64 random(4);
  for (size_t n = 0; n < 300; ++n) {
    std::string s(n, '\0');
    for (char& c : s) c = static_cast<char>(random());
    uint32_t whole = crc32(0, bytes_of(s));
    EXPECT_EQ(detail::crc32_portable(0, bytes_of(s)), whole);
    EXPECT_EQ(crc32(crc32(0, bytes_of(s).first(n / 3)), bytes_of(s).subspan(n / 3)), whole);
  }
}

// ---- Named bad inputs

TEST(ZipBad, ZP1_NoEndRecord) {
  std::string bytes = two().build();
  expect_bad("PK", "end record", 0, "too short");
  expect_bad(bytes.substr(0, bytes.size() - 1), "end record", 0, "there is none");
  expect_bad(bytes + "x", "end record", 0, "there is none");
}
TEST(ZipBad, ZP2_TwoEndRecordsOrACommentTrick) {
  ZipBuilder b = two();
  // The comment is an end record of its own, with another directory.
  b.comment = ZipBuilder{{}}.build();
  std::string bytes = b.build();
  expect_bad(bytes, "end record", b.end, "there are 2 of them");
  // Two archives in one file: the directory of the second is not where it says.
  ZipBuilder second = two();
  std::string both = two().build() + second.build();
  expect_bad(both, "directory offset", two().build().size() + second.end, "does not end at");
}
TEST(ZipBad, ZP3_WrongCount) {
  ZipBuilder fewer = two(), more = two(), tail = two();
  fewer.count_error = -1, more.count_error = 1, tail.after_directory = "x";
  std::string bytes = fewer.build();
  expect_bad(bytes, "directory", fewer.directory + 46 + 1, "51 bytes follow the last of 1 members");
  bytes = more.build();
  expect_bad(bytes, "directory", more.directory, "3 members do not fit in its 98 bytes");
  bytes = tail.build();
  expect_bad(bytes, "directory offset", tail.end, "does not end at");
}
TEST(ZipBad, ZP4_LocalHeaderDisagrees) {
  auto with = [](auto change) {
    ZipBuilder b = two();
    change(b.members[1]);
    return b.build();
  };
  uint64_t at = 30 + 1 + 5;  // where the second member begins
  expect_bad(with([](ZipMember& m) { m.local_name = "dir/c"; }), "name of 'dir/b'", at + 30,
             "the local header says 'dir/c'");
  expect_bad(with([](ZipMember& m) { m.local_method = 8; }), "method of 'dir/b'", at + 8, "the local header says 8");
  expect_bad(with([](ZipMember& m) { m.local_size = 9; }), "size of 'dir/b'", at + 14, "10 bytes, 9 unpacked");
  expect_bad(with([](ZipMember& m) { m.local_packed = 9; }), "size of 'dir/b'", at + 14,
             "the local header says 9 bytes");
  expect_bad(with([](ZipMember& m) { m.local_crc ^= 1; }), "size of 'dir/b'", at + 14, "CRC");
  expect_bad(with([](ZipMember& m) { m.flags = 8, m.local_size = 9; }), "size of 'dir/b'", at + 14,
             "10 bytes, 9 unpacked");
  expect_bad(with([](ZipMember& m) { m.size = 9; }), "size of 'dir/b'", 36 + 45 + 47 + 20,
             "stored in 10 bytes, but 9 bytes long");
}
TEST(ZipBad, ZP5_Overlap) {
  ZipBuilder b{{{"a", std::string(100, 'x')}}};
  // A second member inside the data of the first.
  ZipBuilder inner{{{"b", "y"}}};
  std::string local = inner.build().substr(0, 32);
  b.members[0] = ZipMember{"a", local + std::string(50, 'x')};
  b.members.push_back({"b", "y"});
  b.members[1].offset = 31;
  expect_bad(b.build(), "offset of 'b'", 31, "the member lies over 'a'");
  ZipBuilder same = two();
  same.members[1] = same.members[0];
  same.members[1].name = "b";
  same.members[1].offset = 0;
  expect_bad(same.build(), "name of 'b'", 30, "the local header says 'a'");
}
// By one byte: the last of the first member's data is the first of the second's header.
TEST(ZipBad, ZP5_OverlapByOneByte) {
  ZipBuilder b = two();
  ZipMember& first = b.members[0];
  const std::string data = first.data + "P";  // which a header begins with
  first.crc = first.local_crc = crc32(0, bytes_of(data));
  first.size = first.packed_size = first.local_size = first.local_packed = static_cast<uint32_t>(data.size());
  expect_bad(b.build(), "offset of 'dir/b'", 36, "the member lies over 'a'");
  EXPECT_EQ(read_all(two().build()).size(), 2u);  // next to each other is fine
}
TEST(ZipBad, ZP6_OffsetPastTheEnd) {
  ZipBuilder b = two();
  b.members[1].offset = 0x7fffffff;
  expect_bad(b.build(), "offset of 'dir/b'", 0x7fffffff, "begins past the members' part");
  b = two();
  b.members[1].offset = 3;
  expect_bad(b.build(), "offset of 'dir/b'", 3, "no member begins here");
  b = two();
  b.members[1].packed_size = b.members[1].size = 1000;
  expect_bad(b.build(), "size of 'dir/b'", 36, "run into the directory");
  b = two();
  b.directory_shift = 1'000'000;
  std::string bytes = b.build();
  expect_bad(bytes, "directory offset", b.end, "does not end at");
}
TEST(ZipBad, ZP7_Encrypted) {
  for (int bit : {0, 6, 13}) {
    ZipBuilder b = two();
    b.members[0].flags = static_cast<uint16_t>(1 << bit);
    std::string bytes = b.build();
    expect_bad(bytes, "flags of 'a'", b.directory + 8, "the member is encrypted");
  }
  ZipBuilder b = two();
  b.members[0].method = b.members[0].local_method = 12;
  expect_unsupported([&] { read_all(b.build()); }, "packed by method 12");
}
TEST(ZipBad, ZP8_Bombs) {
  auto claims = [](uint64_t size) {
    ZipMember m{"a", ""};
    m.packed = deflate_stored("0123456789");
    m.packed_size = m.packed.size();
    m.method = m.local_method = 8;
    m.size = size;
    m.local_size = static_cast<uint32_t>(size), m.local_packed = static_cast<uint32_t>(m.packed_size);
    m.crc = m.local_crc = crc32(0, bytes_of("0123456789"));
    return ZipBuilder{{m}};
  };
  expect_bad(claims(15 * 1032 + 1).build(), "size of 'a'", 0, "15481 bytes unpacked from 15; the limit is 1032 times");
  LoadOptions options;
  options.limits.zip_unpacked_bytes = 10;
#ifdef DEFT_HAS_ZLIB
  EXPECT_EQ(read_all(claims(10).build(), options)["a"], "0123456789");
#endif
  options.limits.zip_unpacked_bytes = 9;
  expect_bad(claims(10).build(), "size of 'a'", 0, "unpack to more than 9 bytes", options);
#ifdef DEFT_HAS_ZLIB
  expect_bad(claims(9).build(), "data of 'a'", 45, "damaged, truncated or too long");
  expect_bad(claims(11).build(), "data of 'a'", 31, "10 bytes unpacked from 15, expected 11 from 15");
#endif
  ZipBuilder sum = claims(10);
  sum.members.push_back(sum.members[0]);
  sum.members[1].name = sum.members[1].local_name = "b";
  options.limits.zip_unpacked_bytes = 19;
  expect_bad(sum.build(), "size of 'b'", 46, "unpack to more than 19 bytes", options);
}
// Small archives may not take much memory, whatever they claim.
TEST(ZipBad, UnpacksToManyTimesTheFile) {
  ZipMember m{"a", ""};
  m.packed = std::string(300'000, 'x');
  m.packed_size = m.packed.size();
  m.method = m.local_method = 8;
  m.size = 300'000'000;
  m.local_size = static_cast<uint32_t>(m.size), m.local_packed = static_cast<uint32_t>(m.packed_size);
  LoadOptions options;
  expect_bad(ZipBuilder{{m}}.build(), "size of 'a'", 0, "unpack to more than 268435456 bytes", options);
}
TEST(ZipBad, ZP9_DuplicateNames) {
  ZipBuilder b = two();
  b.members[1].name = b.members[1].local_name = "a";
  expect_bad(b.build(), "name", 36, "there are two members 'a'");
}
TEST(ZipBad, ZP10_NamesThatLeadOut) {
  auto named = [](const std::string& name) { return ZipBuilder{{{name, "x"}}}; };
  for (auto& [name, text] : std::map<std::string, std::string>{{"/etc/passwd", "is an absolute path"},
                                                               {"../x", "leads out of the archive"},
                                                               {"a/../../x", "leads out of the archive"},
                                                               {"a/..", "leads out of the archive"},
                                                               {"a\\b", "holds a backslash"},
                                                               {std::string("a\0b", 3), "holds a control character"},
                                                               {"", "is empty"},
                                                               {"a//b", "has an empty part"},
                                                               {"./b", "has an empty part"},
                                                               {"\xff", "is not valid UTF-8"},
                                                               {std::string(1025, 'n'), "is too long"}}) {
    ZipBuilder b = named(name);
    std::string bytes = b.build();
    expect_bad(bytes, "name", b.directory + 46, text);
  }
  EXPECT_EQ(read_all(named("a..b/...c").build()).size(), 1u);
}
TEST(ZipBad, ZP11_WrongCrc) {
  ZipBuilder b = two();
  b.members[1].crc = b.members[1].local_crc = 0x12345678;
  expect_bad(b.build(), "data of 'dir/b'", 36 + 35, "expected 12345678: the file is damaged");
}
TEST(ZipBad, ZP12_Zip64Inconsistent) {
  ZipBuilder b = two();
  std::string bytes = b.build();
  uint64_t end = b.end;
  expect_bad(with_zip64_end(two(), 3), "zip64 end record", end + 24, "it disagrees with the end record");
  expect_bad(with_zip64_end(two(), 2, 45), "zip64 end record", end + 4, "its size is 45, expected 44");
  std::string lost = with_zip64_end(two(), 2);
  lost[end + 56 + 8] = '\1';
  expect_bad(lost, "zip64 end record", (end & ~uint64_t{255}) + 1, "does not begin with its signature");
  auto big = [](const std::string& extra) {
    ZipBuilder z{{{"a", "first"}}};
    z.members[0].size = 0xffffffff;
    z.members[0].extra = extra;
    return z;
  };
  uint64_t directory = 30 + 1 + 5;
  expect_bad(big("").build(), "extra of 'a'", directory + 47, "the zip64 sizes are missing");
  expect_bad(big(little(uint16_t{1}, uint16_t{4}, uint32_t{5})).build(), "zip64 extra of 'a'", directory + 47,
             "8 bytes are needed");
  expect_bad(big(little(uint16_t{1}, uint16_t{20}, uint32_t{5})).build(), "extra of 'a'", directory + 47 + 4,
             "20 bytes, but 4 are left");
  expect_bad(big(little(uint16_t{1}, uint16_t{8}, uint64_t{5}, uint16_t{1}, uint16_t{0})).build(), "extra of 'a'",
             directory + 47 + 16, "twice");
  expect_bad(big(little(uint16_t{1}, uint16_t{8}, uint64_t{6})).build(), "size of 'a'", directory + 20,
             "stored in 5 bytes, but 6");
}

TEST(ZipBad, SeveralParts) {
  std::string bytes = two().build();
  bytes[bytes.size() - 22 + 4] = 1;
  expect_bad(bytes, "end record", bytes.size() - 22, "archives in several parts");
}
TEST(ZipBad, EntriesLimit) {
  LoadOptions options;
  options.limits.zip_entries = 2;
  EXPECT_EQ(read_all(two().build(), options).size(), 2u);
  options.limits.zip_entries = 1;
  ZipBuilder b = two();
  std::string bytes = b.build();
  expect_bad(bytes, "directory", b.directory, "2 members; the limit is 1", options);
}

TEST(ZipBad, EveryTruncationAndBitFlip) {
  for (const char* name : {"io/stored.npz", "io/packed.npz", "io/state_dict.pt"}) {
    std::string whole = read_file(fixture(name));
#ifndef DEFT_HAS_ZLIB
    if (name == std::string("io/packed.npz")) continue;
#endif
    auto contents = read_all(whole);
    for (size_t n = 1; n < whole.size(); ++n) EXPECT_FALSE(loads([&] { read_all(whole.substr(0, n)); })) << name << n;
    for (size_t bit = 0; bit < whole.size() * 8; bit += 3) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      // Times and attributes may change; contents never.
      loads([&] {
        auto found = read_all(damaged);
        ASSERT_EQ(found.size(), contents.size());
        for (auto& [member, data] : found) {
          if (contents.contains(member)) {
            EXPECT_EQ(data, contents[member]) << bit;
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace deft::io
