#include "io/safetensors.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <tuple>

#include "io/atomic_file.h"
#include "io/checked_math.h"
#include "io/file_format.h"
#include "io/input_file.h"
#include "io/json_reader.h"
#include "io/tensor_names.h"

namespace deft::io {

namespace {

struct TypeName {
  std::string_view name;
  uint32_t bits;
  std::optional<DType> dtype;  // none: Deft does not have it
};
constexpr TypeName kTypeNames[] = {{"F32", 32, DType::f32}, {"F64", 64, DType::f64}, {"BF16", 16, DType::bf16},
                                   {"F16", 16, DType::f16}, {"I8", 8, DType::i8},    {"U8", 8, DType::u8},
                                   {"I32", 32, DType::i32}, {"I64", 64, DType::i64}, {"BOOL", 8, DType::boolean},
                                   {"U16", 16, {}},         {"I16", 16, {}},         {"U32", 32, {}},
                                   {"U64", 64, {}},         {"C64", 64, {}},         {"F8_E4M3", 8, {}},
                                   {"F8_E5M2", 8, {}},      {"F8_E8M0", 8, {}},      {"F8_E4M3FNUZ", 8, {}},
                                   {"F8_E5M2FNUZ", 8, {}},  {"F4", 4, {}},           {"F6_E2M3", 6, {}},
                                   {"F6_E3M2", 6, {}}};

constexpr uint64_t kMaxHeader = 100'000'000;

// One tensor of the header. Small, since a header may hold a million; names are part of the header's text.
struct Entry {
  std::string_view name;
  const TypeName* type = nullptr;
  uint64_t begin = 0, end = 0;  // from the start of the data
  uint64_t offset = 0;          // of the name in the file
  uint32_t first_size = 0, rank = 0;
};

struct Header {
  uint64_t data_start = 0;
  std::deque<Entry> entries;
  std::vector<uint64_t> sizes;  // of all tensors
  std::map<std::string, std::string> metadata;

  std::span<const uint64_t> sizes_of(const Entry& e) const { return std::span(sizes).subspan(e.first_size, e.rank); }
};

class HeaderReader {
 public:
  HeaderReader(std::string_view text, const InputFile& file)
      : file_(file), source_(file.source()), json_(text, source_, 8, file.limits().depth) {}

  Header read() {
    bool metadata_seen = false;
    json_.object("header", [&](std::string_view key, uint64_t at) {
      if (key != "__metadata__") return tensor(key, at);
      if (metadata_seen) source_.fail("__metadata__", at, "the key is there twice");
      metadata_seen = true;
      metadata();
    });
    json_.end("header");
    return std::move(header_);
  }

 private:
  void metadata() {
    json_.object("__metadata__", [&](std::string_view key, uint64_t at) {
      std::string value(json_.string("__metadata__"));
      if (!header_.metadata.emplace(key, std::move(value)).second)
        source_.fail("__metadata__", at, "the key '{}' is there twice", printable(key));
      if (header_.metadata.size() > file_.limits().metadata_entries)
        source_.fail("__metadata__", at, "there are more than {} entries", file_.limits().metadata_entries);
    });
  }

  void tensor(std::string_view name, uint64_t at) {
    if (const char* wrong = name_fault(name, file_.limits().name_bytes))
      source_.fail("name", at, "the tensor name '{}' {}", printable(name), wrong);
    if (header_.entries.size() >= file_.limits().tensors)
      source_.fail("header", at, "there are more than {} tensors", file_.limits().tensors);
    Entry e{name};
    e.offset = at;
    uint32_t seen = 0;
    json_.object(Field{"description", name}, [&](std::string_view key, uint64_t key_at) {
      constexpr std::string_view keys[] = {"dtype", "shape", "data_offsets"};
      auto which = static_cast<size_t>(std::find(std::begin(keys), std::end(keys), key) - std::begin(keys));
      if (which == std::size(keys)) return json_.skip({"description", name});
      if (seen >> which & 1) source_.fail({"description", name}, key_at, "'{}' is there twice", key);
      seen |= 1u << which;
      if (which == 0) return dtype(e);
      which == 1 ? shape(e) : offsets(e);
    });
    if (seen != 7)
      source_.fail({"description", name}, at, "'{}' is missing",
                   !(seen & 1)   ? "dtype"
                   : !(seen & 2) ? "shape"
                                 : "data_offsets");
    header_.entries.push_back(e);
  }

