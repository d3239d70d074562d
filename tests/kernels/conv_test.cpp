#include "kernels/cpu/conv.h"

#include <vector>

#include "base/error.h"
#include "kernels/dense_util.h"

namespace deft::test {
namespace {

using cpu::ConvCall;

struct Dims {
  int64_t v[3];
};

int64_t product(const int64_t* v, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; ++i) p *= v[i];
  return p;
}

ConvCall make(DType t, int spatial, int64_t n, int64_t c_in, int64_t c_out, int64_t groups, Dims in, Dims kernel,
              Dims stride, Dims pad, Dims dilation, bool last) {
  ConvCall c{};
  c.dtype = t, c.spatial = spatial, c.n = n, c.c_in = c_in, c.c_out = c_out, c.groups = groups, c.channels_last = last;
  for (int d = 0; d < spatial; ++d) {
    c.in[d] = in.v[d], c.kernel[d] = kernel.v[d], c.stride[d] = stride.v[d], c.pad[d] = pad.v[d];
    c.dilation[d] = dilation.v[d];
    c.out[d] = std::max<int64_t>(0, (c.in[d] + 2 * c.pad[d] - c.dilation[d] * (c.kernel[d] - 1) - 1) / c.stride[d] + 1);
  }
  return c;
}

// Calls f(x index, w index, y index, c_in, c_out) for every product of the convolution.
template <class F>
void for_each_product(const ConvCall& c, F f) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, s = c.spatial;
  const int64_t in = product(c.in, s), out = product(c.out, s), taps = product(c.kernel, s);
  for (int64_t n = 0; n < c.n; ++n) {
    for (int64_t o = 0; o < c.c_out; ++o) {
      for (int64_t i = 0; i < cg; ++i) {
        const int64_t channel = o / og * cg + i;
        for (int64_t q = 0; q < out; ++q) {
          for (int64_t t = 0; t < taps; ++t) {
            int64_t pos = 0, qr = q, tr = t, scale = 1;
            bool inside = true;
            for (int64_t d = s - 1; d >= 0; --d) {
              const int64_t at = qr % c.out[d] * c.stride[d] - c.pad[d] + tr % c.kernel[d] * c.dilation[d];
              inside = inside && at >= 0 && at < c.in[d];
              pos += at * scale;
              scale *= c.in[d];
              qr /= c.out[d];
              tr /= c.kernel[d];
            }
            if (!inside) continue;
            const int64_t x = c.channels_last ? (n * in + pos) * c.c_in + channel : (n * c.c_in + channel) * in + pos;
            const int64_t y = c.channels_last ? (n * out + q) * c.c_out + o : (n * c.c_out + o) * out + q;
            f(x, (o * cg + i) * taps + t, y);
          }
        }
      }
    }
  }
}

template <class T>
void compare(const Guarded<T>& found, const std::vector<double>& sum, const std::vector<double>& norm, int64_t terms,
             const char* what) {
  const double eps = epsilon_of(dtype_of<accumulate_t<T>>);
  for (int64_t i = 0; i < found.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const double tolerance = eps * norm[at] * (2 + std::sqrt(static_cast<double>(terms)) / 4) +
                             epsilon_of(dtype_of<T>) * std::abs(sum[at]) * 0.5001 + 1e-7 * (sizeof(T) == 2);
    expect_near(as_double(found[i]), sum[at], tolerance, what, i);
  }
}

