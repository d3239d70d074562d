// PyTorch checkpoints: files of torch 1.13 give their values and their sharing; everything else is refused by name.
#include "io/pt.h"

#include "zip_builder.h"

namespace deft::io {
namespace {

using Kind = PtValue::Kind;
using namespace std::string_literals;

std::vector<double> counted(int64_t n, double from = 0) {
  std::vector<double> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = from + static_cast<double>(i);
  return v;
}

TEST(Pt, EveryType) {
  for (bool mmap : {false, true}) {
    LoadOptions options;
    options.mmap = mmap;
    NamedTensors t = load_pt(fixture("io/every_type.pt"), options).state_dict();
    ASSERT_EQ(t.size(), 11u);
    for (auto& [name, type] : std::map<const char*, DType>{{"float32", f32},
                                                           {"float64", f64},
                                                           {"bfloat16", bf16},
                                                           {"float16", f16},
                                                           {"int8", i8},
                                                           {"uint8", u8},
                                                           {"int32", i32},
                                                           {"int64", i64}}) {
      const Tensor& x = *find_tensor(t, name);
      EXPECT_EQ(x.dtype(), type);
      EXPECT_EQ(x.sizes(), (Shape{2, 3}));
      EXPECT_EQ(x.to_vector<double>(), counted(6)) << name;
    }
    EXPECT_EQ(find_tensor(t, "bool")->to_vector<double>(), (std::vector<double>{1, 0, 1}));
    EXPECT_EQ(find_tensor(t, "scalar")->item(), 7.5);
    EXPECT_EQ(find_tensor(t, "empty")->sizes(), (Shape{0, 4}));
    find_tensor(t, "float32")->clone().requires_grad_().sum().backward();
  }
}

TEST(Pt, SharedStoragesStayShared) {
  NamedTensors t = load_pt(fixture("io/shared.pt")).state_dict();
  auto at = [&](const char* name) { return *find_tensor(t, name); };
  EXPECT_EQ(at("base").to_vector<double>(), counted(24));
  EXPECT_EQ(at("row").to_vector<double>(), counted(6, 12));
  EXPECT_EQ(at("transposed").sizes(), (Shape{6, 4}));
  EXPECT_EQ(at("transposed").strides(), (Shape{1, 6}));
  EXPECT_EQ(at("window").to_vector<double>(), (std::vector<double>{8, 9, 10, 14, 15, 16}));
  EXPECT_EQ(at("columns").to_vector<double>(), (std::vector<double>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}));
  EXPECT_EQ(at("expanded").to_vector<double>(), (std::vector<double>{0, 0, 0, 0, 0}));
  EXPECT_FALSE(at("parameter").requires_grad());
  for (const NamedTensor& x : t) EXPECT_TRUE(x.tensor.shares_storage_with(at("base"))) << x.name;
  at("row").fill_(-1);
  EXPECT_EQ(at("base").to_vector<double>()[12], -1);
  EXPECT_EQ(at("transposed").to_vector<double>()[2], -1);
}

TEST(Pt, StateDict) {
  NamedTensors t = load_pt(fixture("io/state_dict.pt")).state_dict();
  std::vector<std::string> names;
  for (size_t i = 0; i < t.size(); ++i) {
    names.push_back(t[i].name);
    EXPECT_EQ(t[i].tensor.to_vector<double>(), counted(t[i].tensor.numel(), static_cast<double>(i)));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                             "1.running_var", "1.num_batches_tracked", "3.weight", "3.bias"}));
  EXPECT_EQ(t[0].tensor.sizes(), (Shape{2, 1, 3, 3}));
  EXPECT_EQ(t[6].tensor.dtype(), i64);
}

