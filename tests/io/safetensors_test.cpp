// safetensors: what is written is read back bit by bit, also in other orders; the bad files ST1 to ST31 fail as they
// should.
#include "io/safetensors.h"

#include <sys/resource.h>

#include "io_util.h"

namespace deft::io {
namespace {

std::string file_of(const std::string& header, const std::string& data = "") {
  return little(uint64_t{header.size()}) + header + data;
}
SafetensorsFile parse(const std::string& bytes, const LoadOptions& options = {}) {
  return parse_safetensors(bytes_of(bytes), "bad.safetensors", options);
}
// The header alone, then `data` bytes of zero.
void expect_bad(const std::string& header, size_t data, const std::string& field, uint64_t offset,
                const std::string& text, const LoadOptions& options = {}) {
  expect_load_error([&] { parse(file_of(header, std::string(data, '\0')), options); }, field, offset, text);
}
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

const std::string kPair = "{\"a\":" + entry("F32", "[2]", "[0,8]") + ",\"b\":" + entry("U8", "[3]", "[8,11]") + "}";

TEST(Safetensors, TheSmallestExampleOfTheFormat) {
  std::string bytes = file_of(R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})", std::string(16, '\0'));
  EXPECT_EQ(bytes.size(), 8u + 60 + 16);
  SafetensorsFile f = parse(bytes);
  ASSERT_EQ(f.tensors.size(), 1u);
  EXPECT_EQ(f.tensors[0].name, "test");
  EXPECT_TRUE(same_bits(f.tensors[0].tensor, zeros({2, 2}, DType::i32)));
}

TEST(Safetensors, RoundTrips) {
  Folder folder;
  NoSync no_sync;
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    NamedTensors tensors;
    for (uint64_t i = 0; i < random() % 6; ++i)
      tensors.push_back({"t\"\\é😀 " + std::to_string(i), random_tensor(random)});
    std::map<std::string, std::string> metadata;
    if (random() % 2) metadata = {{"format", "pt"}, {"note\n\"", std::string("a\0b\x1f\\", 5)}};
    save_safetensors(folder / "x.safetensors", tensors, metadata);
    LoadOptions options;
    options.mmap = random() % 2;
    SafetensorsFile f = load_safetensors(folder / "x.safetensors", options);
    ASSERT_EQ(f.tensors.size(), tensors.size());
    EXPECT_EQ(f.metadata, metadata);
    for (const NamedTensor& t : tensors) {
      const Tensor* found = find_tensor(f.tensors, t.name);
      ASSERT_TRUE(found);
      ASSERT_TRUE(same_bits(*found, t.tensor)) << round << t.name;
    }
  }
  EXPECT_EQ(folder.files(), 1u);
}

