#include "data/tar_dataset.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/tensor.h"
#include "data/transforms.h"
#include "io/npy.h"
#include "io/source.h"
#include "io/tensor_names.h"
#include "runtime/per_thread.h"

namespace deft::data {

namespace {

std::string file_of(const Record& record, const Record::Part& part) {
  return fmt::format("{}.{}", record.name, part.name);
}

std::span<const uint8_t> bytes_of(const Record::Part& part) {
  return {reinterpret_cast<const uint8_t*>(part.bytes.data()), part.bytes.size()};
}

std::vector<std::string> image_parts() { return {"jpg", "jpeg", "png"}; }

void write_image(const Record& record, const Record::Part& part, const ImageTransform& transform, int at,
                 SampleWriter& out) {
  ImageWorkspace& work = PerThread<ImageWorkspace>::get();
  std::string file = file_of(record, part);
  {
    StageScope stage = out.stage(Stage::decode);
    transform.decode({bytes_of(part), file}, out.rng(), work);
  }
  StageScope stage = out.stage(Stage::transform);
  transform.write(work, out.fixed<char>(at));
}

std::string_view trimmed(std::string_view s) {
  constexpr std::string_view kSpace = " \t\r\n";
  s.remove_prefix(std::min(s.find_first_not_of(kSpace), s.size()));
  return s.substr(0, s.find_last_not_of(kSpace) + 1);
}

int64_t label_of(const Record& record, const Record::Part& part) {
  std::string_view text = trimmed({part.bytes.data(), part.bytes.size()});
  int64_t label = 0;
  auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), label);
  if (text.empty() || error != std::errc() || stop != text.data() + text.size())
    io::Source{"tar", file_of(record, part)}.fail("label", 0, "found '{}', expected a whole number",
                                                  io::printable(text));
  return label;
}

bool varies(const Shape& shape) { return std::find(shape.begin(), shape.end(), -1) != shape.end(); }

bool agrees(const Shape& found, const Shape& expected) {
  return std::equal(found.begin(), found.end(), expected.begin(), expected.end(),
                    [](int64_t f, int64_t e) { return e == -1 || f == e; });
}

void write_array(const Record& record, const Record::Part& part, const Field& field, int at, SampleWriter& out) {
  std::string file = file_of(record, part);
  Tensor x = io::parse_npy(std::as_bytes(std::span(part.bytes)), file).contiguous();
  if (x.dtype() != field.dtype || !agrees(x.sizes(), field.shape))
    io::Source{"npy", file}.fail("header", 0, "found {} {}, but the field '{}' is {} {}", name_of(x.dtype()),
                                 to_string(x.sizes()), field.name, name_of(field.dtype), to_string(field.shape));
  char* to = varies(field.shape) ? out.varying<char>(at, x.sizes()) : out.fixed<char>(at);
  if (x.numel()) std::memcpy(to, x.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size());
}

const Record::Part* find_part(const Record& record, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (const Record::Part& part : record.parts)
      if (part.name == name) return &part;
  return nullptr;
}

template <class Names, class NameOf>
std::string joined(const Names& names, NameOf name_of_one) {
  std::string all;
  for (const auto& n : names) all += (all.empty() ? "" : ", ") + name_of_one(n);
  return all.empty() ? "nothing" : all;
}

void decode_fields(const std::vector<TarField>& fields, const Record& record, SampleWriter& out) {
  for (size_t i = 0; i < fields.size(); ++i) {
    const Record::Part* part = find_part(record, fields[i].parts);
    if (!part)
      io::Source{"tar", record.name}.fail("record", 0, "the field '{}' needs one of the parts {}, but there is {}",
                                          fields[i].field.name,
                                          joined(fields[i].parts, [](const std::string& s) { return s; }),
                                          joined(record.parts, [](const Record::Part& p) { return p.name; }));
    fields[i].decode(record, *part, static_cast<int>(i), out);
  }
}

std::shared_ptr<const TarShards> checked(TarShards shards) {
  DEFT_CHECK(!shards.paths.empty(), ValueError, "TarDataset: no shards were given");
  DEFT_CHECK(shards.options.shuffle_buffer >= 0, ValueError,
             "TarDataset: shuffle_buffer must not be negative, found {}", shards.options.shuffle_buffer);
  return std::make_shared<const TarShards>(std::move(shards));
}

std::vector<std::string> parts_of(const std::vector<TarField>& fields) {
  std::vector<std::string> parts;
  for (const TarField& f : fields) {
    DEFT_CHECK(!f.parts.empty() && f.decode, ValueError, "TarDataset: the field '{}' needs parts and a function",
               f.field.name);
    parts.insert(parts.end(), f.parts.begin(), f.parts.end());
  }
  DEFT_CHECK(!parts.empty(), ValueError, "TarDataset: no fields were given");
  return parts;
}

}  // namespace

TarField image_field(const ImageOptions& options) {
  ImageTransform transform(options);
  return {transform.field(), image_parts(),
          [transform](auto& record, auto& part, int at, auto& out) { write_image(record, part, transform, at, out); }};
}

TarField image_field(Field field, BytesDecoder decode) {
  return {std::move(field), image_parts(),
          [decode = std::move(decode)](auto&, auto& part, int at, auto& out) { decode(bytes_of(part), at, out); }};
}

TarField label_field(std::string part) {
  return {{"label", DType::i64, {}}, {std::move(part)}, [](auto& record, auto& found, int at, auto& out) {
            *out.template fixed<int64_t>(at) = label_of(record, found);
          }};
}

TarField array_field(Field field, std::string part) {
  return {field, {std::move(part)}, [field](auto& record, auto& found, int at, auto& out) {
            write_array(record, found, field, at, out);
          }};
}

TarField bytes_field(std::string part) {
  return {{part, DType::u8, {-1}}, {part}, [](auto&, auto& found, int at, auto& out) {
            auto* to = out.template varying<char>(at, {static_cast<int64_t>(found.bytes.size())});
            if (!found.bytes.empty()) std::memcpy(to, found.bytes.data(), found.bytes.size());
          }};
}

TarDataset::TarDataset(std::vector<std::string> shards, std::vector<TarField> fields, TarOptions options)
    : shards_(checked({std::move(shards), parts_of(fields), options})) {
  for (const TarField& f : fields) fields_.push_back(f.field);
  decode_ = [fields = std::move(fields)](const Record& record, SampleWriter& out) {
    decode_fields(fields, record, out);
  };
}

TarDataset::TarDataset(std::vector<std::string> shards, std::vector<Field> fields, RecordDecoder decode,
                       TarOptions options)
    : shards_(checked({std::move(shards), {}, options})), fields_(std::move(fields)), decode_(std::move(decode)) {
  DEFT_CHECK(!fields_.empty() && decode_, ValueError, "TarDataset: fields and a function that writes them are needed");
}

std::unique_ptr<RecordStream> TarDataset::open(uint64_t seed, int64_t epoch) const {
  DEFT_CHECK(epoch >= 0, ValueError, "TarDataset: the epoch must not be negative, found {}", epoch);
  return std::make_unique<TarStream>(shards_, seed, epoch);
}

}  // namespace deft::data
