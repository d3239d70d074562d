// Convolutions as in PyTorch.
#include "nn/conv.h"
#include "nn_util.h"

namespace deft::nn {
namespace {

const State& cases() {
  static const State all = fixture("conv");
  return all;
}
template <class M, class Options>
void expect_case(const char* name, int64_t in, int64_t out, const Sizes& kernel, const Options& options) {
  SCOPED_TRACE(name);
  M module(in, out, kernel, options);
  // The longest sums are those of the weight's gradient, over all places and images.
  expect_as_pytorch(cases().part(name), module, 160);
}
void conv2d_case(const char* name, int64_t in, int64_t out, const Sizes& kernel, const ConvOptions& options) {
  expect_case<Conv2d>(name, in, out, kernel, options);
}

TEST(NnConv, Conv1d) {
  expect_case<Conv1d>("conv1d", 4, 6, 3, ConvOptions{.stride = 2, .padding = 2, .dilation = 2, .groups = 2});
  expect_case<Conv1d>("conv1d_same", 2, 3, 4, ConvOptions{.same = true});
}

TEST(NnConv, Conv2d) {
  conv2d_case("conv2d", 3, 4, 3, {.padding = 1});
  conv2d_case("conv2d_uneven", 3, 4, {3, 5}, {.stride = {2, 1}, .padding = {1, 2}, .bias = false});
  conv2d_case("conv2d_depthwise", 4, 8, 3, {.padding = 1, .groups = 4});
  conv2d_case("conv2d_unbatched", 2, 3, 3, {});
  conv2d_case("conv2d_same", 2, 3, 4, {.dilation = {1, 2}, .same = true});
}

TEST(NnConv, PaddingModes) {
  conv2d_case("conv2d_reflect", 2, 3, 3, {.padding = {1, 2}, .padding_mode = PadMode::reflect});
  conv2d_case("conv2d_replicate", 2, 3, 3, {.padding = 1, .padding_mode = PadMode::replicate});
  conv2d_case("conv2d_circular", 2, 3, 3, {.padding = {2, 1}, .padding_mode = PadMode::circular});
  conv2d_case("conv2d_reflect_same", 2, 3, 4, {.padding_mode = PadMode::reflect, .same = true});
}

TEST(NnConv, Conv3d) { expect_case<Conv3d>("conv3d", 2, 4, 3, ConvOptions{.padding = 1, .groups = 2}); }

TEST(NnConv, Transposed) {
  using Options = ConvTransposeOptions;
  expect_case<ConvTranspose1d>("transpose1d", 4, 6, 3,
                               Options{.stride = 2, .padding = 1, .output_padding = 1, .groups = 2});
  expect_case<ConvTranspose2d>("transpose2d", 3, 4, {3, 2},
                               Options{.stride = 2, .padding = {1, 0}, .dilation = {1, 2}});
  expect_case<ConvTranspose2d>("transpose2d_no_bias", 3, 4, 3, Options{.bias = false});
  expect_case<ConvTranspose3d>("transpose3d", 2, 3, 2, Options{.stride = 2, .output_padding = {0, 1, 1}});
}

TEST(NnConv, TransposedToAGivenSize) {
  ConvTranspose2d up(2, 3, 3, {.stride = 2, .padding = 1});
  expect_as_pytorch(
      cases().part("transpose2d_size"), up,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {up.forward(in[0], {8, 9})};
      },
      160);
  expect_error<ShapeError>([&] { up.forward(zeros({2, 2, 4, 5}), {9, 9}); }, "a size of 7 to 8 in dimension 0, not 9");
}

TEST(NnConv, DescribesItself) {
  EXPECT_EQ(Conv2d(3, 8, 3).describe(), "Conv2d(in=3, out=8, kernel=[3, 3], stride=1)");
  EXPECT_EQ(Conv1d(4, 8, 5, {.stride = 2, .padding = 2, .dilation = 3, .groups = 2, .bias = false}).describe(),
            "Conv1d(in=4, out=8, kernel=[5], stride=2, padding=2, dilation=3, groups=2, bias=false)");
  EXPECT_EQ(Conv2d(3, 8, {3, 1}, {.padding_mode = PadMode::reflect, .same = true}).describe(),
            "Conv2d(in=3, out=8, kernel=[3, 1], stride=1, padding=same, padding_mode=reflect)");
  EXPECT_EQ(ConvTranspose2d(3, 8, 2, {.stride = 2, .output_padding = 1}).describe(),
            "ConvTranspose2d(in=3, out=8, kernel=[2, 2], stride=2, output_padding=1)");
}

TEST(NnConv, WrongSettings) {
  expect_error<ValueError>([] { Conv2d(3, 8, {3, 3, 3}); }, "the kernel [3, 3, 3] has 3 numbers");
  expect_error<ValueError>([] { Conv2d(3, 8, 3, {.groups = 2}); }, "3 input and 8 output channels");
  expect_error<ValueError>([] { ConvTranspose1d(4, 6, 3, {.stride = {1, 2}}); }, "the stride [1, 2] has 2 numbers");
}

TEST(NnConv, ChannelsLastGivesTheSame) {
  Conv2d conv(3, 8, 3, {.padding = 1});
  Tensor x = sample({2, 3, 6, 5}, 1, DType::f32), y = conv(x).detach();
  conv.to(MemoryFormat::channels_last);
  EXPECT_TRUE(conv.weight.is_contiguous(MemoryFormat::channels_last));
  EXPECT_TRUE(conv.weight.requires_grad());
  expect_near(conv(x.contiguous(MemoryFormat::channels_last)), y, 0x1p-23, 27, "channels last");
}

}  // namespace
}  // namespace deft::nn
