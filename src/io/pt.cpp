#include "io/pt.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <unordered_map>

#include "core/grad_mode.h"
#include "io/checked_math.h"
#include "io/crc32.h"
#include "io/file_format.h"
#include "io/input_file.h"
#include "io/pickle.h"
#include "io/tensor_names.h"
#include "io/zip.h"
#include "runtime/parallel.h"

namespace deft::io {

struct PtContents {
  std::vector<std::byte> bytes;  // of data.pkl: the values point into it
  std::optional<Pickle> pickle;
  std::unordered_map<const PickleValue*, Tensor> tensors;  // by the calls that stand for them
};

namespace {

using Raw = PickleValue::Kind;

struct StorageType {
  std::string_view storage, name;
  std::optional<DType> dtype;  // none: Deft does not have it
};
constexpr StorageType kStorageTypes[] = {
    {"torch.FloatStorage", "torch.float32", DType::f32},      {"torch.DoubleStorage", "torch.float64", DType::f64},
    {"torch.BFloat16Storage", "torch.bfloat16", DType::bf16}, {"torch.HalfStorage", "torch.float16", DType::f16},
    {"torch.CharStorage", "torch.int8", DType::i8},           {"torch.ByteStorage", "torch.uint8", DType::u8},
    {"torch.IntStorage", "torch.int32", DType::i32},          {"torch.LongStorage", "torch.int64", DType::i64},
    {"torch.BoolStorage", "torch.bool", DType::boolean}};

bool is_call(const PickleValue& v, std::string_view function) {
  return v.kind == Raw::call && v.items[0]->text == function;
}
bool is_parameter(const PickleValue& v) {
  return is_call(v, "torch._utils._rebuild_parameter") || is_call(v, "torch._utils._rebuild_parameter_with_state");
}
bool is_tensor(const PickleValue& v) {
  return v.kind == Raw::call && v.items[0]->text.starts_with("torch._utils._rebuild_");
}

// Reads the archive around the pickle, finds the tensors in it, loads their storages.
class PtReader {
 public:
  explicit PtReader(const InputFile& file) : file_(file), zip_(file), contents_(std::make_shared<PtContents>()) {}

  std::shared_ptr<const PtContents> read() {
    check_members();
    const ZipEntry& e = member("data.pkl");
    if (e.size > file_.limits().pickle_bytes)
      file_.source().fail({"size", e.name}, e.header, "{} bytes; the limit is {}", e.size, file_.limits().pickle_bytes);
    contents_->bytes = read_member(e);
    source_ = zip_.source_of(e, "pt");
    contents_->pickle.emplace(contents_->bytes, source_, file_.limits(), file_.size() / 10 + (uint64_t{48} << 20));
    find_tensors(contents_->pickle->root());
    load_storages();
    for (auto& [value, view] : views_) contents_->tensors.emplace(value, make_view(view));
    for (auto& [value, inner] : parameters_) contents_->tensors.emplace(value, contents_->tensors.at(inner));
    file_.check_unchanged();
    return contents_;
  }

 private:
  struct StorageRecord {
    const ZipEntry* entry;
    DType dtype;
    uint64_t numel;
    Tensor tensor;
  };
  struct View {
    size_t storage;
    int64_t offset;
    Meta meta;
    bool negative = false;  // its values are those of the storage with the other sign
  };