template <class T>
void check(ConvCall c) {
  SCOPED_TRACE(::testing::Message() << name_of(c.dtype) << " " << c.spatial << "d n" << c.n << " c" << c.c_in << "->"
                                    << c.c_out << "/" << c.groups << " in " << c.in[0] << "," << c.in[1] << " k "
                                    << c.kernel[0] << "," << c.kernel[1] << " s " << c.stride[0] << " p " << c.pad[0]
                                    << " d " << c.dilation[0] << (c.channels_last ? " last" : " first"));
  const int s = c.spatial;
  const int64_t x_size = c.n * c.c_in * product(c.in, s), y_size = c.n * c.c_out * product(c.out, s);
  const int64_t taps = product(c.kernel, s), w_size = c.c_out * (c.c_in / c.groups) * taps;
  const auto x = filled<T>(x_size, 1), w = filled<T>(w_size, 2), dy = filled<T>(y_size, 3);
  const auto bias = filled<T>(c.c_out, 4), bias_in = filled<T>(c.c_in, 5);
  const auto channel = [&](int64_t i, int64_t channels, int64_t spatial) {
    return c.channels_last ? i % channels : i / spatial % channels;
  };
  std::vector<double> y_sum(y_size), y_norm(y_size), dx_sum(x_size), dx_norm(x_size), dw_sum(w_size), dw_norm(w_size);
  for (int64_t i = 0; i < y_size; ++i) y_sum[i] = as_double(bias[channel(i, c.c_out, product(c.out, s))]);
  for (int64_t i = 0; i < x_size; ++i) dx_sum[i] = as_double(bias_in[channel(i, c.c_in, product(c.in, s))]);
  for (int64_t i = 0; i < y_size; ++i) y_norm[i] = std::abs(y_sum[i]);
  for (int64_t i = 0; i < x_size; ++i) dx_norm[i] = std::abs(dx_sum[i]);
  for_each_product(c, [&](int64_t xi, int64_t wi, int64_t yi) {
    const double xv = as_double(x[xi]), wv = as_double(w[wi]), g = as_double(dy[yi]);
    y_sum[yi] += xv * wv, y_norm[yi] += std::abs(xv * wv);
    dx_sum[xi] += g * wv, dx_norm[xi] += std::abs(g * wv);
    dw_sum[wi] += g * xv, dw_norm[wi] += std::abs(g * xv);
  });
  c.x = x.data(), c.w = w.data(), c.bias = bias.data();
  const auto y = run_both(filled<T>(y_size, 6), [&](T* to) {
    ConvCall call = c;
    call.y = to;
    cpu::conv_forward(call);
  });
  compare(y, y_sum, y_norm, c.c_in / c.groups * taps, "y");
  const auto dx = run_both(filled<T>(x_size, 7), [&](T* to) {
    ConvCall call = c;
    call.x = nullptr, call.bias = bias_in.data();
    cpu::conv_backward_input(call, dy.data(), to);
  });
  compare(dx, dx_sum, dx_norm, c.c_out / c.groups * taps, "dx");
  const auto dw = run_both(filled<T>(w_size, 8), [&](T* to) {
    ConvCall call = c;
    call.w = nullptr, call.bias = nullptr;
    cpu::conv_backward_weight(call, dy.data(), to);
  });
  compare(dw, dw_sum, dw_norm, c.n * product(c.out, s), "dw");
}

template <class T>
class Conv : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Half>;
TYPED_TEST_SUITE(Conv, Types);

constexpr Dims kOne{{1, 1, 1}}, kTwo{{2, 2, 2}}, kThree{{3, 3, 3}}, kZero{{0, 0, 0}};

TYPED_TEST(Conv, TwoDims) {
  const DType t = dtype_of<TypeParam>;
  for (bool last : {false, true}) {
    for (Dims stride : {kOne, kTwo, Dims{{3, 1, 1}}}) {
      for (Dims pad : {kZero, kOne, Dims{{2, 0, 0}}}) {
        for (Dims dilation : {kOne, kTwo, Dims{{1, 3, 1}}}) {
          check<TypeParam>(make(t, 2, 2, 4, 6, 1, {{9, 8, 1}}, kThree, stride, pad, dilation, last));
          check<TypeParam>(make(t, 2, 2, 4, 6, 2, {{7, 10, 1}}, {{2, 3, 1}}, stride, pad, dilation, last));
          check<TypeParam>(make(t, 2, 2, 5, 5, 5, {{8, 9, 1}}, kThree, stride, pad, dilation, last));
        }
      }
    }
  }
}