TEST(Pt, AWholeCheckpoint) {
  PtFile file = load_pt(fixture("io/checkpoint.pt"));
  PtValue root = file.root();
  EXPECT_EQ(root.kind(), Kind::dict);
  EXPECT_EQ(root["epoch"].to_int(), 12);
  EXPECT_EQ(root["epoch"].to_double(), 12.0);
  EXPECT_EQ(root["loss"].to_double(), 0.125);
  EXPECT_EQ(root["name"].text(), "tiny é");
  EXPECT_FALSE(root["done"].to_bool());
  EXPECT_TRUE(root["nothing"].is(Kind::none));
  EXPECT_EQ(root["negative"].to_int(), -(int64_t{1} << 40));
  EXPECT_TRUE(root["seed"].is(Kind::other));
  EXPECT_EQ(root["seed"].text(), "0x00ffffffffffffffff");
  EXPECT_TRUE(root["sizes"].is(Kind::tuple));
  EXPECT_EQ(root["sizes"].size(), 2u);
  EXPECT_EQ(root["sizes"][1].to_int(), 3);
  EXPECT_EQ(root["pair"][1].text(), "two");
  EXPECT_EQ(root["history"][2][1].to_int(), 3);
  EXPECT_EQ(root["dtype"].text(), "torch.float16");
  EXPECT_EQ(root["device"].text(), "cpu");
  EXPECT_EQ(root["labels"].key(1).text(), "dog");
  EXPECT_TRUE(root["tags"].is(Kind::set));
  EXPECT_EQ(root["tags"].size(), 2u);
  EXPECT_EQ(root.key(14).to_int(), 1);
  EXPECT_EQ(root["rng"].tensor().dtype(), u8);
  EXPECT_EQ(file.state_dict().size(), 9u);
  PtValue adam = root["optimizer"];
  EXPECT_EQ(adam["param_groups"][0]["lr"].to_double(), 0.25);
  EXPECT_EQ(adam["param_groups"][0]["params"].size(), 6u);
  EXPECT_EQ(adam["state"].size(), 6u);
  EXPECT_EQ(adam["state"][0]["exp_avg"].tensor().sizes(), (Shape{2, 1, 3, 3}));
  EXPECT_EQ(adam["state"][0]["step"].tensor().item(), 1);
  EXPECT_FALSE(root.has("absent"));
  EXPECT_THROW(root["absent"], ValueError);
  EXPECT_THROW(root["epoch"].text(), ValueError);
  EXPECT_THROW(root["epoch"]["x"], ValueError);
  EXPECT_THROW(root["pair"].key(0), ValueError);
  EXPECT_THROW(root["pair"][2], IndexError);
  EXPECT_THROW(root["pair"].tensor(), ValueError);
  EXPECT_THROW(root["name"].to_int(), ValueError);
  EXPECT_THROW(root["name"].to_bool(), ValueError);
  EXPECT_THROW(root["name"].to_double(), ValueError);
}

TEST(Pt, TensorsOutliveTheFile) {
  Tensor t = load_pt(fixture("io/tensor.pt")).root().tensor();
  EXPECT_EQ(t.to_vector<double>(), counted(3));
  EXPECT_EQ(load_pt(fixture("io/stream.pt")).state_dict()[0].tensor.to_vector<double>(), counted(3));
  EXPECT_THROW(load_pt(fixture("io/tensor.pt")).state_dict(), ValueError);
}

// torch.tensor([1 + 2j, 3 - 4j]).conj(): the imaginary part is a view that is to be negated.
TEST(Pt, NegativeViewsAreComputed) {
  NamedTensors t = load_pt(fixture("io/negative.pt")).state_dict();
  EXPECT_EQ(find_tensor(t, "imag")->to_vector<double>(), (std::vector<double>{-2, 4}));
  EXPECT_EQ(find_tensor(t, "real")->to_vector<double>(), (std::vector<double>{1, 3}));
}

TEST(Pt, WhatIsRefusedByName) {
  auto path = [](const char* name) { return fixture("io/"s + name); };
  expect_unsupported([&] { load_pt(path("legacy.pt")); },
                     "this is PyTorch's format from before version 1.6; load it in PyTorch and save it again");
  expect_unsupported([&] { load_pt(path("int16.pt")); }, "dtype of 'short'");
  expect_unsupported([&] { load_pt(path("complex.pt")); }, "dtype of 'wave'");
  expect_unsupported([&] { load_pt(path("sparse.pt")); }, "tensor of 'thin'");
  expect_unsupported([&] { load_pt(path("quantized.pt")); }, "quantized tensors cannot be read");
  expect_unsupported([&] { load_pt(path("script.pt")); }, "this is a TorchScript archive");
  expect_unsupported([&] { load_pt(path("protocol4.pt")); }, "pickle protocol 4");
  expect_load_error([&] { load_pt(path("module.pt")); }, "GLOBAL", 66, "'torch.nn.modules.container.Sequential'");
  expect_load_error([&] { load_pt(path("numpy_scalar.pt")); }, "GLOBAL", 77, "'numpy.core.multiarray.scalar'");
}

