// Shared by grouped convolutions with few channels per group, NHWC: conv_groups.cpp and conv_groups_weight.cpp.
//
// Up to kBlock output channels are summed together as a block: part of a group, or two or four narrow groups.
//
// Note [Lanes of groups]: in a block of several groups, SIMD lane j holds output channel j / together of group j %
// together, and the copy holds the same input channel of each group side by side, which is broadcast to a vector.
#pragma once

#include "kernels/cpu/conv/conv_internal.h"

namespace deft::cpu::detail {

constexpr int64_t kBlock = 16;

// How channels form blocks.
struct GroupBlocks {
  GroupBlocks(int64_t groups_, int64_t in_, int64_t out_)
      : groups(groups_),
        in(in_),
        out(out_),
        together(std::max(in, out) > 8   ? 1
                 : std::max(in, out) > 4 ? 2
                                         : 4),
        parts((out + kBlock - 1) / kBlock),
        pixel(together * in) {}
  int64_t copies() const { return (groups + together - 1) / together; }
  int64_t count() const { return copies() * parts; }
  int64_t copy_of(int64_t block) const { return block / parts; }
  int64_t first_out(int64_t block) const { return copy_of(block) * together * out + block % parts * kBlock; }
  int64_t outs(int64_t block) const {
    return together > 1 ? std::min(together, groups - copy_of(block) * together) * out
                        : std::min(kBlock, out - block % parts * kBlock);
  }
  // Calls f(lane, group, output channel of the group) for the SIMD lanes in use.
  template <class F>
  void for_each_lane(int64_t block, F f) const {
    for (int64_t lane = 0; lane < kBlock; ++lane) {
      const int64_t group = copy_of(block) * together + lane % together, o = block % parts * kBlock + lane / together;
      if (group < groups && o < out) f(lane, group, o);
    }
  }
  int64_t groups, in, out;  // groups; channels of one
  int64_t together;         // groups of a block: 1, 2 or 4
  int64_t parts;            // blocks of a wide group
  int64_t pixel;            // values of a copied pixel
};

// One grouped convolution: the forward, or a phase of the input gradient, where dy is x.
struct GroupPass {
  Phase phase;  // tap_step is not negative
  GroupBlocks blocks;
  int64_t n;
  const float *x = nullptr, *filters = nullptr;
  const float *bias = nullptr, *residual = nullptr;  // nullable
  Activation activation = Activation::none;
  float* y = nullptr;
  int64_t y_size[3] = {};
};

}  // namespace deft::cpu::detail