TYPED_TEST(Conv, OneAndThreeDims) {
  const DType t = dtype_of<TypeParam>;
  for (bool last : {false, true}) {
    for (Dims stride : {kOne, kTwo}) {
      for (int64_t groups : {1, 2, 4}) {
        check<TypeParam>(make(t, 1, 3, 4, 8, groups, {{33, 0, 0}}, {{5, 0, 0}}, stride, kTwo, kTwo, last));
        check<TypeParam>(make(t, 3, 2, 4, 4, groups, {{5, 6, 7}}, {{3, 2, 3}}, stride, kOne, kOne, last));
      }
    }
  }
}

TYPED_TEST(Conv, Pointwise) {
  const DType t = dtype_of<TypeParam>;
  for (bool last : {false, true}) {
    for (int64_t side : {1, 7, 17}) {
      for (int64_t groups : {1, 3}) {
        check<TypeParam>(make(t, 2, 3, 9, 12, groups, {{side, side, 1}}, kOne, kOne, kZero, kOne, last));
        check<TypeParam>(make(t, 2, 3, 9, 12, groups, {{side, side, 1}}, kOne, kTwo, kZero, kOne, last));
        check<TypeParam>(make(t, 2, 3, 9, 12, groups, {{side, side, 1}}, kOne, kOne, kOne, kOne, last));
      }
    }
  }
}

TYPED_TEST(Conv, ManyTiles) {
  const DType t = dtype_of<TypeParam>;
  for (bool last : {false, true}) {
    check<TypeParam>(make(t, 2, 2, 16, 8, 1, {{60, 61, 1}}, kThree, kOne, kOne, kOne, last));
    check<TypeParam>(make(t, 1, 1, 700, 3, 1, {{300, 1, 1}}, {{7, 1, 1}}, kTwo, kThree, kOne, last));
    check<TypeParam>(make(t, 2, 40, 24, 20, 1, {{7, 7, 1}}, kThree, kOne, kOne, kOne, last));
  }
}

TYPED_TEST(Conv, KernelSmallerThanStrideAndZeroSizes) {
  const DType t = dtype_of<TypeParam>;
  for (bool last : {false, true}) {
    check<TypeParam>(make(t, 2, 2, 3, 4, 1, {{11, 9, 1}}, kOne, kThree, kZero, kOne, last));
    check<TypeParam>(make(t, 2, 2, 3, 3, 3, {{11, 9, 1}}, {{2, 1, 1}}, kThree, kZero, kOne, last));
    check<TypeParam>(make(t, 2, 0, 3, 4, 1, {{5, 5, 1}}, kThree, kOne, kOne, kOne, last));
    check<TypeParam>(make(t, 2, 2, 0, 4, 1, {{5, 5, 1}}, kThree, kOne, kOne, kOne, last));
    check<TypeParam>(make(t, 2, 2, 3, 0, 1, {{5, 5, 1}}, kThree, kOne, kOne, kOne, last));
    check<TypeParam>(make(t, 2, 2, 3, 4, 1, {{2, 2, 1}}, kThree, kOne, kZero, kOne, last));
  }
}

TEST(Conv, BadCallsAreRefused) {
  ConvCall c = make(DType::i32, 2, 1, 1, 1, 1, kThree, kOne, kOne, kZero, kOne, false);
  EXPECT_THROW(cpu::conv_forward(c), DTypeError);
  c = make(DType::f32, 2, 1, 3, 4, 1, kThree, kOne, kOne, kZero, kOne, false);
  c.groups = 2;
  EXPECT_THROW(cpu::conv_forward(c), ShapeError);
  c.groups = 1, c.stride[0] = 0;
  EXPECT_THROW(cpu::conv_backward_weight(c, nullptr, nullptr), ValueError);
}

}  // namespace
}  // namespace deft::test
