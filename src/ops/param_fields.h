// The fields of an op's Params. The compiler derives them from the struct itself, so that no op lists its fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/op.h"

namespace deft {

enum class FieldKind : uint8_t {
  integer,  // signed
  natural,  // unsigned
  real,     // double
  boolean,  //
  choice,   // an enum
  shape,    // a whole Shape
  pointer,  // means nothing outside this process
  draw,     // part of a generator's state
};

struct ParamField {
  FieldKind kind;
  uint32_t offset, bytes;
  uint64_t choices = 0;  // of an enum: bit i is set where value i has a name
};

// In the order of the struct; bytes between fields are padding and mean nothing. Empty for Params whose fields are not
// known: those of elementwise_chain (C arrays cannot be taken apart) and of ops that are not in the table.
std::span<const ParamField> param_fields(const OpDef& def);

// An integer or natural field.
int64_t read_integer(const ParamField& field, const std::byte* params);
void write_integer(const ParamField& field, std::byte* params, int64_t value);

// False where the bytes are no value of their type: an enum's without a name, a bool that is 2.
bool is_valid(const ParamField& field, const std::byte* params);
// The same parameters with zeros wherever bytes mean nothing, so that equal ones are equal bytes.
std::vector<std::byte> settled_params(const OpDef& def, const std::byte* params);
// Equal in all fields but draws; in all bytes where the fields are not known.
bool same_params(const OpDef& def, const std::byte* a, const std::byte* b);

}  // namespace deft
