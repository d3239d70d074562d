#include "io/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/byte_reader.h"
#include "io/json_reader.h"
#include "io/tensor_names.h"

namespace deft::io {

namespace {

using Kind = PickleValue::Kind;

enum Opcode : uint8_t {
  kProto = 0x80,
  kStop = '.',
  kMark = '(',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinString = 'U',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPersId = 'Q',
  kGlobal = 'c',
  kNewObj = 0x81,
  kReduce = 'R',
  kBuild = 'b',
};

struct OpcodeName {
  uint8_t code;
  const char* name;
};
// Opcodes that a pickle may have and that are not read, so that the error can name them.
constexpr OpcodeName kRefused[] = {{0x93, "STACK_GLOBAL"},
                                   {'i', "INST"},
                                   {'o', "OBJ"},
                                   {0x82, "EXT1"},
                                   {0x83, "EXT2"},
                                   {0x84, "EXT4"},
                                   {'P', "PERSID"},
                                   {0x92, "NEWOBJ_EX"},
                                   {'0', "POP"},
                                   {'1', "POP_MARK"},
                                   {'2', "DUP"},
                                   {'I', "INT"},
                                   {'L', "LONG"},
                                   {'F', "FLOAT"},
                                   {'S', "STRING"},
                                   {'T', "BINSTRING"},
                                   {'V', "UNICODE"},
                                   {'d', "DICT"},
                                   {'l', "LIST"},
                                   {'g', "GET"},
                                   {'p', "PUT"},
                                   {'B', "BINBYTES"},
                                   {'C', "SHORT_BINBYTES"},
                                   {0x8b, "LONG4"},
                                   {0x8c, "SHORT_BINUNICODE"},
                                   {0x8d, "BINUNICODE8"},
                                   {0x8e, "BINBYTES8"},
                                   {0x91, "FROZENSET"},
                                   {0x94, "MEMOIZE"},
                                   {0x95, "FRAME"},
                                   {0x96, "BYTEARRAY8"},
                                   {0x97, "NEXT_BUFFER"},
                                   {0x98, "READONLY_BUFFER"}};

// What a PyTorch checkpoint of tensors and plain values names. None of them is imported or called.
constexpr std::string_view kGlobals[] = {"collections.OrderedDict",
                                         "collections.Counter",
                                         "__builtin__.set",
                                         "builtins.set",
                                         "torch.Size",
                                         "torch.device",
                                         "torch._utils._rebuild_tensor",
                                         "torch._utils._rebuild_tensor_v2",
                                         "torch._utils._rebuild_tensor_v3",
                                         "torch._utils._rebuild_parameter",
                                         "torch._utils._rebuild_parameter_with_state",
                                         "torch._utils._rebuild_qtensor",
                                         "torch._utils._rebuild_sparse_tensor",
                                         "torch.storage.UntypedStorage",
                                         "torch.storage._UntypedStorage",
                                         "torch.UntypedStorage",
                                         "torch.DoubleStorage",
                                         "torch.FloatStorage",
                                         "torch.HalfStorage",
                                         "torch.BFloat16Storage",
                                         "torch.LongStorage",
                                         "torch.IntStorage",
                                         "torch.ShortStorage",
                                         "torch.CharStorage",
                                         "torch.ByteStorage",
                                         "torch.BoolStorage",
                                         "torch.ComplexFloatStorage",
                                         "torch.ComplexDoubleStorage",
                                         "torch.QInt8Storage",
                                         "torch.QUInt8Storage",
                                         "torch.QInt32Storage",
                                         "torch.QUInt4x2Storage",
                                         "torch.QUInt2x4Storage",
                                         "torch.float64",
                                         "torch.float32",
                                         "torch.float16",
                                         "torch.bfloat16",
                                         "torch.int64",
                                         "torch.int32",
                                         "torch.int16",
                                         "torch.int8",
                                         "torch.uint8",
                                         "torch.uint16",
                                         "torch.uint32",
                                         "torch.uint64",
                                         "torch.bool",
                                         "torch.complex32",
                                         "torch.complex64",
                                         "torch.complex128",
                                         "torch.float8_e4m3fn",
                                         "torch.float8_e5m2",
                                         "torch.float8_e4m3fnuz",
                                         "torch.float8_e5m2fnuz",
                                         "torch.qint8",
                                         "torch.quint8",
                                         "torch.qint32",
                                         "torch.serialization._get_layout",
                                         "torch.strided",
                                         "torch.sparse_coo",
                                         "torch.per_tensor_affine",
                                         "torch.per_channel_affine"};

constexpr uint64_t kBytesPerValue = 96;  // of a value, with its places on the stack, in the memo and in a container

}  // namespace

class PickleReader {
 public:
  PickleReader(std::span<const std::byte> bytes, const Source& source, const LoadLimits& limits, uint64_t room,
               Pickle& out)
      : in_(bytes, source), source_(source), limits_(limits), out_(out) {
    max_pushes_ = std::min(limits.pickle_values, room / kBytesPerValue);
  }

