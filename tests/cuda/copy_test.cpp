// Values between host and device in every layout and type; tensors of both in one call; exchange with other libraries.
#include "cuda_util.h"
#include "ops/sample_inputs.h"

namespace deft {
namespace {

class CudaCopy : public GpuTest {};

constexpr DType kDTypes[] = {f32, f64, bf16, f16, i8, u8, i32, i64, boolean};

std::vector<Tensor> in_all_layouts(const Shape& sizes, DType dtype) {
  std::vector<Tensor> all;
  for (int l = 0; l < kLayoutCount; ++l) all.push_back(make_inputs({real(sizes)}, dtype, 3, static_cast<Layout>(l))[0]);
  return all;
}

TEST_F(CudaCopy, ThereAndBack) {
  for (DType t : kDTypes)
    for (Shape sizes : {Shape{}, Shape{7}, Shape{3, 5}, Shape{0, 2}, Shape{2, 3, 4, 5}})
      for (const Tensor& x : in_all_layouts(sizes, t)) {
        Tensor d = x.to(kCUDA), back = d.to(kCPU);
        EXPECT_EQ(d.device(), kCUDA);
        EXPECT_EQ(d.dtype(), t);
        EXPECT_EQ(values(back), values(x)) << name_of(t) << " " << to_string(sizes);
        EXPECT_EQ(values(d.contiguous()), values(x));
      }
}

TEST_F(CudaCopy, IntoEveryLayoutFromEveryLayout) {
  Shape sizes{2, 3, 4, 5};
  for (DType t : {f32, i8, i64}) {
    std::vector<Tensor> from = in_all_layouts(sizes, t), rooms = in_all_layouts(sizes, t);
    for (const Tensor& x : from)
      for (const Tensor& room : rooms) {
        if (room.meta().overlaps_itself()) continue;
        Tensor d = on_device({room}, kCUDA)[0];
        d.zero_().copy_(x);
        EXPECT_EQ(values(d), values(x));
        Tensor h = on_device({room}, kCPU)[0];
        h.zero_().copy_(on_device({x}, kCUDA)[0]);
        EXPECT_EQ(values(h), values(x));
      }
  }
}

TEST_F(CudaCopy, NeighboursStay) {
  Tensor base = zeros({4, 6}, on_gpu());
  base.slice(1, Slice(1, {}, 2)).copy_(full({4, 3}, 5));
  EXPECT_EQ(values(base.slice(1, Slice(0, {}, 2))), std::vector<double>(12, 0));
  EXPECT_EQ(values(base.slice(1, Slice(1, {}, 2))), std::vector<double>(12, 5));
  Tensor h = zeros({4, 6});
  h.slice(1, Slice(1, {}, 2)).copy_(full({4, 3}, 5, on_gpu()));
  EXPECT_EQ(values(h), values(base));
}

TEST_F(CudaCopy, ConvertsAndBroadcasts) {
  for (DType from : kDTypes)
    for (DType to : kDTypes) {
      Tensor x = make_inputs({real({3, 1}, 0, 100)}, from, 5)[0];
      Tensor want = zeros({3, 4}, to);
      want.copy_(x);
      Tensor d = zeros({3, 4}, on_gpu(to));
      d.copy_(x);
      EXPECT_EQ(values(d), values(want)) << name_of(from) << " to " << name_of(to);
      Tensor h = zeros({3, 4}, to);
      h.copy_(x.to(kCUDA));
      EXPECT_EQ(values(h), values(want)) << name_of(from) << " to " << name_of(to) << " on the host";
      EXPECT_EQ(values(x.to(kCUDA).to(to)), values(x.to(to)));
    }
}

TEST_F(CudaCopy, KeepsMemoryOrder) {
  Tensor x = sample({2, 3, 4, 5}, 1, f32).contiguous(MemoryFormat::channels_last);
  Tensor d = x.to(kCUDA);
  EXPECT_TRUE(d.is_contiguous(MemoryFormat::channels_last));
  EXPECT_TRUE(conv2d(d, sample_on(kCUDA, {4, 3, 3, 3})).is_contiguous(MemoryFormat::channels_last));
  EXPECT_TRUE(d.to(kCPU).is_contiguous(MemoryFormat::channels_last));
}

TEST_F(CudaCopy, SameDeviceIsTheTensorItself) {
  Tensor d = ones({2}, on_gpu());
  EXPECT_TRUE(d.to(kCUDA).is_same(d));
  EXPECT_TRUE(d.cuda().is_same(d));
  EXPECT_VALUES(d.cpu(), 1, 1);
  EXPECT_THROW(d.to(Device{DeviceType::cuda, kMaxDevices - 1}), DeviceError);
}

TEST_F(CudaCopy, Factories) {
  EXPECT_VALUES(zeros({2}, on_gpu()), 0, 0);
  EXPECT_VALUES(ones({2}, on_gpu(DType::i64)), 1, 1);
  EXPECT_VALUES(full({2}, 2.5, on_gpu()), 2.5, 2.5);
  EXPECT_VALUES(scalar_tensor(3, on_gpu()), 3);
  EXPECT_VALUES(arange(0, 4, 1, on_gpu(DType::i64)), 0, 1, 2, 3);
  EXPECT_EQ(values(arange(0, 1, 0.125, on_gpu())), values(arange(0, 1, 0.125)));
  EXPECT_EQ(values(linspace(-1, 2, 7, on_gpu(DType::f64))), values(linspace(-1, 2, 7, DType::f64)));
  EXPECT_EQ(values(eye(3, 5, on_gpu())), values(eye(3, 5)));
  EXPECT_VALUES(tensor({1.5f, 2.5f}, on_gpu()), 1.5, 2.5);
  Tensor x = sample_on(kCUDA, {2, 3});
  for (const Tensor& t : {empty_like(x), zeros_like(x), ones_like(x), full_like(x, 2), rand_like(x), randn_like(x)})
    EXPECT_EQ(t.device(), kCUDA);
}

TEST_F(CudaCopy, Prints) {
  std::string text = tensor({1.5f, -2.0f}, on_gpu()).to_string();
  EXPECT_NE(text.find("1.5"), text.npos) << text;
  EXPECT_NE(text.find("cuda:0"), text.npos) << text;
}

TEST_F(CudaCopy, MixingDevicesIsAnError) {
  Tensor h = ones({2, 2}), d = ones({2, 2}, on_gpu());
  auto expect_refused = [](auto&& f) {
    std::string text = message_of<DeviceError>(f);
    EXPECT_NE(text.find("cuda:0"), text.npos) << text;
    EXPECT_NE(text.find("cpu"), text.npos) << text;
    EXPECT_NE(text.find(": "), text.npos) << text;
  };
  expect_refused([&] { h + d; });
  expect_refused([&] { d + h; });
  expect_refused([&] { d.add_(h); });
  expect_refused([&] { h.mul_(d); });
  expect_refused([&] { matmul(h, d); });
  expect_refused([&] { linear(d, h); });
  expect_refused([&] { cat({h, d}); });
  expect_refused([&] { stack({d, h}); });
  expect_refused([&] { where(h > 0, d, d); });
  expect_refused([&] { d.gather(0, zeros({2, 2}, DType::i64)); });
  expect_refused([&] { mse_loss(h, d); });
  expect_refused([&] { layer_norm(d, {2}, ones({2})); });
  expect_refused([&] { conv2d(ones({1, 1, 3, 3}, on_gpu()), ones({1, 1, 2, 2})); });
  expect_refused([&] { masked_fill(d, h > 0, 1); });
  EXPECT_EQ(d.version(), 0u);
  EXPECT_EQ(h.version(), 0u);
  EXPECT_VALUES(d, 1, 1, 1, 1);
}

TEST_F(CudaCopy, NumbersGoWithAnyDevice) {
  SyncGuard guard(SyncPolicy::forbid);
  Tensor x = arange(1, 4, 1, on_gpu(DType::i64)), y = full({3}, 2, on_gpu()), mask = y > 1;
  std::vector<Tensor> results = {x * 2,
                                 2 - x,
                                 x * 0.5,
                                 y / 4,
                                 pow(y, 3),
                                 2 / y,
                                 x.eq(2),
                                 x.clamp(2, 2),
                                 where(mask, y, 7),
                                 masked_fill(y, mask, 5),
                                 maximum(y, 3),
                                 x.add(1).mul_(3),
                                 x & 1,
                                 lerp(y, y, 0.5)};
  SyncGuard allowed(SyncPolicy::allow);
  std::vector<std::vector<double>> want = {{2, 4, 6}, {1, 0, -1}, {0.5, 1, 1.5}, {0.5, 0.5, 0.5}, {8, 8, 8},
                                           {1, 1, 1}, {0, 1, 0},  {2, 2, 2},     {2, 2, 2},       {5, 5, 5},
                                           {3, 3, 3}, {6, 9, 12}, {1, 0, 1},     {2, 2, 2}};
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].device(), kCUDA) << i;
    EXPECT_EQ(values(results[i]), want[i]) << i;
  }
  EXPECT_EQ(results[0].dtype(), DType::i64);
  EXPECT_EQ(results[2].dtype(), DType::f32);
}

TEST_F(CudaCopy, DLPack) {
  Tensor x = sample_on(kCUDA, {3, 4}).t();
  DeftDLManagedTensor* m = to_dlpack(x);
  EXPECT_EQ(m->dl_tensor.device.device_type, 2);
  EXPECT_EQ(m->dl_tensor.device.device_id, 0);
  EXPECT_EQ(m->dl_tensor.strides[0], 1);
  Tensor y = from_dlpack(m);
  EXPECT_EQ(y.device(), kCUDA);
  EXPECT_EQ(y.data_ptr(), x.data_ptr());
  EXPECT_EQ(values(y), values(x));
  y.add_(1);
  EXPECT_EQ(values(y), values(x));
  Stream s = Stream::create(kCUDA);
  StreamGuard guard(s);
  expect_close(y * 2, x * 2);
}

}  // namespace
}  // namespace deft
