// The 53 convolutions of ResNet-50 v1.5 at 224 x 224, by their 23 distinct shapes.
#pragma once

#include <cstdint>

namespace deft::bench {

struct ResNetConv {
  int64_t channels, size, out, kernel, stride;  // input channels and height, output channels; padding kernel / 2
  int64_t count;                                // how often the network has it
};
inline constexpr ResNetConv kResNet50[] = {
    {3, 224, 64, 7, 2, 1},     {64, 56, 64, 1, 1, 1},    {64, 56, 64, 3, 1, 3},    {64, 56, 256, 1, 1, 4},
    {256, 56, 64, 1, 1, 2},    {256, 56, 128, 1, 1, 1},  {128, 56, 128, 3, 2, 1},  {128, 28, 512, 1, 1, 4},
    {256, 56, 512, 1, 2, 1},   {512, 28, 128, 1, 1, 3},  {128, 28, 128, 3, 1, 3},  {512, 28, 256, 1, 1, 1},
    {256, 28, 256, 3, 2, 1},   {256, 14, 1024, 1, 1, 6}, {512, 28, 1024, 1, 2, 1}, {1024, 14, 256, 1, 1, 5},
    {256, 14, 256, 3, 1, 5},   {1024, 14, 512, 1, 1, 1}, {512, 14, 512, 3, 2, 1},  {512, 7, 2048, 1, 1, 3},
    {1024, 14, 2048, 1, 2, 1}, {2048, 7, 512, 1, 1, 2},  {512, 7, 512, 3, 1, 2}};

}  // namespace deft::bench
