// npy and npz: NumPy's files are read, ours read back bit by bit, NP1 to NP14 refused.
#include "io/npy.h"

#include "zip_builder.h"

namespace deft::io {
namespace {

std::string npy(const std::string& header, const std::string& data = "", uint8_t major = 1) {
  std::string start("\x93NUMPY", 6);
  start += little(major, uint8_t{0});
  start += major == 1 ? little(static_cast<uint16_t>(header.size())) : little(static_cast<uint32_t>(header.size()));
  return start + header + data;
}
std::string dict(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}
Tensor parse(const std::string& bytes, const LoadOptions& options = {}) {
  return parse_npy(bytes_of(bytes), "bad.npy", options);
}
void expect_bad(const std::string& bytes, const std::string& field, uint64_t offset, const std::string& text,
                const LoadOptions& options = {}) {
  expect_load_error([&] { parse(bytes, options); }, field, offset, text);
}
std::vector<double> counted(int64_t n) {
  std::vector<double> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i);
  return v;
}

void expect_numpys_arrays(const NamedTensors& t) {
  ASSERT_EQ(t.size(), 16u);
  auto expect = [&](const char* name, DType type, const Shape& sizes, const std::vector<double>& values) {
    const Tensor* found = find_tensor(t, name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->dtype(), type) << name;
    EXPECT_EQ(found->sizes(), sizes) << name;
    EXPECT_EQ(found->to_vector<double>(), values) << name;
  };
  for (auto& [name, type] : std::map<const char*, DType>{{"float32", f32},
                                                         {"float64", f64},
                                                         {"float16", f16},
                                                         {"int8", i8},
                                                         {"uint8", u8},
                                                         {"int32", i32},
                                                         {"int64", i64},
                                                         {"big_f2", f16},
                                                         {"big_f4", f32},
                                                         {"big_f8", f64},
                                                         {"big_i4", i32},
                                                         {"big_i8", i64}})
    expect(name, type, {2, 3}, counted(6));
  expect("bool", boolean, {3}, {1, 0, 1});
  expect("scalar", f64, {}, {7.5});
  expect("empty", f32, {0, 4}, {});
  expect("fortran", f32, {2, 3, 4}, counted(24));
  EXPECT_EQ(find_tensor(t, "fortran")->strides(), (Shape{1, 2, 6}));
  find_tensor(t, "float32")->clone().add_(1);
}

TEST(Npz, WhatNumpyStores) { expect_numpys_arrays(load_npz(fixture("io/stored.npz"))); }
#ifdef DEFT_HAS_ZLIB
TEST(Npz, WhatNumpyPacks) { expect_numpys_arrays(load_npz(fixture("io/packed.npz"))); }
#else
TEST(Npz, PackedMembersNeedZlib) {
  expect_unsupported([] { load_npz(fixture("io/packed.npz")); }, "Deft was built without zlib");
}
#endif

TEST(Npy, WhatNumpyWrites) {
  for (bool mmap : {false, true}) {
    LoadOptions options;
    options.mmap = mmap;
    EXPECT_EQ(load_npy(fixture("io/float32.npy"), options).to_vector<double>(), counted(6));
    EXPECT_EQ(load_npy(fixture("io/fortran.npy"), options).to_vector<double>(), counted(24));
    EXPECT_EQ(load_npy(fixture("io/big_f8.npy"), options).to_vector<double>(), counted(6));
    EXPECT_EQ(load_npy(fixture("io/version2.npy"), options).to_vector<double>(), counted(6));
    EXPECT_EQ(load_npy(fixture("io/version3.npy"), options).to_vector<double>(), counted(6));
    EXPECT_EQ(load_npy(fixture("io/scalar.npy"), options).item(), 7.5);
    EXPECT_EQ(load_npy(fixture("io/empty.npy"), options).sizes(), (Shape{0, 4}));
    EXPECT_EQ(load_npy(fixture("io/bool.npy"), options).to_vector<double>(), (std::vector<double>{1, 0, 1}));
  }
}

TEST(Npy, WhatDeftHasNoTypeFor) {
  for (auto& [name, text] :
       std::map<std::string, std::string>{{"object", "pickled Python objects, which are never read"},
                                          {"record", "arrays of records cannot be read"},
                                          {"text", "Deft has no type '<U2'"},
                                          {"bytes", "Deft has no type '|S2'"},
                                          {"int16", "Deft has no type '<i2'"},
                                          {"uint32", "Deft has no type '<u4'"},
                                          {"complex", "Deft has no type '<c8'"},
                                          {"date", "Deft has no type '<M8[D]'"},
                                          {"void", "Deft has no type '|V2'"}})
    expect_unsupported([&] { load_npy(fixture("io/refused_" + name + ".npy")); },
                       "descr at byte 20: " + (text[0] == 'p' ? "'|O' means " + text : text));
}

TEST(Npy, RoundTrips) {
  Folder folder;
  NoSync no_sync;
  std::mt19937_64 random(5);
  for (int round = 0; round < 500; ++round) {
    Tensor t = random_tensor(random, false);
    save_npy(folder / "x.npy", t);
    ASSERT_TRUE(same_bits(load_npy(folder / "x.npy"), t));
    EXPECT_EQ(std::filesystem::file_size(folder / "x.npy") - static_cast<uint64_t>(t.numel()) * t.element_size(), 128u);
  }
  EXPECT_EQ(folder.files(), 1u);
}
TEST(Npy, Bf16IsSavedAsFloat32) {
  Folder folder;
  Tensor t = arange(0, 10, 1, DType::f32).to(bf16);
  save_npy(folder / "x.npy", t);
  EXPECT_TRUE(same_bits(load_npy(folder / "x.npy"), t.to(f32)));
}
TEST(Npz, RoundTrips) {
  Folder folder;
  NoSync no_sync;
  std::mt19937_64 random(6);
  for (int round = 0; round < 200; ++round) {
    NamedTensors tensors;
    for (uint64_t i = random() % 6; i > 0; --i)
      tensors.push_back({"block." + std::to_string(i), random_tensor(random, false)});
    save_npz(folder / "x.npz", tensors);
    NamedTensors found = load_npz(folder / "x.npz");
    ASSERT_EQ(found.size(), tensors.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].name, tensors[i].name);
      ASSERT_TRUE(same_bits(found[i].tensor, tensors[i].tensor));
    }
  }
  EXPECT_THROW(save_npz(folder / "y.npz", {{"a", ones({1})}, {"a", ones({1})}}), ValueError);
  EXPECT_THROW(save_npz(folder / "y.npz", {{"../a", ones({1})}}), ValueError);
  EXPECT_THROW(save_npz(folder / "y.npz", {{"a", Tensor()}}), ValueError);
  EXPECT_EQ(folder.files(), 1u);
}