// ---- Checkpoints by hand

std::string text(const std::string& s) { return "X" + little(static_cast<uint32_t>(s.size())) + s; }
std::string number(int64_t v) { return "\x8a\x08" + little(v); }
std::string tuple(const std::vector<std::string>& parts) {
  std::string out = "(";
  for (const std::string& p : parts) out += p;
  return out + "t";
}
struct TensorText {
  std::string storage = "ctorch\nFloatStorage\n", key = text("0"), numel = number(6), offset = number(0);
  std::string sizes = tuple({number(2), number(3)}), strides = tuple({number(3), number(1)});
  std::string tag = text("storage"), metadata = "";
  std::string id() const { return tuple({tag, storage, key, text("cuda:0"), numel}); }
  std::string str() const {
    return "ctorch._utils\n_rebuild_tensor_v2\n" +
           tuple({id() + "Q", offset, sizes, strides, "\x89", "ccollections\nOrderedDict\n)R" + metadata}) + "R";
  }
};
std::string dict(const std::string& tensor) { return "\x80\2}" + text("w") + tensor + "s."; }
ZipBuilder archive(const std::string& pickle) {
  return {{{"archive/data.pkl", pickle}, {"archive/data/0", std::string(24, '\0')}, {"archive/version", "3\n"}}};
}
PtFile parse(ZipBuilder b, const LoadOptions& options = {}) { return parse_pt(bytes_of(b.build()), "bad.pt", options); }
PtFile parse(const TensorText& t) { return parse(archive(dict(t.str()))); }
// Offsets in the pickle; it lies behind the first local header.
constexpr uint64_t kPickle = 30 + 16;
void expect_bad(const TensorText& t, const std::string& field, uint64_t offset, const std::string& message) {
  expect_load_error([&] { parse(t); }, field, kPickle + offset, message);
}

// Where a part of the tensor is in the pickle, and where the BINPERSID behind the id is.
uint64_t place(const TensorText& t, const std::string& part) { return dict(t.str()).find(part); }
uint64_t place_of_id(const TensorText& t) { return place(t, t.id()) + t.id().size(); }

TEST(Pt, ByHand) {
  EXPECT_EQ(parse(TensorText{}).state_dict()[0].tensor.sizes(), (Shape{2, 3}));
  ZipBuilder order = archive(dict(TensorText{}.str()));
  order.members.push_back({"archive/byteorder", "little"});
  EXPECT_EQ(parse(order).state_dict().size(), 1u);
  for (const char* key : {"state_dict", "model", "model_state_dict"}) {
    std::string nested = "\x80\2}(" + text("epoch") + "K\1" + text(key) + "}" + text("w") + TensorText{}.str() + "su.";
    EXPECT_EQ(parse(archive(nested)).state_dict()[0].name, "w") << key;
  }
  // A tensor counted in bytes, with its type beside it.
  std::string v3 =
      "ctorch._utils\n_rebuild_tensor_v3\n" +
      tuple({tuple({text("storage"), "ctorch\nUntypedStorage\n", text("0"), text("cpu"), number(24)}) + "Q", number(0),
             tuple({number(6)}), tuple({number(1)}), "\x89", "}", "ctorch\nfloat32\n"}) +
      "R";
  EXPECT_EQ(parse(archive(dict(v3))).state_dict()[0].tensor.numel(), 6);
  std::string f8 = v3;
  f8.replace(f8.find("float32"), 7, "float8_e4m3fn");
  expect_unsupported([&] { parse(archive(dict(f8))); }, "Deft has no type for torch.float8_e4m3fn");
}