  void dtype(Entry& e) {
    uint64_t at = json_.next_offset();
    std::string_view found = json_.string({"dtype", e.name});
    e.type = std::find_if(std::begin(kTypeNames), std::end(kTypeNames), [&](auto& t) { return t.name == found; });
    if (e.type == std::end(kTypeNames))
      source_.fail({"dtype", e.name}, at, "'{}' is no type of the format", printable(found));
  }

  void shape(Entry& e) {
    Field field{"shape", e.name};
    e.first_size = static_cast<uint32_t>(header_.sizes.size());  // the header is shorter than 4 G
    json_.array(field, [&] {
      uint64_t at = json_.next_offset(), size = json_.whole_number(field);
      if (size > file_.limits().dim) source_.fail(field, at, "a size of {}; the limit is {}", size, file_.limits().dim);
      if (++e.rank > std::min<uint64_t>(file_.limits().rank, kMaxDims))
        source_.fail(field, at, "more than {} dimensions", std::min<uint64_t>(file_.limits().rank, kMaxDims));
      header_.sizes.push_back(size);
    });
  }

  void offsets(Entry& e) {
    Field field{"data_offsets", e.name};
    uint64_t at = json_.next_offset(), count = 0, values[2] = {};
    json_.array(field, [&] {
      uint64_t value = json_.whole_number(field);
      if (count == 2) source_.fail(field, at, "more than two offsets");
      values[count++] = value;
    });
    if (count != 2) source_.fail(field, at, "{} offsets, expected two", count);
    e.begin = values[0];
    e.end = values[1];
  }