TEST(Safetensors, HundredThousandRandomTensorsInMemory) {
  Folder folder;
  std::mt19937_64 random(2);
  NamedTensors tensors;
  for (int i = 0; i < 100'000; ++i) tensors.push_back({"layer." + std::to_string(i), random_tensor(random)});
  save_safetensors(folder / "x.safetensors", tensors);
  SafetensorsFile f = load_safetensors(folder / "x.safetensors");
  ASSERT_EQ(f.tensors.size(), tensors.size());
  std::map<std::string, const Tensor*> by_name;
  for (const NamedTensor& t : f.tensors) by_name[t.name] = &t.tensor;
  for (const NamedTensor& t : tensors) ASSERT_TRUE(same_bits(*by_name.at(t.name), t.tensor)) << t.name;
}

TEST(Safetensors, KeepsTheOrderOfOneType) {
  Folder folder;
  save_safetensors(folder / "x",
                   {{"z", ones({2})}, {"b", ones({1}, DType::u8)}, {"a", ones({2})}, {"d", ones({1}, DType::f64)}});
  SafetensorsFile f = load_safetensors(folder / "x");
  std::string order;
  for (const NamedTensor& t : f.tensors) order += t.name;
  EXPECT_EQ(order, "dzab");
}

TEST(Safetensors, LargeTensorsComeInPieces) {
  Folder folder;
  Tensor big = arange(0, 3'000'000, 1, DType::f32);
  save_safetensors(folder / "x", {{"pad", ones({3}, DType::u8)}, {"big", big}});
  for (bool mmap : {false, true}) {
    LoadOptions options;
    options.mmap = mmap;
    EXPECT_TRUE(same_bits(*find_tensor(load_safetensors(folder / "x", options).tensors, "big"), big));
  }
}

TEST(Safetensors, MappedTensorsMayBeWritten) {
  Folder folder;
  save_safetensors(folder / "x", {{"w", ones({4})}});
  LoadOptions options;
  options.mmap = true;
  {
    SafetensorsFile f = load_safetensors(folder / "x", options);
    f.tensors[0].tensor.add_(1);
    // Saving over the file that is mapped: the rename leaves the mapped one alone.
    save_safetensors(folder / "x", f.tensors);
    EXPECT_EQ(f.tensors[0].tensor.to_vector<float>(), (std::vector<float>{2, 2, 2, 2}));
  }
  EXPECT_EQ(load_safetensors(folder / "x").tensors[0].tensor.to_vector<float>(), (std::vector<float>{2, 2, 2, 2}));
}

TEST(Safetensors, MappedDataOffItsAlignmentIsCopied) {
  Folder folder;
  write_file(folder / "x",
             file_of("{\"a\":" + entry("U8", "[1]", "[0,1]") + ",\"b\":" + entry("I64", "[1]", "[1,9]") + "}",
                     std::string("\5\1\0\0\0\0\0\0\0", 9)));
  LoadOptions options;
  options.mmap = true;
  SafetensorsFile f = load_safetensors(folder / "x", options);
  EXPECT_EQ(f.tensors[1].tensor.item<int64_t>(), 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(f.tensors[1].tensor.data_ptr()) % 8, 0u);
}

TEST(Safetensors, SpacesAroundTheHeaderAreFine) {
  SafetensorsFile f = parse(file_of("   \n\t" + kPair + "     ", std::string(11, '\1')));
  EXPECT_EQ(f.tensors.size(), 2u);
}

TEST(Safetensors, UnknownFieldsAreSkipped) {
  SafetensorsFile f = parse(file_of(
      R"({"__metadata__":{"k":"\u00e9\ud83d\ude00\n"},"w":{"extra":[1.5e-3,{"x":null,"y":[true,false,"\\"]}],"shape":[1],"dtype":"U8","data_offsets":[0,1]}})",
      "x"));
  EXPECT_EQ(f.metadata.at("k"), "é😀\n");
  EXPECT_EQ(f.tensors[0].tensor.item<int>(), 'x');
}

TEST(Safetensors, EmptyTensorsMayShareAnOffset) {
  SafetensorsFile f = parse(file_of("{\"a\":" + entry("F32", "[0]", "[0,0]") + ",\"b\":" + entry("F32", "[]", "[0,4]") +
                                        ",\"c\":" + entry("F32", "[3,0]", "[0,0]") + "}",
                                    std::string(4, '\0')));
  EXPECT_EQ(f.tensors.size(), 3u);
  EXPECT_EQ(parse(file_of("{}")).tensors.size(), 0u);
}

TEST(Safetensors, TypesThatDeftLacksAreNamedWithTheirTensor) {
  for (std::string type : {"U16", "I16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}) {
    size_t bytes = type.ends_with("16") ? 4 : 2;
    expect_unsupported(
        [&] {
          parse(file_of("{\"fc.w\":" + entry(type, "[2]", "[0," + std::to_string(bytes) + "]") + "}",
                        std::string(bytes, '\0')));
        },
        "dtype of 'fc.w' at byte 9: Deft has no type " + type);
  }
  for (std::string type : {"U32", "U64", "C64", "F4", "F6_E2M3", "F6_E3M2"}) {
    std::string bytes = type == "U32" ? "16" : type[0] == 'F' ? (type == "F4" ? "2" : "3") : "32";
    expect_unsupported(
        [&] {
          parse(file_of("{\"fc.w\":" + entry(type, "[4]", "[0," + bytes + "]") + "}",
                        std::string(static_cast<size_t>(std::stoi(bytes)), '\0')));
        },
        "Deft has no type " + type);
  }
}

TEST(Safetensors, BoolsThatAreNeither0Nor1) {
  expect_load_error([] { parse(file_of("{\"m\":" + entry("BOOL", "[3]", "[0,3]") + "}", std::string("\0\1\2", 3))); },
                    "data of 'm'", 65, "found 2");
}

// ---- Named bad inputs

TEST(SafetensorsBad, ST1_ShorterThanTheLength) {
  for (size_t n = 1; n < 8; ++n)
    expect_load_error([&] { parse(std::string(n, 'x')); }, "header length", 0, "8 bytes are needed");
}
TEST(SafetensorsBad, ST2_NoHeader) {
  expect_load_error([] { parse(little(uint64_t{0}) + "{}"); }, "header length", 0, "the header is empty");
}
TEST(SafetensorsBad, ST3_HeaderTooLong) {
  expect_load_error([] { parse(little(uint64_t{100'000'001}) + "{}"); }, "header length", 0,
                    "100000001 bytes; the limit is 100000000");
}
TEST(SafetensorsBad, ST4_LengthOfAllOnes) {
  expect_load_error([] { parse(little(~uint64_t{0}) + "{}"); }, "header length", 0, "18446744073709551615 bytes");
}
TEST(SafetensorsBad, ST5_HeaderPastTheEnd) {
  expect_load_error([] { parse(little(uint64_t{3}) + "{}"); }, "header length", 0,
                    "3 bytes, but the file ends at byte 10");
}
TEST(SafetensorsBad, ST6_NotUtf8) {
  for (std::string bad :
       {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80", "\xf8\x88\x80\x80\x80"})
    expect_bad("{\"" + bad + "\":{}}", 0, "header", 10, "is not valid UTF-8");
}
TEST(SafetensorsBad, ST7_NotJson) {
  expect_bad("{\"a\"", 0, "header", 12, "the JSON ends here, expected ':'");
  expect_bad("{\"a\":", 0, "description of 'a'", 13, "expected '{'");
  expect_bad("{a:1}", 0, "header", 9, "found 'a', expected a string");
  expect_bad("{\"a", 0, "header", 11, "expected the end of the string");
  expect_bad("{,}", 0, "header", 9, "found ','");
  expect_bad("{\"__metadata__\":{},}", 0, "header", 27, "found '}', expected a string");
  expect_bad("{\"__metadata__\":{} \"b\":1}", 0, "header", 27, "expected ','");
  expect_bad("nonsense", 0, "header", 8, "found 'n', expected '{'");
  std::string whole = file_of(kPair, std::string(11, '\0'));
  for (size_t cut = 1; cut < kPair.size(); ++cut)
    EXPECT_FALSE(loads([&] { parse(file_of(kPair.substr(0, cut), std::string(11, '\0'))); })) << cut;
}
TEST(SafetensorsBad, ST8_ArrayOrString) {
  expect_bad("[]", 0, "header", 8, "found '[', expected '{'");
  expect_bad("\"x\"", 0, "header", 8, "found '\"', expected '{'");
  expect_bad("null", 0, "header", 8, "found 'n'");
}
TEST(SafetensorsBad, ST9_PaddedWithNul) {
  expect_bad(std::string("{}\0\0", 4), 0, "header", 10, "found byte 0x00, expected nothing but spaces");
}
TEST(SafetensorsBad, ST10_BytesAfterTheObject) {
  expect_bad("{}x", 0, "header", 10, "found 'x', expected nothing but spaces");
  expect_bad("{}{}", 0, "header", 10, "found '{'");
}
TEST(SafetensorsBad, ST11_DuplicateTensor) {
  expect_bad("{\"a\":" + entry("F32", "[]", "[0,4]") + ",\"a\":" + entry("F32", "[]", "[4,8]") + "}", 8, "name", 61,
             "there are two tensors 'a'");
  // The same name, escaped.
  expect_bad("{\"a\":" + entry("F32", "[]", "[0,4]") + ",\"\\u0061\":" + entry("F32", "[]", "[4,8]") + "}", 8, "name",
             61, "there are two tensors 'a'");
}
TEST(SafetensorsBad, ST12_DuplicateField) {
  expect_bad(R"({"a":{"dtype":"U8","dtype":"F32","shape":[],"data_offsets":[0,1]}})", 1, "description of 'a'", 27,
             "'dtype' is there twice");
  expect_bad(R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__", 27, "twice");
  expect_bad(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "__metadata__", 33, "the key 'k' is there twice");
}
TEST(SafetensorsBad, ST13_MissingField) {
  expect_bad(R"({"a":{"shape":[],"data_offsets":[0,1]}})", 1, "description of 'a'", 9, "'dtype' is missing");
  expect_bad(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "description of 'a'", 9, "'shape' is missing");
  expect_bad(R"({"a":{"dtype":"U8","shape":[]}})", 1, "description of 'a'", 9, "'data_offsets' is missing");
}
TEST(SafetensorsBad, ST14_UnknownType) {
  expect_bad("{\"a\":" + entry("F31", "[]", "[0,4]") + "}", 4, "dtype of 'a'", 22, "'F31' is no type of the format");
  expect_bad("{\"a\":" + entry("f32", "[]", "[0,4]") + "}", 4, "dtype of 'a'", 22, "'f32'");
}
TEST(SafetensorsBad, ST15_WrongDimension) {
  expect_bad("{\"a\":" + entry("U8", "[-1]", "[0,1]") + "}", 1, "shape of 'a'", 36,
             "found '-', expected a whole number");
  expect_bad("{\"a\":" + entry("U8", "[1.0]", "[0,1]") + "}", 1, "shape of 'a'", 36, "a fraction");
  expect_bad("{\"a\":" + entry("U8", "[1e0]", "[0,1]") + "}", 1, "shape of 'a'", 36, "a fraction");
  expect_bad("{\"a\":" + entry("U8", "[\"1\"]", "[0,1]") + "}", 1, "shape of 'a'", 36, "expected a whole number");
  expect_bad("{\"a\":" + entry("U8", "[01]", "[0,1]") + "}", 1, "shape of 'a'", 36, "must not begin with 0");
  expect_bad("{\"a\":" + entry("U8", "[0,281474976710657]", "[0,0]") + "}", 0, "shape of 'a'", 38,
             "a size of 281474976710657; the limit is 281474976710656");
  expect_bad("{\"a\":" + entry("U8", "[99999999999999999999]", "[0,1]") + "}", 1, "shape of 'a'", 36,
             "larger than 64 bits");
  EXPECT_EQ(parse(file_of("{\"a\":" + entry("U8", "[0,281474976710656]", "[0,0]") + "}")).tensors[0].tensor.size(1),
            int64_t{1} << 48);
}
TEST(SafetensorsBad, ST16_ElementsOverflow) {
  expect_bad("{\"a\":" + entry("U8", "[281474976710656,281474976710656]", "[0,1]") + "}", 1, "shape of 'a'", 9,
             "overflows");
  expect_bad("{\"a\":" + entry("U8", "[281474976710656,65536]", "[0,0]") + "}", 0, "shape of 'a'", 9, "overflows");
  expect_bad("{\"a\":" + entry("U8", "[0,281474976710656,281474976710656]", "[0,0]") + "}", 0, "shape of 'a'", 9,
             "overflows");
}
TEST(SafetensorsBad, ST17_BytesOverflow) {
  expect_bad("{\"a\":" + entry("F64", "[281474976710656,16384]", "[0,0]") + "}", 0, "shape of 'a'", 9, "overflows");
}
TEST(SafetensorsBad, ST18_EndsBeforeItBegins) {
  expect_bad("{\"a\":" + entry("U8", "[1]", "[1,0]") + "}", 1, "data_offsets of 'a'", 9, "begins at 1 and ends at 0");
}
TEST(SafetensorsBad, ST19_EndsPastTheData) {
  expect_bad("{\"a\":" + entry("U8", "[2]", "[0,2]") + "}", 1, "data_offsets of 'a'", 9,
             "ends at 2, but the file holds 1 bytes");
  expect_bad("{\"a\":" + entry("U8", "[2]", "[0,18446744073709551615]") + "}", 1, "data_offsets of 'a'", 9,
             "ends at 18446744073709551615");
}
TEST(SafetensorsBad, ST20_Overlap) {
  expect_bad("{\"a\":" + entry("U8", "[2]", "[0,2]") + ",\"b\":" + entry("U8", "[2]", "[1,3]") + "}", 3,
             "data_offsets of 'b'", 61, "begins at 1, expected 2: two tensors overlap");
}
TEST(SafetensorsBad, ST21_Hole) {
  expect_bad("{\"a\":" + entry("U8", "[2]", "[0,2]") + ",\"b\":" + entry("U8", "[1]", "[3,4]") + "}", 4,
             "data_offsets of 'b'", 61, "begins at 3, expected 2: bytes belong to no tensor");
  expect_bad("{\"a\":" + entry("U8", "[2]", "[1,3]") + "}", 3, "data_offsets of 'a'", 9, "begins at 1, expected 0");
}
TEST(SafetensorsBad, ST22_UnusedTail) {
  std::string header = "{\"a\":" + entry("U8", "[2]", "[0,2]") + "}";
  expect_bad(header, 7, "data", 8 + header.size() + 2, "5 bytes at the end belong to no tensor");
  expect_bad("{}", 1, "data", 10, "1 bytes at the end");
}
TEST(SafetensorsBad, ST23_SizeAndShapeDisagree) {
  expect_bad("{\"a\":" + entry("F32", "[2]", "[0,4]") + "}", 4, "data_offsets of 'a'", 9,
             "4 bytes of data, but shape and type F32 need 8");
  expect_bad("{\"a\":" + entry("F32", "[0]", "[0,4]") + "}", 4, "data_offsets of 'a'", 9, "need 0");
}
TEST(SafetensorsBad, ST24_HalfABytes) {
  expect_bad("{\"a\":" + entry("F4", "[3]", "[0,2]") + "}", 2, "shape of 'a'", 9,
             "12 bits are no whole number of bytes");
  expect_bad("{\"a\":" + entry("F6_E2M3", "[3]", "[0,2]") + "}", 2, "shape of 'a'", 9, "18 bits");
}
TEST(SafetensorsBad, ST25_MetadataNotText) {
  expect_bad(R"({"__metadata__":{"k":1}})", 0, "__metadata__", 29, "found '1', expected a string");
  expect_bad(R"({"__metadata__":[]})", 0, "__metadata__", 24, "found '[', expected '{'");
  expect_bad(R"({"__metadata__":{"k":{}}})", 0, "__metadata__", 29, "expected a string");
}
TEST(SafetensorsBad, ST26_ThreeOffsets) {
  expect_bad("{\"a\":" + entry("U8", "[1]", "[0,1,1]") + "}", 1, "data_offsets of 'a'", 54, "more than two offsets");
  expect_bad("{\"a\":" + entry("U8", "[1]", "[0]") + "}", 1, "data_offsets of 'a'", 54, "1 offsets, expected two");
}
TEST(SafetensorsBad, ST27_NestedTooDeep) {
  auto nested = [](size_t n) {
    return "{\"a\":{\"x\":" + std::string(n, '[') + std::string(n, ']') + "," + entry("U8", "[1]", "[0,1]").substr(1) +
           "}";
  };
  EXPECT_EQ(parse(file_of(nested(62), "x")).tensors.size(), 1u);  // 64 with the two objects around
  expect_bad(nested(63), 1, "description of 'a'", 8 + 10 + 62, "nested more than 64 deep");
  expect_bad(nested(100'000), 1, "description of 'a'", 8 + 10 + 62, "nested more than 64 deep");
  std::string objects = "{\"a\":{\"x\":";
  for (int i = 0; i < 100'000; ++i) objects += "{\"\":";
  expect_bad(objects, 1, "description of 'a'", 8 + 10 + 62 * 4, "nested more than 64 deep");
}
TEST(SafetensorsBad, ST28_TooManyTensors) {
  auto many = [](int n) {
    std::string header = "{";
    for (int i = 0; i < n; ++i) header += (i ? ",\"" : "\"") + std::to_string(i) + "\":" + entry("U8", "[0]", "[0,0]");
    return header + "}";
  };
  LoadOptions options;
  options.limits.tensors = 1000;
  EXPECT_EQ(parse(file_of(many(1000)), options).tensors.size(), 1000u);
  expect_bad(many(1001), 0, "header", 8 + many(1000).size(), "more than 1000 tensors", options);
  std::string million = file_of(many(1'000'000)), most = file_of(many(100'000));
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  expect_load_error([&] { parse(million); }, "header", 8 + many(100'000).size(), "more than 100000 tensors");
  EXPECT_EQ(parse(most).tensors.size(), 100'000u);
  getrusage(RUSAGE_SELF, &after);
  // 1.1 times the file and 64 MiB, and the tensors that were taken; the file itself was in memory before.
  EXPECT_LE(static_cast<uint64_t>(after.ru_maxrss - before.ru_maxrss) * 1024,
            million.size() + million.size() / 10 + (64 << 20) + 100'000 * 800);
}
TEST(SafetensorsBad, ST29_RankTooHigh) {
  std::string twelve = "[1,1,1,1,1,1,1,1,1,1,1,1]";
  EXPECT_EQ(parse(file_of("{\"a\":" + entry("U8", twelve, "[0,1]") + "}", "x")).tensors[0].tensor.dim(), 12);
  expect_bad("{\"a\":" + entry("U8", twelve.substr(0, 24) + ",1]", "[0,1]") + "}", 1, "shape of 'a'", 36 + 24,
             "more than 12 dimensions");
}
TEST(SafetensorsBad, ST30_BadNames) {
  auto named = [](const std::string& name) { return "{\"" + name + "\":" + entry("U8", "[0]", "[0,0]") + "}"; };
  expect_bad(named("a\\u0000"), 0, "name", 9, "'a?' holds a control character");
  expect_bad(named("a\\n"), 0, "name", 9, "holds a control character");
  expect_bad(named("a\x7f"), 0, "name", 9, "holds a control character");
  expect_bad(named("a\n"), 0, "header", 11, "expected no control character");
  expect_bad(named("\\ud800"), 0, "header", 10, "a lone surrogate");
  expect_bad(named("\\ud800\\u0041"), 0, "header", 10, "a lone surrogate");
  expect_bad(named("\\udc00x"), 0, "header", 10, "a lone surrogate");
  expect_bad(named("\\x41"), 0, "header", 11, "expected an escape");
  expect_bad(named("\\u00g0"), 0, "header", 12, "expected four hex digits");
  expect_bad(named(""), 0, "name", 9, "is empty");
  EXPECT_EQ(parse(file_of(named(std::string(1024, 'n')))).tensors.size(), 1u);
  expect_bad(named(std::string(1025, 'n')), 0, "name", 9, "is too long");
}

void write_shards(const Folder& folder, const std::string& index) {
  save_safetensors(folder / "part1.safetensors", {{"a", ones({2})}, {"b", ones({3})}});
  save_safetensors(folder / "part2.safetensors", {{"c", ones({4})}});
  write_file(folder / "model.safetensors.index.json", index);
}
std::string index_text(const std::string& map) { return R"({"metadata":{"total_size":36},"weight_map":)" + map + "}"; }

TEST(SafetensorsIndex, LoadsEveryShard) {
  Folder folder;
  write_shards(folder, index_text(R"({"a":"part1.safetensors","c":"part2.safetensors","b":"part1.safetensors"})"));
  SafetensorsFile f = load_safetensors_index(folder / "model.safetensors.index.json");
  ASSERT_EQ(f.tensors.size(), 3u);
  EXPECT_EQ(find_tensor(f.tensors, "c")->numel(), 4);
}
TEST(SafetensorsBad, ST31_IndexWithAMissingOrForeignShard) {
  Folder folder;
  auto expect = [&](const std::string& map, const std::string& field, uint64_t offset, const std::string& text) {
    write_shards(folder, index_text(map));
    expect_load_error([&] { load_safetensors_index(folder / "model.safetensors.index.json"); }, field, offset, text);
  };
  expect(R"({"a":"part1.safetensors","b":"part1.safetensors","c":"part3.safetensors"})", "path", 0,
         "cannot open the file");
  expect(R"({"a":"../part1.safetensors"})", "weight_map", 48,
         "'../part1.safetensors' is not the name of a file beside the index");
  expect(R"({"a":"/etc/passwd"})", "weight_map", 48, "is not the name of a file");
  expect(R"({"a":".."})", "weight_map", 48, "is not the name of a file");
  expect(R"({"a":"part1.safetensors","a":"part2.safetensors"})", "weight_map", 68, "'a' is there twice");
  expect(R"({"a":"part1.safetensors"})", "weight_map", 0, "part1.safetensors holds 'b', which is not listed");
  expect(R"({"a":"part1.safetensors","b":"part1.safetensors","c":"part1.safetensors"})", "weight_map", 0,
         "does not hold 'c'");
  expect(R"({"a":"part1.safetensors","b":"part2.safetensors","c":"part2.safetensors"})", "weight_map", 0,
         "'b' is listed in part2.safetensors, but part1.safetensors holds it");
  write_shards(folder, "{}");
  expect_load_error([&] { load_safetensors_index(folder / "model.safetensors.index.json"); }, "weight_map", 0,
                    "missing");
}

TEST(SafetensorsBad, LimitsOfMetadata) {
  LoadOptions options;
  options.limits.metadata_entries = 2;
  EXPECT_EQ(parse(file_of(R"({"__metadata__":{"a":"","b":""}})"), options).metadata.size(), 2u);
  expect_bad(R"({"__metadata__":{"a":"","b":"","c":""}})", 0, "__metadata__", 39, "more than 2 entries", options);
}
TEST(SafetensorsBad, LimitsCanBeSet) {
  LoadOptions options;
  std::string good = file_of(kPair, std::string(11, '\0'));
  options.limits.header_bytes = kPair.size();
  EXPECT_TRUE(loads([&] { parse(good, options); }));
  --options.limits.header_bytes;
  EXPECT_FALSE(loads([&] { parse(good, options); }));
  options = {};
  options.limits.rank = 1, options.limits.dim = 3, options.limits.depth = 3, options.limits.name_bytes = 1;
  EXPECT_TRUE(loads([&] { parse(good, options); }));
  for (uint64_t LoadLimits::*limit :
       {&LoadLimits::rank, &LoadLimits::dim, &LoadLimits::depth, &LoadLimits::name_bytes}) {
    LoadOptions tighter = options;
    --(tighter.limits.*limit);
    EXPECT_FALSE(loads([&] { parse(good, tighter); }));
  }
}

TEST(SafetensorsBad, EveryTruncationFails) {
  Folder folder;
  save_safetensors(folder / "x", {{"a", ones({2, 3})}, {"b", ones({3}, DType::u8)}}, {{"k", "v"}});
  std::string whole = read_file(folder / "x");
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(loads([&] { parse(whole.substr(0, n)); })) << n;
  EXPECT_FALSE(loads([&] { parse(whole + '\0'); }));
}
TEST(SafetensorsBad, EveryBitFlipIsAnErrorOrHarmless) {
  std::string whole = file_of(kPair, std::string(11, '\1'));
  size_t loaded = 0;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    // Loads if the flip hits a name, a value of the data, or turns U8 into I8.
    loaded += loads([&] {
      for (const NamedTensor& t : parse(damaged).tensors) EXPECT_LE(t.tensor.numel(), 8);
    });
  }
  EXPECT_GE(loaded, 11u * 8);
  EXPECT_LE(loaded, 11u * 8 + 40);
}

TEST(SafetensorsSave, RefusesWhatCannotBeRead) {
  Folder folder;
  auto expect = [&](const NamedTensors& tensors, const std::string& text) {
    try {
      save_safetensors(folder / "x", tensors);
      ADD_FAILURE() << text;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  };
  expect({{"", ones({1})}}, "is empty");
  expect({{"a\n", ones({1})}}, "holds a control character");
  expect({{"\xff", ones({1})}}, "is not valid UTF-8");
  expect({{std::string(1025, 'a'), ones({1})}}, "is too long");
  expect({{"a", ones({1})}, {"a", ones({1})}}, "there are two tensors 'a'");
  expect({{"__metadata__", ones({1})}}, "no tensor can be called");
  expect({{"a", Tensor()}}, "is undefined");
  EXPECT_THROW(save_safetensors(folder / "x", {}, {{"k", "\xff"}}), ValueError);
  EXPECT_EQ(folder.files(), 0u);
}

}  // namespace
}  // namespace deft::io
