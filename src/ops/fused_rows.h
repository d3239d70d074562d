// A softmax or norm with the elementwise ops before and after it, or a sum of rows with those before it, a few rows at
// a time: intermediate results stay in cache. Made by compile().
#pragma once

#include <array>

#include "core/op.h"

namespace deft {

struct FusedRows {
  static constexpr size_t kPartBytes = 1024;
  // One of the ops: an elementwise one, a cast or a chain before and after, softmax, log_softmax, layer_norm, rms_norm
  // or a reduction of rows [n, row] to [n] between. After that one there is none.
  struct Part {
    int32_t op = -1;          // op_index(); -1: there is none
    int32_t inputs = 0;       // how many inputs of the list it takes, after those of the parts before
    uint32_t from_last = 0;   // bit i: input i is the result of the part before, and not given
    DType made = DType::f32;  // type of its result
    alignas(8) std::array<uint8_t, kPartBytes> params{};
    bool operator==(const Part&) const = default;
  };
  struct Params {
    std::array<Part, 3> part{};
    int32_t like = 0;         // an input of the result's sizes
    bool keeps_rows = false;  // output 1 is the result of the middle part; otherwise it is empty
    Shape row;                // sizes of a row
    bool operator==(const Params&) const = default;
  };
  // The part between is one of sum, mean, amax and amin, and so the result has one value per row.
  static bool reduces(const Params& p);
  static constexpr OpInfo info{
      .name = "fused_rows", .inputs = kListInput, .outputs = 2, .dtypes = kAllTypes, .fusion = Fusion::row_reduce};
  static constexpr const char* not_differentiable = "it is part of a compiled plan; gradients are recorded uncompiled";
  static std::array<Meta, 2> infer(std::span<const Meta* const> inputs, Params& p);
  static void cpu(KernelCall& c);
};

}  // namespace deft