  void read() {
    at_ = 0;
    if (in_.u8("PROTO") != kProto) source_.fail("PROTO", 0, "the pickle does not begin with its protocol");
    uint8_t protocol = in_.u8("PROTO");
    if (protocol != 2)
      source_.unsupported("PROTO", 1, "pickle protocol {}; save the file again with PyTorch's default, protocol 2",
                          protocol);
    for (;;) {
      at_ = in_.offset();
      uint8_t op = in_.u8("opcode");
      if (op == kStop) break;
      step(op);
    }
    if (in_.left()) source_.fail("STOP", at_, "{} bytes follow the end of the pickle", in_.left());
    if (stack_.size() != 1 || !marks_.empty())
      source_.fail("STOP", at_, "{} values and {} marks are on the stack, expected one value", stack_.size(),
                   marks_.size());
    out_.root_ = stack_[0];
    check_nesting();
  }

 private:
  using Items = std::vector<const PickleValue*>;

  // --- Stack and memo
  void count(uint64_t n) {
    pushes_ += n;
    if (pushes_ > max_pushes_)
      source_.fail("pickle", at_, "more than {} values, the limit for a file of this size", max_pushes_);
  }
  void push(const PickleValue* v) {
    count(1);
    if (stack_.size() >= limits_.pickle_stack)
      source_.fail("stack", at_, "more than {} values, the limit", limits_.pickle_stack);
    stack_.push_back(v);
  }
  PickleValue& create(Kind kind) {
    PickleValue& v = out_.values_.emplace_back();
    v.kind = kind;
    v.offset = static_cast<uint32_t>(at_);
    push(&v);
    return v;
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  const PickleValue* pop() {
    if (stack_.size() <= floor()) source_.fail("stack", at_, "no value is left for this opcode");
    const PickleValue* v = stack_.back();
    stack_.pop_back();
    return v;
  }
  Items pop_to_mark() {
    if (marks_.empty()) source_.fail("stack", at_, "no MARK is left for this opcode");
    Items items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  // The value on top, to be changed: it stays there.
  PickleValue& top(const char* op, std::initializer_list<Kind> kinds) {
    if (stack_.size() <= floor()) source_.fail("stack", at_, "no value is left for this opcode");
    auto* v = const_cast<PickleValue*>(stack_.back());  // all of them are in values_
    if (std::find(kinds.begin(), kinds.end(), v->kind) == kinds.end())
      source_.fail(op, at_, "the value below is not one that this opcode may change");
    return *v;
  }
  void memoize(uint64_t id) {
    if (id >= limits_.pickle_memo) source_.fail("memo", at_, "id {}; the limit is {}", id, limits_.pickle_memo);
    if (stack_.size() <= floor()) source_.fail("stack", at_, "no value is left for this opcode");
    if (id >= memo_.size()) memo_.resize(id + 1);
    memo_[id] = stack_.back();
  }
  void recall(uint64_t id) {
    if (id >= memo_.size() || !memo_[id]) source_.fail("memo", at_, "nothing was stored under id {}", id);
    push(memo_[id]);
  }

  // --- Values
  void text(Kind kind, uint64_t bytes) {
    if (bytes > limits_.pickle_string_bytes)
      source_.fail("string", at_, "{} bytes; the limit is {}", bytes, limits_.pickle_string_bytes);
    std::string_view s = in_.text(bytes, "string");
    if (kind == Kind::string && valid_utf8(s) != s.size()) source_.fail("string", at_, "the text is not valid UTF-8");
    create(kind).text = s;
  }
  void long1() {
    uint64_t n = in_.u8("LONG1");
    std::string_view s = in_.text(n, "LONG1");
    PickleValue& v = create(n <= 8 ? Kind::integer : Kind::big_integer);
    if (n > 8) {
      v.text = s;
      return;
    }
    uint64_t value = n && static_cast<uint8_t>(s[n - 1]) >= 0x80 ? ~uint64_t{0} : 0;
    for (size_t i = 0; i < n; ++i)
      value = (value & ~(uint64_t{0xff} << 8 * i)) | static_cast<uint64_t>(static_cast<uint8_t>(s[i])) << 8 * i;
    v.integer = static_cast<int64_t>(value);
  }
  void real() {
    uint64_t bits = __builtin_bswap64(in_.u64("BINFLOAT"));
    create(Kind::real).real = std::bit_cast<double>(bits);
  }
  void tuple(size_t n) {
    Items items(n);
    for (size_t i = n; i-- > 0;) items[i] = pop();
    create(Kind::tuple).items = std::move(items);
  }
  void global() {
    // Both lines are in the pickle next to each other: "torch\nFloatStorage\n".
    std::string_view module = line(), name = line();
    for (std::string_view known : kGlobals) {
      if (known.size() != module.size() + 1 + name.size() || !known.starts_with(module) ||
          known[module.size()] != '.' || !known.ends_with(name))
        continue;
      create(Kind::global).text = known;
      return;
    }
    source_.fail(
        "GLOBAL", at_,
        "the file asks for the Python object '{}.{}', which is not one of the few that tensors need; it is not "
        "loaded. Save a state dict of tensors and plain values instead",
        printable(module), printable(name));
  }
  std::string_view line() {
    constexpr uint64_t kLongest = 256;
    uint64_t room = std::min(in_.left(), kLongest);
    const char* begin = in_.text(0, "GLOBAL").data();
    const void* end = room ? std::memchr(begin, '\n', room) : nullptr;
    if (!end) source_.fail("GLOBAL", at_, "the name does not end within {} bytes", kLongest);
    std::string_view s(begin, static_cast<size_t>(static_cast<const char*>(end) - begin));
    in_.text(s.size() + 1, "GLOBAL");
    return s;
  }

  // --- Containers
  void add_pairs(PickleValue& dict, const Items& items) {
    if (items.size() % 2) source_.fail("SETITEMS", at_, "a key has no value");
    for (size_t i = 0; i < items.size(); i += 2) {
      Kind k = items[i]->kind;
      if (k == Kind::list || k == Kind::dict || k == Kind::set)
        source_.fail("SETITEMS", at_, "a list, dict or set cannot be a key");
    }
    dict.items.insert(dict.items.end(), items.begin(), items.end());
  }
  void add_items(PickleValue& to, const Items& items) { to.items.insert(to.items.end(), items.begin(), items.end()); }

  // --- What would be a call in Python
  void reduce(const char* op) {
    const PickleValue *arguments = pop(), *function = pop();
    if (function->kind != Kind::global) source_.fail(op, at_, "the value below is not a function");
    if (arguments->kind != Kind::tuple) source_.fail(op, at_, "the arguments are not a tuple");
    std::string_view name = function->text;
    if (name == "collections.OrderedDict" || name == "collections.Counter") return make_dict(op, *arguments);
    if (name == "builtins.set" || name == "__builtin__.set") return make_set(op, *arguments);
    PickleValue& v = create(Kind::call);
    v.items = {function, arguments};
  }
  void make_dict(const char* op, const PickleValue& arguments) {
    PickleValue& v = create(Kind::dict);
    if (arguments.items.empty()) return;
    const PickleValue& from = *arguments.items[0];
    if (arguments.items.size() > 1 || (from.kind != Kind::list && from.kind != Kind::dict))
      source_.fail(op, at_, "a dict is made of nothing, a dict or a list of pairs");
    count(2 * from.items.size());  // a copy
    if (from.kind == Kind::dict) return add_pairs(v, from.items);
    for (const PickleValue* pair : from.items) {
      bool is_pair = (pair->kind == Kind::tuple || pair->kind == Kind::list) && pair->items.size() == 2;
      if (!is_pair) source_.fail(op, at_, "a dict is made of nothing, a dict or a list of pairs");
      add_pairs(v, pair->items);
    }
  }
  void make_set(const char* op, const PickleValue& arguments) {
    PickleValue& v = create(Kind::set);
    if (arguments.items.empty()) return;
    Kind k = arguments.items[0]->kind;
    if (arguments.items.size() > 1 || (k != Kind::list && k != Kind::tuple))
      source_.fail(op, at_, "a set is made of a list");
    count(arguments.items[0]->items.size());  // a copy
    add_items(v, arguments.items[0]->items);
  }
  // Sets attributes; on the dicts of PyTorch only `_metadata`, which says nothing about the values.
  void build() {
    const PickleValue* state = pop();
    top("BUILD", {Kind::dict});
    if (state->kind != Kind::dict) source_.fail("BUILD", at_, "the attributes are not a dict");
  }

  void step(uint8_t op) {
    switch (op) {
      case kMark:
        if (marks_.size() >= limits_.pickle_stack)
          source_.fail("stack", at_, "more than {} marks", limits_.pickle_stack);
        return marks_.push_back(stack_.size());
      case kNone:
        create(Kind::none);
        return;
      case kNewTrue:
      case kNewFalse:
        create(Kind::boolean).integer = op == kNewTrue;
        return;
      case kBinInt:
        return integer(in_.number<int32_t>("BININT"));
      case kBinInt1:
        return integer(in_.u8("BININT1"));
      case kBinInt2:
        return integer(in_.u16("BININT2"));
      case kLong1:
        return long1();
      case kBinFloat:
        return real();
      case kBinUnicode:
        return text(Kind::string, in_.u32("BINUNICODE"));
      case kShortBinString:
        return text(Kind::bytes, in_.u8("SHORT_BINSTRING"));
      case kEmptyTuple:
        return tuple(0);
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return tuple(op - kTuple1 + 1u);
      case kBinPut:
        return memoize(in_.u8("BINPUT"));
      case kLongBinPut:
        return memoize(in_.u32("LONG_BINPUT"));
      case kBinGet:
        return recall(in_.u8("BINGET"));
      case kLongBinGet:
        return recall(in_.u32("LONG_BINGET"));
      case kGlobal:
        return global();
      case kReduce:
        return reduce("REDUCE");
      case kNewObj:
        return reduce("NEWOBJ");
      case kBuild:
        return build();
      default:
        return step_container(op);
    }
  }

  void step_container(uint8_t op) {
    switch (op) {
      case kTuple: {
        Items items = pop_to_mark();
        create(Kind::tuple).items = std::move(items);
        return;
      }
      case kEmptyList:
        create(Kind::list);
        return;
      case kEmptyDict:
        create(Kind::dict);
        return;
      case kEmptySet:
        create(Kind::set);
        return;
      case kAppend: {
        const PickleValue* v = pop();
        return add_items(top("APPEND", {Kind::list}), {v});
      }
      case kAppends: {
        Items items = pop_to_mark();
        return add_items(top("APPENDS", {Kind::list}), items);
      }
      case kAddItems: {
        Items items = pop_to_mark();
        return add_items(top("ADDITEMS", {Kind::set}), items);
      }
      case kSetItem: {
        const PickleValue *value = pop(), *key = pop();
        return add_pairs(top("SETITEM", {Kind::dict}), {key, value});
      }
      case kSetItems: {
        Items items = pop_to_mark();
        return add_pairs(top("SETITEMS", {Kind::dict}), items);
      }
      case kBinPersId: {
        const PickleValue* id = pop();
        create(Kind::persistent).items = {id};
        return;
      }
      default:
        fail_opcode(op);
    }
  }
  void integer(int64_t value) { create(Kind::integer).integer = value; }
  [[noreturn]] void fail_opcode(uint8_t op) {
    auto name = std::find_if(std::begin(kRefused), std::end(kRefused), [&](auto& o) { return o.code == op; });
    source_.fail("opcode", at_, "0x{:02x} ({}) is not one that PyTorch writes; it is not read", op,
                 name == std::end(kRefused) ? "unknown" : name->name);
  }

  // --- Afterwards: no cycles, bounded depth. Values may be shared, so each is visited once.
  void check_nesting() {
    constexpr uint16_t kVisiting = 0xffff;
    struct Visit {
      const PickleValue* value;
      size_t next;
    };
    std::vector<Visit> path;
    uint64_t deepest = std::min(limits_.depth, kDeepest);
    auto enter = [&](const PickleValue* v, uint64_t below) {
      if (path.size() + below > deepest)
        source_.fail("pickle", v->offset, "values are nested more than {} deep", deepest);
      if (below > 1) return;  // visited before
      v->mark = kVisiting;
      path.push_back({v, 0});
    };
    enter(out_.root_, 1);
    while (!path.empty()) {
      Visit& visit = path.back();
      if (visit.next < visit.value->items.size()) {
        const PickleValue* item = visit.value->items[visit.next++];
        if (item->mark == kVisiting) source_.fail("pickle", item->offset, "a value contains itself");
        enter(item, std::max<uint64_t>(item->mark, 1));
        continue;
      }
      uint16_t below = 0;
      for (const PickleValue* item : visit.value->items) below = std::max(below, item->mark);
      visit.value->mark = static_cast<uint16_t>(below + 1);
      path.pop_back();
    }
  }

  ByteReader in_;
  const Source& source_;
  const LoadLimits& limits_;
  Pickle& out_;
  uint64_t at_ = 0, pushes_ = 0, max_pushes_ = 0;
  Items stack_, memo_;
  std::vector<size_t> marks_;
};

Pickle::Pickle(std::span<const std::byte> bytes, const Source& source, const LoadLimits& limits, uint64_t room) {
  if (bytes.size() > std::min<uint64_t>(limits.pickle_bytes, UINT32_MAX))
    source.fail("pickle", 0, "{} bytes; the limit is {}", bytes.size(), limits.pickle_bytes);
  PickleReader(bytes, source, limits, room, *this).read();
}

}  // namespace deft::io