  // --- The archive
  const ZipEntry& member(std::string_view name) const {
    const ZipEntry* e = zip_.find(folder_ + std::string(name));
    if (!e) file_.source().fail("directory", 0, "the member '{}{}' is missing: no PyTorch checkpoint", folder_, name);
    return *e;
  }
  std::vector<std::byte> read_member(const ZipEntry& e) const {
    std::vector<std::byte> bytes(e.size);
    zip_.read(e, bytes.data());
    return bytes;
  }
  // Small members of text, such as "version".
  std::string read_text(const ZipEntry& e) const {
    if (e.size > 16) file_.source().fail({"size", e.name}, e.header, "{} bytes, expected at most 16", e.size);
    std::vector<std::byte> bytes = read_member(e);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void check_members() {
    const Source& source = file_.source();
    if (zip_.entries().empty()) source.fail("directory", 0, "the archive is empty: no PyTorch checkpoint");
    std::string_view first = zip_.entries()[0].name;
    folder_ = first.substr(0, first.find('/') + 1);
    if (zip_.find(folder_ + "constants.pkl"))
      source.unsupported("directory", 0, "this is a TorchScript archive; save the module's state_dict() instead");
    for (const ZipEntry& e : zip_.entries())
      if (e.deflated)
        source.fail({"method", e.name}, e.header,
                    "the member is deflated, which PyTorch never writes; store it unpacked");
    member("data.pkl");
    check_version();
    if (const ZipEntry* e = zip_.find(folder_ + "byteorder")) {
      std::string order = read_text(*e);
      if (order != "little")
        source.unsupported({"data", e->name}, e->data,
                           "byte order '{}'; save the file again on a little-endian machine", printable(order));
    }
  }
  void check_version() const {
    constexpr int kNewest = 10;
    const ZipEntry& e = member("version");
    std::string text = read_text(e);
    int version = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
    bool number = error == std::errc() &&
                  std::string_view(end, text.data() + text.size()).find_first_not_of("\r\n") == std::string_view::npos;
    if (!number || version < 1 || version > kNewest)
      file_.source().fail({"data", e.name}, e.data, "file version '{}'; 1 to {} are known", printable(text), kNewest);
  }

  // --- Tensors in the tree. Values that occur twice are visited once.
  void find_tensors(const PickleValue& v) {
    if (v.mark == kSeen) return;
    v.mark = kSeen;
    size_t length = path_.size();
    if (is_parameter(v)) {
      const PickleValue& inner = argument(v, 0, "parameter");
      if (!is_tensor(inner) || is_parameter(inner)) fail(v, "parameter", "a parameter must hold a tensor");
      find_tensors(inner);
      parameters_.emplace_back(&v, &inner);
    } else if (is_tensor(v)) {
      views_.emplace_back(&v, view_of(v));
    } else if (v.kind == Raw::persistent) {
      fail(v, "storage", "a storage outside of a tensor cannot be read");
    } else if (v.kind == Raw::call) {
      if (is_call(v, "torch.device"))
        check_device(v);
      else if (!is_call(v, "torch.Size"))
        fail(v, "REDUCE", "this cannot be called");
      size_of_call(v);
    } else {
      find_tensors_in(v, length);
    }
    path_.resize(length);
  }
  void find_tensors_in(const PickleValue& v, size_t length) {
    for (size_t i = 0; i < v.items.size(); ++i) {
      if (v.kind == Raw::dict && i % 2 == 0) {
        find_tensors(*v.items[i]);
        continue;
      }
      path_.resize(length);
      if (length) path_ += '.';
      const PickleValue* key = v.kind == Raw::dict ? v.items[i - 1] : nullptr;
      if (key && (key->kind == Raw::string || key->kind == Raw::bytes))
        path_ += printable(key->text);
      else
        path_ += fmt::format("{}", key && key->kind == Raw::integer ? key->integer : static_cast<int64_t>(i));
      find_tensors(*v.items[i]);
    }
  }
  // ("cuda", 0), or "cuda:0" and "cpu" alone.
  void check_device(const PickleValue& v) {
    const auto& parts = v.items[1]->items;
    const bool named = !parts.empty() && parts.size() <= 2 && parts[0]->kind == Raw::string;
    const bool numbered = parts.size() < 2 || (parts[1]->kind == Raw::integer && parts[1]->integer >= 0 &&
                                               parts[0]->text.find(':') == std::string_view::npos);
    if (!named || !numbered) fail(v, "device", "this is no device: expected a name and perhaps a number");
  }
  void size_of_call(const PickleValue& v) {
    if (!is_call(v, "torch.Size")) return;
    const PickleValue& sizes = argument(v, 0, "torch.Size");
    if (sizes.kind != Raw::tuple && sizes.kind != Raw::list) fail(sizes, "torch.Size", "the sizes are no tuple");
    find_tensors_in(sizes, path_.size());
  }

  const PickleValue& argument(const PickleValue& call, size_t i, const char* field) {
    const auto& arguments = call.items[1]->items;
    if (i >= arguments.size()) fail(call, field, "an argument is missing");
    return *arguments[i];
  }
  template <class... Args>
  [[noreturn]] void fail(const PickleValue& v, const char* part, fmt::format_string<Args...> text,
                         const Args&... args) {
    source_.fail({part, path_}, v.offset, text, args...);
  }
  int64_t number(const PickleValue& v, const char* part) {
    if (v.kind != Raw::integer) fail(v, part, "expected an integer of at most 64 bits");
    if (v.integer < 0) fail(v, part, "{} is negative", v.integer);
    return v.integer;
  }
  Shape numbers(const PickleValue& v, const char* part) {
    const PickleValue& list = is_call(v, "torch.Size") ? argument(v, 0, part) : v;
    if (list.kind != Raw::tuple && list.kind != Raw::list) fail(v, part, "expected a tuple");
    uint64_t most = std::min<uint64_t>(file_.limits().rank, kMaxDims);
    if (list.items.size() > most) fail(v, part, "more than {} dimensions", most);
    Shape values;
    for (const PickleValue* item : list.items) values.push_back(number(*item, part));
    return values;
  }

  View view_of(const PickleValue& v) {
    std::string_view function = v.items[0]->text.substr(std::string_view("torch._utils._rebuild_").size());
    if (function == "qtensor" || function == "sparse_tensor")
      source_.unsupported({"tensor", path_}, v.offset, "{} tensors cannot be read; convert them to dense ones",
                          function == "qtensor" ? "quantized" : "sparse");
    if (views_.size() >= file_.limits().tensors) fail(v, "tensor", "more than {} tensors", file_.limits().tensors);
    const PickleValue& storage = argument(v, 0, "storage");
    Shape sizes = numbers(argument(v, 2, "size"), "size"), strides = numbers(argument(v, 3, "stride"), "stride");
    View view{};
    view.offset = number(argument(v, 1, "offset"), "offset");
    view.storage = storage_of(storage, function == "tensor_v3" ? &argument(v, 6, "dtype") : nullptr);
    if (sizes.size() != strides.size()) fail(v, "stride", "{} strides for {} sizes", strides.size(), sizes.size());
    check_bounds(v, sizes, strides, view);
    view.meta = Meta::dense(sizes, storages_[view.storage].dtype, kCPU);
    view.meta.set_strides(strides);
    const size_t bits = function == "tensor_v3" ? 7 : 6;
    if (function != "tensor" && v.items[1]->items.size() > bits) read_bits(argument(v, bits, "metadata"), view);
    return view;
  }
  // Views that PyTorch has not computed yet: {'neg': True} for the imaginary part of a conjugate.
  void read_bits(const PickleValue& bits, View& view) {
    if (bits.kind == Raw::none) return;
    if (bits.kind != Raw::dict) fail(bits, "metadata", "expected a dict");
    for (size_t i = 0; i + 1 < bits.items.size(); i += 2) {
      const PickleValue &key = *bits.items[i], &on = *bits.items[i + 1];
      if (key.kind != Raw::string && key.kind != Raw::bytes) fail(key, "metadata", "a key is no string");
      if (on.kind != Raw::boolean) fail(on, "metadata", "'{}' is no bool", printable(key.text));
      if (!on.integer)  // it reads them all as True
        fail(on, "metadata", "'{}' is False, which PyTorch never writes; save the tensor again", printable(key.text));
      if (key.text == "neg")
        view.negative = true;
      else
        source_.unsupported({"metadata", path_}, key.offset,
                            "a tensor with '{}' set is not read; save its resolve_conj().clone() instead",
                            printable(key.text));
    }
    if (view.negative && view.meta.dtype == DType::boolean)
      source_.unsupported({"metadata", path_}, bits.offset,
                          "bools have no sign, but 'neg' is set; save a clone instead");
  }

  void check_bounds(const PickleValue& v, const Shape& sizes, const Shape& strides, View& view) {
    const StorageRecord& s = storages_[view.storage];
    std::vector<uint64_t> extents;
    for (int64_t n : sizes) {
      extents.push_back(static_cast<uint64_t>(n));
      if (extents.back() > file_.limits().dim) fail(v, "size", "a size of {}; the limit is {}", n, file_.limits().dim);
    }
    auto bits = checked_bits(extents, 8 * size_of(s.dtype));
    if (!bits) fail(v, "size", "the number of elements overflows");
    __extension__ using Wide = unsigned __int128;
    Wide last = static_cast<Wide>(view.offset);
    if (*bits == 0) {
      view.offset = 0;  // an empty slice keeps the offset it was cut at, which may lie past its storage
      return;
    }
    for (int i = 0; i < sizes.size(); ++i)
      last += static_cast<Wide>(sizes[i] - 1) * static_cast<Wide>(strides[i]);  // 12 products of 48 and 63 bits fit
    if (last >= s.numel) fail(v, "stride", "the tensor reaches past the {} elements of its storage", s.numel);
  }

  // --- Storages: ('storage', torch.FloatStorage, '0', 'cpu', numel)
  size_t storage_of(const PickleValue& v, const PickleValue* dtype) {
    const PickleValue* id = v.kind == Raw::persistent ? v.items[0] : nullptr;
    if (!id || id->kind != Raw::tuple || id->items.size() != 5 || id->items[0]->text != "storage")
      fail(v, "storage", "expected ('storage', type, key, location, numel)");
    const PickleValue &type = *id->items[1], &key = *id->items[2];
    if (type.kind != Raw::global) fail(type, "storage", "the type is no type");
    if (key.kind != Raw::string && key.kind != Raw::bytes) fail(key, "storage", "the key is no string");
    auto numel = static_cast<uint64_t>(number(*id->items[4], "storage"));
    DType t = element_type(type, dtype);
    if (dtype) {  // untyped: counted in bytes
      if (numel % size_of(t)) fail(v, "storage", "{} bytes are no whole number of elements", numel);
      numel /= size_of(t);
    }
    return add_storage(v, key, t, numel);
  }
  DType element_type(const PickleValue& storage, const PickleValue* dtype) {
    const PickleValue& named = dtype ? *dtype : storage;
    if (named.kind != Raw::global) fail(named, "dtype", "the type is no type");
    for (const StorageType& t : kStorageTypes)
      if (named.text == (dtype ? t.name : t.storage)) return *t.dtype;
    if (!named.text.ends_with("Storage") && !dtype) fail(named, "storage", "{} is no type of a storage", named.text);
    source_.unsupported({"dtype", path_}, named.offset, "Deft has no type for {}; convert the tensor before saving",
                        named.text);
  }
  size_t add_storage(const PickleValue& v, const PickleValue& key, DType dtype, uint64_t numel) {
    std::string name(key.text);
    if (auto known = storage_index_.find(name); known != storage_index_.end()) {
      const StorageRecord& s = storages_[known->second];
      if (s.dtype != dtype || s.numel != numel)
        fail(v, "storage", "key '{}' was {} elements of {} before, now {} of {}", printable(name), s.numel,
             name_of(s.dtype), numel, name_of(dtype));
      return known->second;
    }
    bool plain = !name.empty() && name.find('/') == name.npos;
    const ZipEntry* e = plain ? zip_.find(folder_ + "data/" + name) : nullptr;
    if (!e) fail(key, "storage", "there is no member '{}data/{}'", folder_, printable(name));
    if (checked_mul(numel, size_of(dtype)) != e->size)
      fail(v, "storage", "{} elements of {} are not the {} bytes of '{}'", numel, name_of(dtype), e->size, e->name);
    storages_.push_back({e, dtype, numel, {}});
    return storage_index_.emplace(name, storages_.size() - 1).first->second;
  }

  void load_storages() {
    std::vector<size_t> pending;
    for (size_t i = 0; i < storages_.size(); ++i) {
      StorageRecord& s = storages_[i];
      auto [tensor, filled] = file_.place(s.entry->data, {static_cast<int64_t>(s.numel)}, s.dtype);
      s.tensor = tensor;
      if (!filled || s.numel == 0)
        pending.push_back(i);
      else
        zip_.check_crc(*s.entry, crc32(0, {static_cast<const std::byte*>(tensor.data_ptr()), s.entry->size}));
    }
    parallel_for(0, static_cast<int64_t>(pending.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const StorageRecord& s = storages_[pending[i]];
        zip_.read(*s.entry, s.tensor.data_ptr());
      }
    });
    for (const StorageRecord& s : storages_)
      check_bools(s.tensor, file_.source(), {"data", s.entry->name}, s.entry->data);
  }
  Tensor make_view(const View& view) const {
    Tensor t(make_alias(*storages_[view.storage].tensor.impl(), view.meta, view.offset));
    if (!view.negative) return t;
    NoGradGuard no_grad;
    return t.neg();
  }

