// DLPack in and out: the same bytes, strides in elements, every reference given back.
#include "core/dlpack.h"

#include "core_util.h"

namespace deft {
namespace {

TEST(DLPack, RoundTripSharesTheBytes) {
  expect_leaves_nothing([] {
    Tensor x = sample({3, 4}).t();
    DeftDLManagedTensor* m = to_dlpack(x);
    EXPECT_EQ(m->dl_tensor.ndim, 2);
    EXPECT_EQ(m->dl_tensor.shape[0], 4);
    EXPECT_EQ(m->dl_tensor.strides[0], 1);
    EXPECT_EQ(m->dl_tensor.strides[1], 4);
    EXPECT_EQ(m->dl_tensor.dtype.code, 2);
    EXPECT_EQ(m->dl_tensor.dtype.bits, 64);
    EXPECT_EQ(m->dl_tensor.device.device_type, 1);
    Tensor y = from_dlpack(m);
    EXPECT_EQ(y.data_ptr(), x.data_ptr());
    EXPECT_EQ(values(y), values(x));
    y.add_(1);
    EXPECT_EQ(values(y), values(x));
    x = Tensor();
    EXPECT_EQ(y.numel(), 12);
    y.mul_(2);
  });
}

TEST(DLPack, EveryType) {
  for (DType t : {f32, f64, bf16, f16, i8, u8, i32, i64, boolean}) {
    Tensor y = from_dlpack(to_dlpack(ones({2}, t)));
    EXPECT_EQ(y.dtype(), t);
    EXPECT_VALUES(y, 1, 1);
  }
}

TEST(DLPack, ScalarsAndEmpty) {
  EXPECT_VALUES(from_dlpack(to_dlpack(scalar_tensor(2))), 2);
  EXPECT_EQ(from_dlpack(to_dlpack(zeros({0, 3}))).sizes(), (Shape{0, 3}));
}

TEST(DLPack, DeleterIsCalledOnceAfterTheLastUse) {
  static int deleted;
  deleted = 0;
  float data[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 2};
  int64_t strides[2] = {2, 1};
  DeftDLManagedTensor m{
      {data, {1, 0}, 2, {2, 32, 1}, shape, strides, 8}, nullptr, [](DeftDLManagedTensor*) { ++deleted; }};
  {
    Tensor t = from_dlpack(&m), view;
    EXPECT_VALUES(t, 2, 3, 4, 5);
    view = t[1];
    t = Tensor();
    EXPECT_EQ(deleted, 0);
    EXPECT_VALUES(view, 4, 5);
  }
  EXPECT_EQ(deleted, 1);
  m.dl_tensor.strides = nullptr;
  EXPECT_VALUES(from_dlpack(&m), 2, 3, 4, 5);
  EXPECT_EQ(deleted, 2);
}

TEST(DLPack, Refused) {
  expect_error<GradError>([] { to_dlpack(leaf({2})); }, "detach() it");
  EXPECT_THROW(to_dlpack(Tensor()), ValueError);
  EXPECT_THROW(from_dlpack(nullptr), ValueError);
  float data[2] = {};
  int64_t shape[1] = {2}, negative[1] = {-1};
  DeftDLManagedTensor good{{data, {1, 0}, 1, {2, 32, 1}, shape, nullptr, 0}, nullptr, nullptr};
  auto broken = [&](auto change) {
    DeftDLManagedTensor m = good;
    change(m.dl_tensor);
    from_dlpack(&m);
  };
  EXPECT_THROW(broken([](auto& d) { d.device = {2, 99}; }), DeviceError);
  EXPECT_THROW(broken([](auto& d) { d.dtype.lanes = 4; }), DTypeError);
  EXPECT_THROW(broken([](auto& d) { d.dtype.code = 5; }), DTypeError);
  EXPECT_THROW(broken([](auto& d) { d.ndim = 100; }), ShapeError);
  EXPECT_THROW(broken([&](auto& d) { d.strides = negative; }), ShapeError);
  EXPECT_THROW(broken([](auto& d) { d.data = nullptr; }), ValueError);
  EXPECT_NO_THROW(broken([](auto&) {}));
}

}  // namespace
}  // namespace deft