  const InputFile& file_;
  const Source& source_;
  JsonReader json_;
  Header header_;
};

void check_names(const Header& header, const Source& source) {
  std::vector<const Entry*> by_name;
  by_name.reserve(header.entries.size());
  for (const Entry& e : header.entries) by_name.push_back(&e);
  std::sort(by_name.begin(), by_name.end(),
            [](auto* a, auto* b) { return std::tie(a->name, a->offset) < std::tie(b->name, b->offset); });
  auto twice = std::adjacent_find(by_name.begin(), by_name.end(), [](auto* a, auto* b) { return a->name == b->name; });
  if (twice != by_name.end()) source.fail("name", twice[1]->offset, "there are two tensors '{}'", (*twice)->name);
}

// Sorts by offset; then every tensor begins where the one before ended, and the last ends with the file.
void check_offsets(Header& header, const InputFile& file) {
  const Source& source = file.source();
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t data_bytes = file.size() - header.data_start, expected = 0;
  for (const Entry& e : header.entries) {
    std::string_view n = e.name;
    if (e.begin > e.end)
      source.fail({"data_offsets", n}, e.offset, "the data begins at {} and ends at {}", e.begin, e.end);
    if (e.end > data_bytes)
      source.fail({"data_offsets", n}, e.offset, "the data ends at {}, but the file holds {} bytes of data", e.end,
                  data_bytes);
    if (e.begin != expected)
      source.fail({"data_offsets", n}, e.offset, "the data begins at {}, expected {}: {}", e.begin, expected,
                  e.begin < expected ? "two tensors overlap" : "bytes belong to no tensor");
    auto bits = checked_bits(header.sizes_of(e), e.type->bits);
    if (!bits) source.fail({"shape", n}, e.offset, "the number of elements overflows");
    if (*bits % 8) source.fail({"shape", n}, e.offset, "{} bits are no whole number of bytes", *bits);
    if (*bits / 8 != e.end - e.begin)
      source.fail({"data_offsets", n}, e.offset, "{} bytes of data, but shape and type {} need {}", e.end - e.begin,
                  e.type->name, *bits / 8);
    expected = e.end;
  }
  if (expected != data_bytes)
    source.fail("data", header.data_start + expected, "{} bytes at the end belong to no tensor", data_bytes - expected);
}

Tensor load_tensor(const Header& header, const Entry& e, const InputFile& file, PendingReads& reads) {
  if (!e.type->dtype)
    file.source().unsupported(
        {"dtype", e.name}, e.offset,
        "Deft has no type {}; convert the tensor to one of F32, F64, BF16, F16, I8, U8, I32, I64, "
        "BOOL",
        e.type->name);
  Shape sizes;
  for (uint64_t s : header.sizes_of(e)) sizes.push_back(static_cast<int64_t>(s));
  auto [tensor, filled] = file.place(header.data_start + e.begin, sizes, *e.type->dtype);
  if (!filled) reads.add(tensor.data_ptr(), header.data_start + e.begin, e.end - e.begin);
  return tensor;
}

SafetensorsFile read_safetensors(const InputFile& file) {
  check_format(file, FileFormat::safetensors);
  const Source& source = file.source();
  uint64_t length = 0;
  file.read(0, &length, 8, "header length");
  if (length == 0) source.fail("header length", 0, "the header is empty");
  uint64_t limit = file.limits().header_bytes;
  if (length > limit) source.fail("header length", 0, "the header has {} bytes; the limit is {}", length, limit);
  if (length > file.size() - 8)
    source.fail("header length", 0, "the header has {} bytes, but the file ends at byte {}", length, file.size());
  std::vector<std::byte> bytes = file.read(8, length, "header");
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (size_t good = valid_utf8(text); good != text.size())
    source.fail("header", 8 + good, "byte 0x{:02x} is not valid UTF-8", static_cast<uint8_t>(text[good]));
  HeaderReader reader(text, file);
  Header header = reader.read();
  header.data_start = 8 + length;
  check_names(header, source);
  check_offsets(header, file);

  SafetensorsFile result;
  PendingReads reads;
  result.tensors.reserve(header.entries.size());
  for (const Entry& e : header.entries)
    result.tensors.push_back({std::string(e.name), load_tensor(header, e, file, reads)});
  reads.run(file);
  file.check_unchanged();
  for (size_t i = 0; i < header.entries.size(); ++i)
    check_bools(result.tensors[i].tensor, source, {"data", header.entries[i].name},
                header.data_start + header.entries[i].begin);
  result.metadata = std::move(header.metadata);
  return result;
}

// The shard of every tensor, by the index file.
std::map<std::string, std::string> read_weight_map(const InputFile& file) {
  const Source& source = file.source();
  uint64_t limit = file.limits().header_bytes;
  if (file.size() > limit) source.fail("file", 0, "the index has {} bytes; the limit is {}", file.size(), limit);
  std::vector<std::byte> bytes = file.read(0, file.size(), "index");
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (size_t good = valid_utf8(text); good != text.size())
    source.fail("index", good, "byte 0x{:02x} is not valid UTF-8", static_cast<uint8_t>(text[good]));
  JsonReader json(text, source, 0, file.limits().depth);
  std::map<std::string, std::string> shards;
  bool seen = false;
  json.object("index", [&](std::string_view key, uint64_t at) {
    if (key != "weight_map") return json.skip("index");
    if (seen) source.fail("weight_map", at, "the key is there twice");
    seen = true;
    json.object("weight_map", [&](std::string_view tensor, uint64_t tensor_at) {
      if (const char* wrong = name_fault(tensor, file.limits().name_bytes))
        source.fail("weight_map", tensor_at, "the tensor name '{}' {}", printable(tensor), wrong);
      uint64_t shard_at = json.next_offset();
      std::string_view shard = json.string("weight_map");
      if (name_fault(shard, 255) || shard == "." || shard == ".." || shard.find_first_of("/\\") != shard.npos)
        source.fail("weight_map", shard_at, "'{}' is not the name of a file beside the index", printable(shard));
      if (!shards.emplace(tensor, shard).second)
        source.fail("weight_map", tensor_at, "the tensor '{}' is there twice", tensor);
      if (shards.size() > file.limits().tensors)
        source.fail("weight_map", tensor_at, "there are more than {} tensors", file.limits().tensors);
    });
  });
  json.end("index");
  if (!seen) source.fail("weight_map", 0, "the key is missing");
  return shards;
}

}  // namespace

SafetensorsFile load_safetensors(const std::string& path, const LoadOptions& options) {
  return read_safetensors(InputFile(path, "safetensors", options));
}

SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& name,
                                  const LoadOptions& options) {
  return read_safetensors(InputFile(bytes, name, "safetensors", options));
}