  static constexpr uint16_t kSeen = 0xfffe;

  const InputFile& file_;
  ZipArchive zip_;
  std::shared_ptr<PtContents> contents_;
  std::string folder_;
  Source source_;     // of the pickle
  std::string path_;  // of the value being looked at: "state_dict.fc.weight"
  std::vector<StorageRecord> storages_;
  std::map<std::string, size_t> storage_index_;
  std::vector<std::pair<const PickleValue*, View>> views_;
  std::vector<std::pair<const PickleValue*, const PickleValue*>> parameters_;
};

PtFile read_pt(const InputFile& file) {
  if (detect_format(file) == FileFormat::legacy_pt)
    file.source().unsupported(
        "file", 0,
        "this is PyTorch's format from before version 1.6; load it in PyTorch and save it again with "
        "torch.save");
  check_format(file, FileFormat::zip);
  return PtFile(PtReader(file).read());
}

}  // namespace

PtFile load_pt(const std::string& path, const LoadOptions& options) { return read_pt(InputFile(path, "pt", options)); }

PtFile parse_pt(std::span<const std::byte> bytes, const std::string& name, const LoadOptions& options) {
  return read_pt(InputFile(bytes, name, "pt", options));
}

// ---- The tree as the caller sees it

namespace {

// The tuple of a torch.Size, else the value itself.
const PickleValue& sequence(const PickleValue& v) { return is_call(v, "torch.Size") ? *v.items[1]->items[0] : v; }
bool is_sequence(const PickleValue& v) { return v.kind == Raw::tuple || v.kind == Raw::list || v.kind == Raw::set; }

}  // namespace

PtValue::Kind PtValue::kind() const {
  switch (sequence(*value_).kind) {
    case Raw::none:
      return Kind::none;
    case Raw::boolean:
      return Kind::boolean;
    case Raw::integer:
      return Kind::integer;
    case Raw::real:
      return Kind::real;
    case Raw::string:
      return Kind::string;
    case Raw::bytes:
      return Kind::bytes;
    case Raw::tuple:
      return Kind::tuple;
    case Raw::list:
      return is_call(*value_, "torch.Size") ? Kind::tuple : Kind::list;
    case Raw::set:
      return Kind::set;
    case Raw::dict:
      return Kind::dict;
    default:
      return contents_->tensors.contains(value_) ? Kind::tensor : Kind::other;
  }
}

void PtValue::fail_kind(const char* wanted) const {
  constexpr const char* names[] = {"None",    "a bool", "an integer", "a float", "a string", "bytes",
                                   "a tuple", "a list", "a set",      "a dict",  "a tensor", "another object"};
  DEFT_FAIL(ValueError, "checkpoint: the value is {}, not {}; look at kind() first", names[static_cast<int>(kind())],
            wanted);
}

bool PtValue::to_bool() const {
  if (value_->kind != Raw::boolean) fail_kind("a bool");
  return value_->integer;
}
int64_t PtValue::to_int() const {
  if (value_->kind != Raw::integer) fail_kind("an integer");
  return value_->integer;
}
double PtValue::to_double() const {
  if (value_->kind == Raw::integer) return static_cast<double>(value_->integer);
  if (value_->kind != Raw::real) fail_kind("a float");
  return value_->real;
}

std::string PtValue::text() const {
  const PickleValue& v = *value_;
  if (v.kind == Raw::string || v.kind == Raw::bytes || v.kind == Raw::global) return std::string(v.text);
  if (v.kind == Raw::big_integer) {
    std::string digits;
    for (size_t i = v.text.size(); i-- > 0;) digits += fmt::format("{:02x}", static_cast<uint8_t>(v.text[i]));
    return "0x" + digits;
  }
  if (!is_call(v, "torch.device")) fail_kind("a text");
  std::string text;
  for (const PickleValue* part : v.items[1]->items)
    text += part->kind == Raw::integer ? fmt::format(":{}", part->integer) : std::string(part->text);
  return text;
}

const Tensor& PtValue::tensor() const {
  auto t = contents_->tensors.find(value_);
  if (t == contents_->tensors.end()) fail_kind("a tensor");
  return t->second;
}

size_t PtValue::size() const {
  const PickleValue& v = sequence(*value_);
  if (v.kind == Raw::dict) return v.items.size() / 2;
  return is_sequence(v) ? v.items.size() : 0;
}
PtValue PtValue::operator[](size_t i) const {
  const PickleValue& v = sequence(*value_);
  DEFT_CHECK(i < size(), IndexError, "checkpoint: element {} of a value with {}", i, size());
  return {contents_, v.items[v.kind == Raw::dict ? 2 * i + 1 : i]};
}
PtValue PtValue::key(size_t i) const {
  if (value_->kind != Raw::dict) fail_kind("a dict");
  DEFT_CHECK(i < size(), IndexError, "checkpoint: entry {} of a dict with {}", i, size());
  return {contents_, value_->items[2 * i]};
}

namespace {

// Where the value of this key is among a dict's items; 0 if there is none. The last of equal keys counts, as in Python.
size_t find_key(const PickleValue& dict, std::string_view key) {
  for (size_t i = dict.items.size(); i >= 2; i -= 2) {
    const PickleValue& k = *dict.items[i - 2];
    if ((k.kind == Raw::string || k.kind == Raw::bytes) && k.text == key) return i - 1;
  }
  return 0;
}

}  // namespace

bool PtValue::has(std::string_view key) const { return value_->kind == Raw::dict && find_key(*value_, key); }

PtValue PtValue::operator[](std::string_view key) const {
  if (value_->kind != Raw::dict) fail_kind("a dict");
  size_t i = find_key(*value_, key);
  DEFT_CHECK(i, ValueError, "checkpoint: the dict has no key '{}'", key);
  return {contents_, value_->items[i]};
}

PtValue PtFile::root() const { return {contents_, &contents_->pickle->root()}; }

NamedTensors PtFile::state_dict() const {
  auto tensors_of = [](const PtValue& v) {
    NamedTensors tensors;
    for (size_t i = 0; v.is(PtValue::Kind::dict) && i < v.size(); ++i)
      if (v[i].is(PtValue::Kind::tensor) && v.key(i).is(PtValue::Kind::string))
        tensors.push_back({v.key(i).text(), v[i].tensor()});
    return tensors;
  };
  for (const char* key : {"state_dict", "model_state_dict", "model"}) {
    if (!root().has(key)) continue;
    if (NamedTensors tensors = tensors_of(root()[key]); !tensors.empty()) return tensors;
  }
  NamedTensors tensors = tensors_of(root());
  DEFT_CHECK(
      !tensors.empty(), ValueError,
      "checkpoint: found no state dict at the top or under 'state_dict', 'model_state_dict' or 'model'; take the "
      "tensors from root()");
  return tensors;
}

}  // namespace deft::io