TEST(Pt, BitsOfViews) {
  TensorText t;
  for (const char* nothing : {"N", "}"}) {
    t.metadata = nothing;
    EXPECT_EQ(parse(t).state_dict()[0].tensor.sizes(), (Shape{2, 3}));
  }
  auto with = [](const std::string& key, const std::string& value) {
    TensorText bits;
    bits.metadata = "}" + key + value + "s";
    return bits;
  };
  EXPECT_TRUE(std::signbit(parse(with(text("neg"), "\x88")).state_dict()[0].tensor.to_vector<double>()[0]));
  expect_unsupported([&] { parse(with(text("conj"), "\x88")); }, "a tensor with 'conj' set");
  expect_unsupported([&] { parse(with(text("lazy"), "\x88")); }, "a tensor with 'lazy' set");
  for (const char* bit : {"neg", "conj"}) {  // PyTorch reads them as set, whatever stands there
    TensorText off = with(text(bit), "\x89");
    expect_bad(off, "metadata of 'w'", place(off, text(bit)) + text(bit).size(), "which PyTorch never writes");
  }
  TensorText other = with(number(1), "\x88");
  expect_bad(other, "metadata of 'w'", place(other, other.metadata) + 1, "a key is no string");
  other = with(text("neg"), text("yes"));
  expect_bad(other, "metadata of 'w'", place(other, text("yes")), "'neg' is no bool");
  other.metadata = number(77);
  expect_bad(other, "metadata of 'w'", place(other, other.metadata), "expected a dict");
  TensorText bools = with(text("neg"), "\x88");
  bools.storage = "ctorch\nBoolStorage\n";
  bools.numel = number(24);
  expect_unsupported([&] { parse(bools); }, "bools have no sign");
}

TEST(PtBad, ZP7_Deflated) {
  ZipBuilder b = archive(dict(TensorText{}.str()));
  b.members[1].method = b.members[1].local_method = 8;
  std::string bytes = b.build();
  expect_load_error([&] { parse_pt(bytes_of(bytes), "bad.pt"); }, "method of 'archive/data/0'", b.headers[1],
                    "the member is deflated, which PyTorch never writes");
}
TEST(PtBad, ZP13_NoPickle) {
  ZipBuilder b = archive(dict(TensorText{}.str()));
  b.members.erase(b.members.begin());
  expect_load_error([&] { parse(b); }, "directory", 0, "the member 'archive/data.pkl' is missing");
  expect_load_error([&] { parse(ZipBuilder{{}}); }, "directory", 0, "the archive is empty");
  ZipBuilder npz{{{"a.npy", "x"}}};
  expect_load_error([&] { parse(npz); }, "directory", 0, "the member 'data.pkl' is missing");
}
TEST(PtBad, ZP14_ByteOrderAndVersion) {
  for (std::string order : {"big", "", "middle"}) {
    ZipBuilder b = archive(dict(TensorText{}.str()));
    b.members.push_back({"archive/byteorder", order});
    expect_unsupported([&] { parse(b); }, "byte order '" + order + "'");
  }
  for (std::string version : {"0\n", "11\n", "x", "", "-1", "3x"}) {
    ZipBuilder b = archive(dict(TensorText{}.str()));
    b.members[2] = {"archive/version", version};
    EXPECT_FALSE(loads([&] { parse(b); })) << version;
  }
  ZipBuilder none = archive(dict(TensorText{}.str()));
  none.members.pop_back();
  expect_load_error([&] { parse(none); }, "directory", 0, "the member 'archive/version' is missing");
  ZipBuilder big = archive(dict(TensorText{}.str()));
  big.members[2] = {"archive/version", std::string(17, '3')};
  std::string bytes = big.build();
  expect_load_error([&] { parse_pt(bytes_of(bytes), "x"); }, "size of 'archive/version'", big.headers[2],
                    "17 bytes, expected at most 16");
}
TEST(PtBad, ZP15_Legacy) {
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  expect_unsupported([&] { parse_pt(bytes_of(tar), "x.pt"); }, "from before version 1.6");
}

