// The pickle reader: values as Python wrote them, nothing ever called, PK1 to PK19 refused.
#include "io/pickle.h"

#include "io_util.h"

namespace deft::io {
namespace {

using Kind = PickleValue::Kind;
using namespace std::string_literals;

const Source kSource{"pt", "bad.pkl"};
constexpr uint64_t kRoom = 48 << 20;

std::string pickle(const std::string& body) { return "\x80\2" + body + "."; }
std::string text(const std::string& s) { return "X" + little(static_cast<uint32_t>(s.size())) + s; }
void read(const std::string& bytes, const std::function<void(const PickleValue&)>& look = {},
          const LoadLimits& limits = {}, uint64_t room = kRoom) {
  Pickle p(bytes_of(bytes), kSource, limits, room);
  if (look) look(p.root());
}
void expect_bad(const std::string& body, const std::string& field, uint64_t offset, const std::string& message,
                const LoadLimits& limits = {}, uint64_t room = kRoom) {
  expect_load_error([&] { read(pickle(body), {}, limits, room); }, field, offset, message);
}
const std::string kOrderedDict = "ccollections\nOrderedDict\n", kStorage = "ctorch\nFloatStorage\n";

TEST(Pickle, Values) {
  read(pickle("("s + "N" + "\x88\x89" + "K\x07" + "M\x01\x02" + "J\xff\xff\xff\xff" + "\x8a\x01\x80" + "\x8a\x00"s +
              "\x8a\x08\0\0\0\0\0\0\0\x80"s + "G\x3f\xf8\0\0\0\0\0\0"s + text("é") + "U\x02\xff\0"s + ")" + "t"),
       [](const PickleValue& v) {
         ASSERT_EQ(v.kind, Kind::tuple);
         ASSERT_EQ(v.items.size(), 13u);
         auto at = [&](size_t i) -> const PickleValue& { return *v.items[i]; };
         EXPECT_EQ(at(0).kind, Kind::none);
         EXPECT_EQ(at(1).kind, Kind::boolean);
         EXPECT_EQ(at(1).integer, 1);
         EXPECT_EQ(at(2).integer, 0);
         EXPECT_EQ(at(3).integer, 7);
         EXPECT_EQ(at(4).integer, 0x201);
         EXPECT_EQ(at(5).integer, -1);
         EXPECT_EQ(at(6).integer, -128);
         EXPECT_EQ(at(7).integer, 0);
         EXPECT_EQ(at(8).integer, INT64_MIN);
         EXPECT_EQ(at(9).real, 1.5);
         EXPECT_EQ(at(10).text, "é");
         EXPECT_EQ(at(11).kind, Kind::bytes);
         EXPECT_EQ(at(11).text, "\xff\0"s);
         EXPECT_TRUE(at(12).items.empty());
       });
}

TEST(Pickle, ContainersAndMemo) {
  // {"a": [1, 2], "b": (that list, {3})}
  read(pickle("}(" + text("a") + "]q\x05(K\x01K\x02" + "e" + text("b") + "h\x05\x8f(K\x03\x90\x86u"),
       [](const PickleValue& v) {
         ASSERT_EQ(v.kind, Kind::dict);
         ASSERT_EQ(v.items.size(), 4u);
         EXPECT_EQ(v.items[1]->kind, Kind::list);
         EXPECT_EQ(v.items[1]->items.size(), 2u);
         ASSERT_EQ(v.items[3]->kind, Kind::tuple);
         EXPECT_EQ(v.items[3]->items[0], v.items[1]);  // shared, as in Python
         EXPECT_EQ(v.items[3]->items[1]->kind, Kind::set);
       });
  read(pickle("]r\x10\0\0\0K\x01"s + "aj\x10\0\0\0"s + "\x86"),
       [](const PickleValue& v) { EXPECT_EQ(v.items[0], v.items[1]); });
  read(pickle(kOrderedDict + ")R(" + text("k") + "K\x01u}" + text("_metadata") + "Nsb"), [](const PickleValue& v) {
    EXPECT_EQ(v.kind, Kind::dict);
    EXPECT_EQ(v.items.size(), 2u);
  });
  read(pickle(kOrderedDict + "]]K\x01" + "aK\x02" + "aa\x85R"),
       [](const PickleValue& v) { EXPECT_EQ(v.items[1]->integer, 2); });
  read(pickle("c__builtin__\nset\n](K\x01K\x02"s + "e\x85R"),
       [](const PickleValue& v) { EXPECT_EQ(v.kind, Kind::set); });
}

TEST(Pickle, CallsAreOnlyWrittenDown) {
  read(pickle("ctorch._utils\n_rebuild_tensor_v2\n(" + text("x") + "QK\x01tR"), [](const PickleValue& v) {
    ASSERT_EQ(v.kind, Kind::call);
    EXPECT_EQ(v.items[0]->text, "torch._utils._rebuild_tensor_v2");
    EXPECT_EQ(v.items[1]->items[0]->kind, Kind::persistent);
  });
}

// ---- Named bad inputs

TEST(PickleBad, PK1_UnlistedGlobals) {
  for (std::string name :
       {"os\nsystem", "posix\nsystem", "nt\nsystem", "builtins\neval", "builtins\nexec", "__builtin__\neval",
        "subprocess\nPopen", "sys\nexit", "torch\nload", "torch.hub\nload", "torch\nFloatStorag",
        "torch\nFloatStorage2", "torc\nh.FloatStorage", "numpy.core.multiarray\n_reconstruct",
        "collections\ndefaultdict", "\n", "torch.nn.modules.linear\nLinear"}) {
    std::string shown = name;
    shown[name.find('\n')] = '.';
    expect_bad("c" + name + "\n" + text("id") + "\x85R", "GLOBAL", 2,
               "the file asks for the Python object '" + shown + "'");
  }
  expect_bad("cos", "GLOBAL", 2, "the name does not end");
  expect_bad("c" + std::string(10'000, 'a') + "\nx\n", "GLOBAL", 2, "the name does not end within 256 bytes");
}
TEST(PickleBad, PK2_RefusedOpcodes) {
  for (auto& [code, name] : std::map<uint8_t, std::string>{{0x93, "STACK_GLOBAL"},
                                                           {'i', "INST"},
                                                           {'o', "OBJ"},
                                                           {0x82, "EXT1"},
                                                           {0x83, "EXT2"},
                                                           {0x84, "EXT4"},
                                                           {'P', "PERSID"},
                                                           {0x92, "NEWOBJ_EX"},
                                                           {'0', "POP"},
                                                           {'I', "INT"},
                                                           {0x94, "MEMOIZE"},
                                                           {0x95, "FRAME"},
                                                           {0xff, "unknown"}})
    expect_bad("NN" + std::string(1, static_cast<char>(code)), "opcode", 4,
               "(" + name + ") is not one that PyTorch writes");
  expect_bad("K\x01}b", "BUILD", 5, "the value below is not one that this opcode may change");
  expect_bad("]}b", "BUILD", 4, "may change");
  expect_bad("}]b", "BUILD", 4, "the attributes are not a dict");
  expect_unsupported([] { read("\x80\4."); }, "pickle protocol 4");
  expect_load_error([] { read("N."); }, "PROTO", 0, "does not begin with its protocol");
}
TEST(PickleBad, PK3_CallOfSomethingElse) {
  expect_bad("K\x01)R", "REDUCE", 5, "the value below is not a function");
  expect_bad(text("os.system") + ")R", "REDUCE", 17, "is not a function");
  expect_bad(kStorage + "K\x01R", "REDUCE", 24, "the arguments are not a tuple");
  expect_bad("))\x81", "NEWOBJ", 4, "is not a function");
  expect_bad(kOrderedDict + "K\x01\x85R", "REDUCE", 30, "a dict is made of nothing");
}
TEST(PickleBad, PK4_SetItemOfAnotherKind) {
  expect_bad("]K\x01K\x02s", "SETITEM", 7, "may change");
  expect_bad(")(K\x01K\x02u", "SETITEMS", 8, "may change");
  expect_bad("ctorch._utils\n_rebuild_tensor_v2\n)RK\x01K\x02s", "SETITEM", 41, "may change");
  expect_bad("}(K\x01u", "SETITEMS", 6, "a key has no value");
  expect_bad("}]Ns", "SETITEMS", 5, "cannot be a key");
}
TEST(PickleBad, PK5_AppendToAnotherKind) {
  expect_bad(
      "}K\x01"
      "a",
      "APPEND", 5, "may change");
  expect_bad(
      ")(K\x01"
      "e",
      "APPENDS", 6, "may change");
  expect_bad("](K\x01\x90", "ADDITEMS", 6, "may change");
}
TEST(PickleBad, PK6_StackUnderflow) {
  for (std::string op : {"a"s, "s"s, "\x85"s, "\x86"s, "\x87"s, "R"s, "b"s, "Q"s, "q\1"s, "r\1\0\0\0"s, "\x81"s})
    expect_bad(op, "stack", 2, "no value is left for this opcode");
  for (std::string op : {"t", "e", "u", "\x90"}) expect_bad(op, "stack", 2, "no MARK is left for this opcode");
  expect_bad("", "STOP", 2, "0 values and 0 marks are on the stack");
  expect_bad("NN", "STOP", 4, "2 values");
  expect_bad("N(", "STOP", 4, "1 values and 1 marks");
}
TEST(PickleBad, PK7_PastAMark) {
  expect_bad("N(a", "stack", 4, "no value is left for this opcode");
  expect_bad("NN(\x86", "stack", 5, "no value is left for this opcode");
  expect_bad("](Na", "stack", 5, "no value is left for this opcode");
  expect_bad("N(q\1", "stack", 4, "no value is left for this opcode");
}
TEST(PickleBad, PK8_MemoOfNothing) {
  expect_bad("h\x07", "memo", 2, "nothing was stored under id 7");
  expect_bad("Nq\1j\7\0\0\0"s, "memo", 5, "nothing was stored under id 7");
  expect_bad("Nq\7h\1"s, "memo", 5, "nothing was stored under id 1");
}
TEST(PickleBad, PK9_HugeMemoId) {
  expect_bad("Nr\xff\xff\xff\xff", "memo", 3, "id 4294967295; the limit is 1000000");
  expect_bad("j\xff\xff\xff\xff", "memo", 2, "nothing was stored under id 4294967295");
  read(pickle("Nr" + little(uint32_t{999'999})));
  expect_bad("Nr" + little(uint32_t{1'000'000}), "memo", 3, "id 1000000");
}
TEST(PickleBad, PK10_HugeString) {
  expect_bad("X\xff\xff\xff\xff", "string", 2, "4294967295 bytes; the limit is 1048576");
  expect_bad("X\x10\0\0\0abc"s, "string", 7, "16 bytes are needed, but only 4 are left");
  read(pickle(text(std::string(1 << 20, 'a'))));
  expect_bad(text(std::string((1 << 20) + 1, 'a')), "string", 2, "1048577 bytes");
  expect_bad(text("\xff"), "string", 2, "the text is not valid UTF-8");
}
TEST(PickleBad, PK11_NoEndOrMoreAfterIt) {
  expect_load_error([] { read("\x80\2N"); }, "opcode", 3, "1 bytes are needed, but only 0 are left");
  expect_bad("N.", "STOP", 3, "1 bytes follow the end of the pickle");
  std::string whole = pickle("}(" + text("a") + "]q\x05(K\x01K\x02" + "e" + text("b") + "h\x05u");
  read(whole);
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(loads([&] { read(whole.substr(0, n)); })) << n;
}
TEST(PickleBad, PK17_ContainsItself) {
  expect_bad(
      "]q\1h\1"
      "a",
      "pickle", 2, "a value contains itself");
  expect_bad(
      "}q\1K\1]h\1"
      "as",
      "pickle", 2, "a value contains itself");
  expect_bad("]q\1(h\1te", "stack", 9, "no MARK");
  expect_bad(
      "]q\1(h\1\x85"
      "e",
      "pickle", 2, "a value contains itself");
}
TEST(PickleBad, PK18_NestedTooDeep) {
  auto nested = [](size_t n) { return std::string(n, ']') + std::string(n - 1, 'a'); };
  read(pickle(nested(64)));
  expect_bad(nested(65), "pickle", 2 + 64, "nested more than 64 deep");
  expect_bad(nested(100'000), "pickle", 2 + 64, "nested more than 64 deep");
  // A deep value used twice, the second time further down.
  std::string shared = "(" + nested(40) + "q\1" + std::string(30, ']') + "h\1" + std::string(30, 'a') + "t";
  expect_bad(shared, "pickle", 3, "nested more than 64 deep");
  LoadLimits limits;
  limits.depth = 71;
  read(pickle(shared), {}, limits);
}
TEST(PickleBad, PK19_GiantInteger) {
  read(pickle("\x8a\x09" + std::string(9, '\xff')), [](const PickleValue& v) {
    EXPECT_EQ(v.kind, Kind::big_integer);
    EXPECT_EQ(v.text.size(), 9u);
  });
  expect_bad("\x8a\xff", "LONG1", 4, "255 bytes are needed");
}

TEST(PickleBad, EveryBitFlip) {
  std::string whole = pickle("}(" + text("a") + "]q\x05(K\x01K\x02" + "e" + text("b") + kOrderedDict + ")R" +
                             text("k") + "\x8a\x02\1\2sh\x05\x86u");
  read(whole);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    loads([&] { read(damaged); });
  }
}

// ---- Memory and limits

TEST(PickleBad, MemoryIsBounded) {
  expect_bad(std::string(1'000'000, ']') + std::string(999'999, 'a'), "pickle", 2 + kRoom / 96,
             "more than 524288 values, the limit for a file of this size");
  // Copies of a list: each costs what is in it.
  std::string list = "](" + std::string(1000, 'N') + "eq\1";
  std::string copies = "(" + list;
  for (int i = 0; i < 100'000; ++i) copies += "c__builtin__\nset\nh\1\x85R";
  expect_load_error([&] { read(pickle(copies + "t")); }, "pickle", 1008 + 521 * 21 + 20, "more than 524288 values");
  std::string again = "(" + list;
  for (int i = 0; i < 600'000; ++i) again += "h\1";
  expect_load_error([&] { read(pickle(again + "t")); }, "pickle", 1008 + (kRoom / 96 - 1001) * 2,
                    "more than 524288 values");
}
TEST(PickleBad, LimitsCanBeSet) {
  LoadLimits limits;
  limits.pickle_stack = 3, limits.pickle_values = 4, limits.pickle_memo = 1, limits.pickle_string_bytes = 1,
  limits.depth = 2;
  std::string good = pickle("(q\0K\1K\2"s.substr(0, 1) + "K\1q\0K\2"s + text("x") + "t");
  limits.pickle_bytes = good.size();
  read(good, {}, limits);
  for (uint64_t LoadLimits::*limit :
       {&LoadLimits::pickle_stack, &LoadLimits::pickle_values, &LoadLimits::pickle_memo,
        &LoadLimits::pickle_string_bytes, &LoadLimits::pickle_bytes, &LoadLimits::depth}) {
    LoadLimits tighter = limits;
    --(tighter.*limit);
    EXPECT_FALSE(loads([&] { read(good, {}, tighter); }));
  }
}

}  // namespace
}  // namespace deft::io