TEST(Npy, HeadersInOtherWords) {
  std::string four(4, '\0');
  EXPECT_EQ(parse(npy("{\"shape\":(1L,),\"descr\":\"<f4\",\"fortran_order\":True}", four)).sizes(), (Shape{1}));
  EXPECT_EQ(parse(npy(dict("<f4", "(2, 0, 3)"))).sizes(), (Shape{2, 0, 3}));
  EXPECT_EQ(parse(npy(dict("<f4", "()"), four)).dim(), 0);
  EXPECT_EQ(parse(npy(dict("=i4", "(1,)"), four, 2)).dtype(), i32);
  EXPECT_EQ(parse(npy(dict(">u1", "(4,)"), four, 3)).dtype(), u8);
}

// ---- Named bad inputs

TEST(NpyBad, NP1_BadMagic) {
  expect_bad("\x93NUMPX\1" + std::string(20, '\0'), "magic", 0, "does not begin with \\x93NUMPY");
  expect_bad("\x93NUM", "magic", 0, "6 bytes are needed");
}
TEST(NpyBad, NP2_UnknownVersion) {
  expect_bad(npy(dict("<f4", "()"), "1234", 4), "version", 6, "version 4.0; versions 1.0, 2.0 and 3.0 are known");
  std::string minor = npy(dict("<f4", "()"), "1234");
  minor[7] = 1;
  expect_bad(minor, "version", 6, "version 1.1");
  expect_bad(npy(dict("<f4", "()"), "1234", 0), "version", 6, "version 0.0");
}
TEST(NpyBad, NP3_HeaderPastTheEnd) {
  expect_bad(std::string("\x93NUMPY\1\0", 8) + little(uint16_t{50}) + "{}", "header length", 8,
             "50 bytes, but the file ends at byte 12");
  expect_bad(std::string("\x93NUMPY\2\0\1", 9), "header length", 8, "4 bytes are needed");
}
TEST(NpyBad, NP4_HeaderTooLong) {
  auto sized = [](size_t n) {
    std::string h = dict("<f4", "()");
    h.insert(h.size() - 1, n - h.size(), ' ');
    return npy(h, "1234", 2);
  };
  EXPECT_EQ(parse(sized(10'000)).numel(), 1);
  expect_bad(sized(10'001), "header length", 8, "10001 bytes; the limit is 10000");
  expect_bad(std::string("\x93NUMPY\2\0", 8) + little(~uint32_t{0}) + "{}", "header length", 8,
             "4294967295 bytes; the limit is 10000");
}
TEST(NpyBad, NP5_ExtraOrMissingKeys) {
  expect_bad(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}", "1234"), "header", 64,
             "the key 'x' is unknown");
  expect_bad(npy("{'fortran_order': False, 'shape': ()}", "1234"), "header", 47, "the key 'descr' is missing");
  expect_bad(npy("{'descr': '<f4', 'shape': ()}", "1234"), "header", 39, "the key 'fortran_order' is missing");
  expect_bad(npy("{'descr': '<f4', 'fortran_order': False}", "1234"), "header", 50, "the key 'shape' is missing");
  expect_bad(npy("{'shape': (), 'descr': '<f4', 'shape': (), 'fortran_order': False}", "1234"), "header", 40,
             "the key 'shape' is there twice");
}
TEST(NpyBad, NP6_NotALiteral) {
  auto shape = [](const std::string& s) { return npy(dict("<f4", s), "1234"); };
  uint64_t at = 10 + 50;  // of the shape
  expect_bad(shape("(1+1,)"), "shape", at + 2, "found '+', expected ',' or ')'");
  expect_bad(shape("(len('x'),)"), "shape", at + 1, "found 'l', expected a whole number");
  expect_bad(shape("((1,),)"), "shape", at + 1, "found '(', expected a whole number");
  expect_bad(shape("(1, # no\n)"), "shape", at + 4, "found '#'");
  expect_bad(shape("[1]"), "shape", at, "found '[', expected '('");
  expect_bad(shape("(1)"), "shape", at, "a number in brackets, expected a tuple");
  expect_bad(shape("(1,,)"), "shape", at + 3, "found ','");
  expect_bad(npy("__import__('os').system('x')", "1234"), "header", 10, "found '_', expected '{'");
  expect_bad(npy("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", "1234"), "fortran_order", 44,
             "expected True or False");
  expect_bad(npy("{'descr': '<f' + '4', 'fortran_order': False, 'shape': ()}", "1234"), "descr", 20, "'<f'");
  expect_bad(npy("{'de\\x73cr': '<f4', 'fortran_order': False, 'shape': ()}", "1234"), "header", 11,
             "escapes are not part of the format");
  expect_bad(npy(dict("<f4", "()") + "x", "1234"), "header", 10 + 56, "found 'x', expected nothing but spaces");
  expect_bad(npy("{'descr", "1234"), "header", 11, "the string does not end");
}
TEST(NpyBad, NP7_ObjectsAndRecords) {
  expect_unsupported([] { parse(npy(dict("|O", "(1,)"), "12345678")); },
                     "'|O' means pickled Python objects, which are never read");
  expect_unsupported([] { parse(npy(dict("|O8", "(1,)"), "12345678")); }, "pickled");
  expect_unsupported([] { parse(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234")); },
                     "arrays of records");
  for (std::string d : {"<f3", "f4", "<", "", "<q8", "x"})
    EXPECT_FALSE(loads([&] { parse(npy(dict(d, "()"), "1234")); })) << d;
}
TEST(NpyBad, NP8_WrongSizes) {
  auto shape = [](const std::string& s) { return npy(dict("<f4", s), "1234"); };
  uint64_t at = 10 + 50;
  expect_bad(shape("(-1,)"), "shape", at + 1, "found '-', expected a whole number");
  expect_bad(shape("(281474976710657, 0)"), "shape", at + 1, "larger than 281474976710656, the limit");
  expect_bad(shape("(99999999999999999999,)"), "shape", at + 1, "larger than 281474976710656, the limit");
  expect_bad(shape("(281474976710656, 281474976710656)"), "shape", at, "the number of elements overflows");
  expect_bad(shape("(0, 281474976710656, 281474976710656)"), "shape", at, "the number of elements overflows");
  expect_bad(shape("(65536, 65536)"), "data", 10 + 68,
             "4 bytes of data, but the array of shape [65536, 65536] needs 17179869184");
}
TEST(NpyBad, NP9_TooLittleData) {
  expect_bad(npy(dict("<f4", "(2,)"), "1234567"), "data", 10 + 58,
             "7 bytes of data, but the array of shape [2] needs 8");
}
TEST(NpyBad, NP10_TooMuchData) {
  expect_bad(npy(dict("<f4", "(2,)"), "123456789"), "data", 10 + 58, "9 bytes of data");
}
TEST(NpyBad, NP11_BigEndianIsConverted) {
  EXPECT_EQ(parse(npy(dict(">i4", "(2,)"), std::string("\0\0\1\2\0\0\0\7", 8))).to_vector<int64_t>(),
            (std::vector<int64_t>{258, 7}));
}
TEST(NpyBad, NP12_RankTooHigh) {
  std::string twelve = "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1";
  EXPECT_EQ(parse(npy(dict("|u1", twelve + ")"), "x")).dim(), 12);
  expect_bad(npy(dict("|u1", twelve + ", 1)"), "x"), "shape", 10 + 50 + 37, "more than 12 dimensions");
}
NamedTensors parse_zip(const std::string& bytes, const LoadOptions& options = {}) {
  return parse_npz(bytes_of(bytes), "bad.npz", options);
}
TEST(NpyBad, NP13_MemberThatIsNoArray) {
  std::string good = npy(dict("<f4", "()"), "1234");
  ZipBuilder note{{{"a.npy", good}, {"notes.txt", "hello"}}}, dot{{{".npy", good}}};
  std::string bytes = note.build();
  expect_load_error([&] { parse_zip(bytes); }, "name of 'notes.txt'", note.headers[1],
                    "every member of an npz archive is called NAME.npy");
  expect_load_error([&] { parse_zip(dot.build()); }, "name of '.npy'", 0, "NAME.npy");
  ZipBuilder wrong{{{"a.npy", good}, {"b.npy", "no array"}}}, none{{{"a.npy", ""}}};
  bytes = wrong.build();
  expect_load_error([&] { parse_zip(bytes); }, "magic", wrong.data_offsets[1], "bad.npz/b.npy: magic");
  expect_load_error([&] { parse_zip(none.build()); }, "magic", 35, "the member is empty");
}
TEST(NpyBad, NP14_DuplicateMember) {
  std::string good = npy(dict("<f4", "()"), "1234");
  ZipBuilder b{{{"a.npy", good}, {"a.npy", good}}};
  std::string bytes = b.build();
  expect_load_error([&] { parse_zip(bytes); }, "name", b.headers[1], "there are two members 'a.npy'");
}
TEST(NpyBad, BoolsThatAreNeither0Nor1) {
  expect_bad(npy(dict("|b1", "(2,)"), "\1\2"), "data", 10 + 58 + 1, "a bool is 0 or 1, found 2");
}
TEST(NpyBad, LimitsCanBeSet) {
  LoadOptions options;
  std::string good = npy(dict("<f4", "(1, 2)"), "12345678");
  options.limits.npy_header_bytes = 60, options.limits.rank = 2, options.limits.dim = 2;
  EXPECT_TRUE(loads([&] { parse(good, options); }));
  for (uint64_t LoadLimits::*limit : {&LoadLimits::npy_header_bytes, &LoadLimits::rank, &LoadLimits::dim}) {
    LoadOptions tighter = options;
    --(tighter.limits.*limit);
    EXPECT_FALSE(loads([&] { parse(good, tighter); }));
  }
  options.limits.tensors = 15;
  expect_load_error([&] { load_npz(fixture("io/stored.npz"), options); }, "directory", 0,
                    "16 members; the limit is 15");
}
TEST(NpyBad, EveryTruncationAndBitFlip) {
  for (const char* name : {"io/fortran.npy", "io/bool.npy", "io/version2.npy"}) {
    std::string whole = read_file(fixture(name));
    for (size_t n = 1; n < whole.size(); ++n) EXPECT_FALSE(loads([&] { parse(whole.substr(0, n)); })) << name << n;
    for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      loads([&] { EXPECT_LE(static_cast<size_t>(parse(damaged).numel()), whole.size()); });
    }
  }
}

}  // namespace
}  // namespace deft::io