TEST(PtBad, PK12_PersistentId) {
  TensorText t;
  t.tag = text("module");
  expect_bad(t, "storage of 'w'", place_of_id(t), "expected ('storage', type, key, location, numel)");
  t = {};
  t.numel = number(6) + "N";
  expect_bad(t, "storage of 'w'", place_of_id(t), "expected ('storage'");
  t = {};
  t.storage = text("FloatStorage");
  expect_bad(t, "storage of 'w'", place(t, t.storage), "the type is no type");
  t = {};
  t.key = number(0);
  expect_bad(t, "storage of 'w'", place(t, t.key), "the key is no string");
  expect_load_error([] { parse(archive("\x80\2" + TensorText{}.id() + "Q.")); }, "storage of ''",
                    kPickle + 2 + TensorText{}.id().size(), "a storage outside of a tensor");
  expect_load_error([] { parse(archive("\x80\2}" + text("w") + TensorText{}.id() + "Qs.")); }, "storage of 'w'",
                    kPickle + 9 + TensorText{}.id().size(), "a storage outside of a tensor");
}
TEST(PtBad, PK13_NumelAndRecordDisagree) {
  for (int64_t n : {int64_t{0}, int64_t{5}, int64_t{7}, int64_t{1} << 62, INT64_MAX}) {
    TensorText t;
    t.numel = number(n);
    expect_bad(t, "storage of 'w'", place_of_id(t),
               std::to_string(n) + " elements of f32 are not the 24 bytes of 'archive/data/0'");
  }
  TensorText t;
  t.numel = number(-6);
  expect_bad(t, "storage of 'w'", place(t, t.numel), "-6 is negative");
}
TEST(PtBad, PK14_KeyOutside) {
  for (std::string key : {"1", "../version", "/0", "", "0/", "..", "data/0"}) {
    TensorText t;
    t.key = text(key);
    expect_bad(t, "storage of 'w'", place(t, t.key), "there is no member 'archive/data/" + key + "'");
  }
}
TEST(PtBad, PK15_PastTheStorage) {
  auto with = [](const std::string& sizes, const std::string& strides, int64_t offset) {
    TensorText t;
    t.sizes = sizes, t.strides = strides, t.offset = number(offset);
    return t;
  };
  auto two = [](int64_t a, int64_t b) { return tuple({number(a), number(b)}); };
  auto expect = [&](const TensorText& t, const std::string& field, const std::string& message) {
    expect_bad(t, field, dict(t.str()).size() - 3, message);
  };
  expect(with(two(2, 3), two(3, 1), 1), "stride of 'w'", "the tensor reaches past the 6 elements of its storage");
  expect(with(two(2, 3), two(4, 1), 0), "stride of 'w'", "reaches past");
  expect(with(two(2, 3), two(INT64_MAX, INT64_MAX), 0), "stride of 'w'", "reaches past");
  expect(with(two(2, 3), two(3, 1), INT64_MAX), "stride of 'w'", "reaches past");
  expect(with(two(int64_t{1} << 48, int64_t{1} << 48), two(0, 0), 0), "size of 'w'",
         "the number of elements overflows");
  expect(with(two((int64_t{1} << 48) + 1, 1), two(0, 0), 0), "size of 'w'", "the limit is 281474976710656");
  EXPECT_FALSE(loads([&] { parse(with(two(2, 3), two(-3, 1), 5)); }));
  EXPECT_FALSE(loads([&] { parse(with(two(-2, 3), two(3, 1), 0)); }));
  EXPECT_FALSE(loads([&] { parse(with(two(2, 3), two(3, 1), -1)); }));
  EXPECT_TRUE(loads([&] { parse(with(two(2, 3), two(0, 2), 1)); }));
  // PyTorch writes such offsets for empty slices.
  EXPECT_TRUE(loads([&] { parse(with(two(0, 3), two(3, 1), 6)); }));
  EXPECT_TRUE(loads([&] { parse(with(two(0, 3), two(3, 1), 7)); }));
}
TEST(PtBad, PK16_RanksDisagree) {
  TensorText t;
  t.strides = tuple({number(1)});
  expect_bad(t, "stride of 'w'", dict(t.str()).size() - 3, "1 strides for 2 sizes");
}
TEST(PtBad, PK19_GiantIntegerAsASize) {
  TensorText t;
  t.sizes = tuple({"\x8a\x10" + std::string(16, '\x7f'), number(3)});
  EXPECT_FALSE(loads([&] { parse(t); }));
  try {
    parse(t);
  } catch (const LoadError& e) {
    EXPECT_EQ(e.field, "size of 'w'");
  }
  t = {};
  t.sizes = t.strides = tuple(std::vector<std::string>(13, number(1)));
  EXPECT_FALSE(loads([&] { parse(t); }));
  t.sizes = t.strides = tuple(std::vector<std::string>(12, number(1)));
  EXPECT_TRUE(loads([&] { parse(t); }));
}
TEST(PtBad, PK20_UnknownType) {
  for (const char* type : {"ShortStorage", "ComplexFloatStorage", "QInt8Storage", "QUInt8Storage"}) {
    TensorText t;
    t.storage = "ctorch\n"s + type + "\n";
    expect_unsupported([&] { parse(t); }, "Deft has no type for torch."s + type);
  }
  TensorText t;
  t.storage = "ctorch\nfloat32\n";
  expect_bad(t, "storage of 'w'", place(t, t.storage), "torch.float32 is no type of a storage");
}
TEST(PtBad, OneKeyWithTwoTypes) {
  TensorText f, i;
  i.storage = "ctorch\nIntStorage\n";
  std::string both = "\x80\2}(" + text("f") + f.str() + text("i") + i.str() + "u.";
  try {
    parse(archive(both));
    FAIL();
  } catch (const LoadError& e) {
    EXPECT_EQ(e.field, "storage of 'i'");
    EXPECT_NE(std::string(e.what()).find("was 6 elements of f32 before, now 6 of i32"), std::string::npos) << e.what();
  }
}
TEST(PtBad, OddCalls) {
  for (std::string body :
       {"ctorch\nSize\n)R"s, "ctorch\nSize\nK\1\x85R"s, "ctorch\nFloatStorage\n)R"s,
        "ctorch._utils\n_rebuild_parameter\n)R"s, "ctorch._utils\n_rebuild_parameter\nK\1\x85R"s,
        "ctorch._utils\n_rebuild_tensor_v2\n)R"s, "ctorch\nfloat32\n)R"s, "ctorch._utils\n_rebuild_tensor_v3\n)R"s})
    EXPECT_FALSE(loads([&] { parse(archive(dict(body))); })) << body;
}
TEST(PtBad, Devices) {
  const std::string device = "ctorch\ndevice\n";
  const auto loads_as = [&](const std::string& arguments) {
    return parse(archive(dict(device + arguments + "R"))).root()["w"].text();
  };
  EXPECT_EQ(loads_as(tuple({text("cuda"), number(1)})), "cuda:1");
  EXPECT_EQ(loads_as(tuple({text("cuda:1")})), "cuda:1");
  EXPECT_EQ(loads_as(tuple({text("cpu")})), "cpu");
  for (const std::string& bad :
       {")"s, tuple({number(1)}), tuple({text("cuda:0"), number(0)}), tuple({text("cuda"), number(-1)}),
        tuple({text("cuda"), text("0")}), tuple({text("cuda"), number(0), number(0)})})
    expect_load_error([&] { loads_as(bad); }, "device of 'w'", kPickle + 9 + device.size() + bad.size(),
                      "this is no device");
}
TEST(PtBad, BillionLaughs) {
  // Lists of ten references to the list before, nested 60 deep: linear work.
  std::string body = "\x80\2]q\0"s;
  for (char i = 1; i < 60; ++i) {
    body += "](";
    for (int k = 0; k < 10; ++k) body += "h"s + static_cast<char>(i - 1);
    body += "eq"s + i;
  }
  std::string tuple_of_all = body;
  tuple_of_all.insert(2, "(");
  PtFile f = parse(archive(tuple_of_all + "t."));
  EXPECT_EQ(f.root().size(), 60u);
}
TEST(PtBad, LimitsCanBeSet) {
  LoadOptions options;
  options.limits.tensors = 9;
  EXPECT_TRUE(loads([&] { load_pt(fixture("io/state_dict.pt"), options); }));
  options.limits.tensors = 8;
  EXPECT_FALSE(loads([&] { load_pt(fixture("io/state_dict.pt"), options); }));
}
TEST(PtBad, EveryTruncationAndBitFlip) {
  std::string whole = read_file(fixture("io/shared.pt"));
  NamedTensors good = parse_pt(bytes_of(whole), "x").state_dict();
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_FALSE(loads([&] { parse_pt(bytes_of(whole.substr(0, n)), "x"); })) << n;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    loads([&] {
      NamedTensors found = parse_pt(bytes_of(damaged), "x").state_dict();
      ASSERT_EQ(found.size(), good.size());
      for (size_t i = 0; i < good.size(); ++i) EXPECT_TRUE(same_bits(found[i].tensor, good[i].tensor)) << bit;
    });
  }
}

}  // namespace
}  // namespace deft::io