SafetensorsFile load_safetensors_index(const std::string& path, const LoadOptions& options) {
  InputFile index(path, "safetensors index", options);
  std::map<std::string, std::string> shard_of = read_weight_map(index), tensor_of;
  for (auto& [tensor, shard] : shard_of) tensor_of.emplace(shard, tensor);
  std::string folder = path.substr(0, path.rfind('/') + 1);
  LoadOptions part_options = options;
  part_options.sha256.clear();  // that was the index
  SafetensorsFile all;
  size_t found = 0;
  for (auto& [shard, some_tensor] : tensor_of) {
    SafetensorsFile part = load_safetensors(folder + shard, part_options);
    for (NamedTensor& t : part.tensors) {
      auto place = shard_of.find(t.name);
      if (place == shard_of.end())
        index.source().fail("weight_map", 0, "{} holds '{}', which is not listed", shard, t.name);
      if (place->second != shard)
        index.source().fail("weight_map", 0, "'{}' is listed in {}, but {} holds it", t.name, place->second, shard);
      ++found;
      all.tensors.push_back(std::move(t));
    }
    all.metadata.merge(part.metadata);
  }
  if (found == shard_of.size()) return all;
  for (auto& [tensor, shard] : shard_of)
    if (!find_tensor(all.tensors, tensor)) index.source().fail("weight_map", 0, "{} does not hold '{}'", shard, tensor);
  return all;
}

namespace {

const TypeName& type_name(DType dtype) {
  return *std::find_if(std::begin(kTypeNames), std::end(kTypeNames), [&](auto& t) { return t.dtype == dtype; });
}

void check_savable(const NamedTensors& tensors) {
  std::vector<std::string_view> names;
  for (const NamedTensor& t : tensors) {
    const char* wrong = name_fault(t.name, LoadLimits().name_bytes);
    DEFT_CHECK(!wrong, ValueError, "save_safetensors: the tensor name '{}' {}", printable(t.name), wrong);
    DEFT_CHECK(t.name != "__metadata__", ValueError, "save_safetensors: no tensor can be called '__metadata__'");
    DEFT_CHECK(t.tensor.defined(), ValueError, "save_safetensors: the tensor '{}' is undefined", t.name);
    names.push_back(t.name);
  }
  std::sort(names.begin(), names.end());
  auto twice = std::adjacent_find(names.begin(), names.end());
  DEFT_CHECK(twice == names.end(), ValueError, "save_safetensors: there are two tensors '{}'", *twice);
}

// Large elements first, so that each is aligned; else in the order given.
std::vector<const NamedTensor*> in_file_order(const NamedTensors& tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& t : tensors) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return a->tensor.element_size() > b->tensor.element_size(); });
  return order;
}

std::string header_text(const std::vector<const NamedTensor*>& order,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  auto separate = [&] { return text.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    std::string entries;
    for (auto& [key, value] : metadata)
      entries += fmt::format("{}{}:{}", entries.empty() ? "" : ",", json_string(key), json_string(value));
    text += fmt::format("\"__metadata__\":{{{}}}", entries);
  }
  uint64_t at = 0;
  for (const NamedTensor* t : order) {
    uint64_t bytes = static_cast<uint64_t>(t->tensor.numel()) * t->tensor.element_size();
    const Shape& sizes = t->tensor.sizes();
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", separate(),
                        json_string(t->name), type_name(t->tensor.dtype()).name,
                        fmt::join(sizes.begin(), sizes.end(), ","), at, at + bytes);
    at += bytes;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  check_savable(tensors);
  for (auto& [key, value] : metadata)
    DEFT_CHECK(valid_utf8(key) == key.size() && valid_utf8(value) == value.size(), ValueError,
               "save_safetensors: the metadata entry '{}' is not valid UTF-8", printable(key));
  auto order = in_file_order(tensors);
  std::string header = header_text(order, metadata);
  DEFT_CHECK(header.size() <= kMaxHeader, ValueError, "save_safetensors: the header has {} bytes; the format allows {}",
             header.size(), kMaxHeader);
  uint64_t length = header.size(), total = 8 + length;
  for (const NamedTensor* t : order) total += static_cast<uint64_t>(t->tensor.numel()) * t->tensor.element_size();
  AtomicFile file(path, total);
  file.write(&length, 8);
  file.write(header.data(), length);
  for (const NamedTensor* t : order) {
    Tensor x = t->tensor.detach().cpu().contiguous();
    file.write(x.data_ptr(), static_cast<uint64_t>(x.numel()) * x.element_size());
  }
  file.commit();
}

}  // namespace deft::io
