// Samples in tar shards: members whose names agree up to the first dot form a record, each of them a part of it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/tar_stream.h"

namespace deft::data {

using RecordDecoder = std::function<void(const Record& record, SampleWriter& out)>;
using PartDecoder = std::function<void(const Record& record, const Record::Part& part, int field, SampleWriter& out)>;
using BytesDecoder = std::function<void(std::span<const uint8_t> bytes, int field, SampleWriter& out)>;
struct ImageOptions;  // data/transforms.h

// A field, the parts of a record that can fill it (the first one there is taken), and how.
struct TarField {
  Field field;
  std::vector<std::string> parts;
  PartDecoder decode;
};
// Parts jpg, jpeg and png: as ImageTransform writes them to the field "image", or through the given function.
TarField image_field(const ImageOptions& options);
TarField image_field(Field field, BytesDecoder decode);
// A whole number in decimal digits, as i64.
TarField label_field(std::string part = "cls");
// An npy file of the field's type and shape; sizes of -1 may be any.
TarField array_field(Field field, std::string part = "npy");
// The bytes as they are, u8 [-1]: txt, json.
TarField bytes_field(std::string part);

// A record that lacks a part is a LoadError of decode(), never left out. Records are not put together over the border
// of two shards.
class TarDataset final : public StreamDataset {
 public:
  TarDataset(std::vector<std::string> shards, std::vector<TarField> fields, TarOptions options = {});
  // All parts are read, and `decode` writes all fields.
  TarDataset(std::vector<std::string> shards, std::vector<Field> fields, RecordDecoder decode, TarOptions options = {});

  const std::vector<Field>& fields() const override { return fields_; }
  std::unique_ptr<RecordStream> open(uint64_t seed, int64_t epoch) const override;
  void decode(const Record& record, SampleWriter& out) const override { decode_(record, out); }

 private:
  std::shared_ptr<const TarShards> shards_;
  std::vector<Field> fields_;
  RecordDecoder decode_;
};

}  // namespace deft::data
