#include "kernels/cpu/conv.h"

#include <functional>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/stream.h"
#include "kernels/dense_util.h"
#include "kernels/engine_util.h"
#include "runtime/numerics.h"

namespace deft::test {
namespace {

using cpu::Activation;
using cpu::ConvCall;
using cpu::ConvQuant;
using cpu::GemmTile;
using cpu::Panel;

// One run per number of threads; all must give the same bits.
template <class T, class F>
Guarded<T> run_threads(const Guarded<T>& start, F f) {
  Guarded<T> first = start;
  const int before = num_threads();
  for (int threads : {1, 2, 3}) {
    Guarded<T> next = start;
    set_num_threads(threads);
    f(next.data());
    next.check();
    if (threads == 1) first = next;
    EXPECT_TRUE(next.same_bits(first)) << "the result depends on the number of threads";
  }
  set_num_threads(before);
  return first;
}

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
double tolerance_of(double sum, double norm, int64_t terms) {
  const double eps = epsilon_of(dtype_of<accumulate_t<T>>);
  return eps * norm * (2 + std::sqrt(static_cast<double>(terms)) / 4) +
         epsilon_of(dtype_of<T>) * std::abs(sum) * 0.5001 + 1e-7 * (sizeof(T) == 2);
}
template <class T>
void compare(const Guarded<T>& found, const std::vector<double>& sum, const std::vector<double>& norm, int64_t terms,
             const char* what) {
  for (int64_t i = 0; i < found.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    expect_near(as_double(found[i]), sum[at], tolerance_of<T>(sum[at], norm[at], terms), what, i);
  }
}

std::string describe(const ConvCall& c) {
  ::testing::Message m;
  m << name_of(c.dtype) << " " << c.spatial << "d n" << c.n << " c" << c.c_in << "->" << c.c_out << "/" << c.groups
    << " in " << c.in[0] << "," << c.in[1] << " k " << c.kernel[0] << "," << c.kernel[1] << " s " << c.stride[0]
    << " p " << c.pad[0] << " d " << c.dilation[0] << (c.channels_last ? " last" : " first");
  return m.GetString();
}
int64_t x_size(const ConvCall& c) { return c.n * c.c_in * product(c.in, c.spatial); }
int64_t y_size(const ConvCall& c) { return c.n * c.c_out * product(c.out, c.spatial); }
int64_t w_size(const ConvCall& c) { return c.c_out * (c.c_in / c.groups) * product(c.kernel, c.spatial); }
int64_t terms_of(const ConvCall& c) { return c.c_in / c.groups * product(c.kernel, c.spatial); }
int64_t y_channel(const ConvCall& c, int64_t i) {
  return c.channels_last ? i % c.c_out : i / product(c.out, c.spatial) % c.c_out;
}

double activate(Activation a, double x) {
  switch (a) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
    default:
      return x;
  }
}

// Forward with packed weights, and with everything the epilogue can do.
template <class T>
void check_fused(const ConvCall& c, const Guarded<T>& plain, const std::vector<double>& sum,
                 const std::vector<double>& norm, Activation activation, const GemmTile* tile = nullptr) {
  const auto packed = pack_conv_weight(c, tile);
  const auto y = run_threads(filled<T>(y_size(c), 6), [&](T* to) {
    ConvCall call = c;
    call.y = to, call.packed = packed.get();
    if (packed) call.w = nullptr;
    cpu::conv_forward(call);
  });
  EXPECT_TRUE(tile || y.same_bits(plain)) << "packed weights change the result";
  compare(y, sum, norm, terms_of(c), "y of packed weights");

  const auto residual = filled<T>(y_size(c), 9);
  const auto fused = run_threads(filled<T>(y_size(c), 6), [&](T* to) {
    ConvCall call = c;
    call.y = to, call.packed = packed.get(), call.residual = residual.data(), call.activation = activation;
    cpu::conv_forward(call);
  });
  for (int64_t i = 0; i < fused.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const double before = sum[at] + as_double(residual[i]), expected = activate(activation, before);
    const double tolerance = tolerance_of<T>(before, norm[at] + 1, terms_of(c)) * 1.2 +
                             std::abs(expected) * epsilon_of(dtype_of<T>) + 8 * epsilon_of(dtype_of<accumulate_t<T>>);
    expect_near(as_double(fused[i]), expected, tolerance, "fused y", i);
  }
}

Activation next_activation() {
  static int i = 0;
  return static_cast<Activation>(i++ % 7);
}

template <class T>
void check(ConvCall c) {
  SCOPED_TRACE(describe(c));
  const int s = c.spatial;
  const auto x = filled<T>(x_size(c), 1), w = filled<T>(w_size(c), 2), dy = filled<T>(y_size(c), 3);
  const auto bias = filled<T>(c.c_out, 4), bias_in = filled<T>(c.c_in, 5);
  const auto sized = [](int64_t n) { return std::vector<double>(static_cast<size_t>(n)); };
  auto y_sum = sized(y_size(c)), dx_sum = sized(x_size(c)), dw_sum = sized(w_size(c)), dw_norm = dw_sum;
  for (int64_t i = 0; i < y_size(c); ++i) y_sum[i] = as_double(bias[y_channel(c, i)]);
  for (int64_t i = 0; i < x_size(c); ++i) {
    dx_sum[i] = as_double(bias_in[c.channels_last ? i % c.c_in : i / product(c.in, s) % c.c_in]);
  }
  auto y_norm = y_sum, dx_norm = dx_sum;
  for (double& v : y_norm) v = std::abs(v);
  for (double& v : dx_norm) v = std::abs(v);
  for_each_product(c, [&](int64_t xi, int64_t wi, int64_t yi) {
    const double xv = as_double(x[xi]), wv = as_double(w[wi]), g = as_double(dy[yi]);
    y_sum[yi] += xv * wv, y_norm[yi] += std::abs(xv * wv);
    dx_sum[xi] += g * wv, dx_norm[xi] += std::abs(g * wv);
    dw_sum[wi] += g * xv, dw_norm[wi] += std::abs(g * xv);
  });
  c.x = x.data(), c.w = w.data(), c.bias = bias.data();
  const auto y = run_threads(filled<T>(y_size(c), 6), [&](T* to) {
    ConvCall call = c;
    call.y = to;
    cpu::conv_forward(call);
  });
  compare(y, y_sum, y_norm, terms_of(c), "y");
  check_fused(c, y, y_sum, y_norm, next_activation());
  const auto dx = run_threads(filled<T>(x_size(c), 7), [&](T* to) {
    ConvCall call = c;
    call.x = nullptr, call.bias = bias_in.data();
    cpu::conv_backward_input(call, dy.data(), to);
  });
  compare(dx, dx_sum, dx_norm, c.c_out / c.groups * product(c.kernel, s), "dx");
  const auto dw = run_threads(filled<T>(w_size(c), 8), [&](T* to) {
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

// More than is copied at a time (conv_copied.cpp): two samples of f32, five of 16 bits, and groups as f32.
TYPED_TEST(Conv, PartsOfABatch) {
  const DType t = dtype_of<TypeParam>;
  check<TypeParam>(make(t, 2, 6, 4, 4, 1, {{158, 157, 1}}, kThree, kOne, kOne, kOne, false));
  for (bool last : {false, true}) {
    check<TypeParam>(make(t, 2, 5, 4, 4, 2, {{158, 157, 1}}, kThree, kTwo, kOne, kOne, last));
    check<TypeParam>(make(t, 2, 5, 6, 4, 2, {{158, 157, 1}}, kOne, kOne, kZero, kOne, last));
  }
}

TYPED_TEST(Conv, KernelSmallerThanStrideAndZeroSizes) {
  const DType t = dtype_of<TypeParam>;
  for (bool last : {false, true}) {
    check<TypeParam>(make(t, 2, 2, 3, 4, 1, {{11, 9, 1}}, kOne, kThree, kZero, kOne, last));
    check<TypeParam>(make(t, 2, 2, 3, 3, 3, {{11, 9, 1}}, {{2, 1, 1}}, kThree, kZero, kOne, last));
    check<TypeParam>(make(t, 2, 0, 3, 4, 1, {{5, 5, 1}}, kThree, kOne, kOne, kOne, last));
    check<TypeParam>(make(t, 2, 2, 0, 4, 1, {{5, 5, 1}}, kThree, kOne, kOne, kOne, last));
    check<TypeParam>(make(t, 2, 2, 0, 4, 2, {{5, 5, 1}}, kThree, kOne, kOne, kOne, last));
    check<TypeParam>(make(t, 2, 2, 3, 0, 1, {{5, 5, 1}}, kThree, kOne, kOne, kOne, last));
    check<TypeParam>(make(t, 2, 2, 3, 4, 1, {{2, 2, 1}}, kThree, kOne, kZero, kOne, last));
  }
}

// Channel counts around the widths of tiles and vectors, few channels (a kernel line is one run), many positions.
TYPED_TEST(Conv, Channels) {
  const DType t = dtype_of<TypeParam>;
  for (bool last : {false, true}) {
    for (int64_t c : {1, 3, 8, 13, 24}) {
      check<TypeParam>(make(t, 2, 2, c, 17, 1, {{9, 13, 1}}, kThree, kOne, kOne, kOne, last));
      check<TypeParam>(make(t, 2, 1, c, 25, 1, {{8, 11, 1}}, kThree, kTwo, kOne, kOne, last));
    }
    check<TypeParam>(make(t, 2, 2, 3, 16, 1, {{31, 29, 1}}, {{7, 7, 1}}, kTwo, kThree, kOne, last));
    check<TypeParam>(make(t, 2, 1, 3, 5, 1, {{12, 30, 1}}, {{4, 4, 1}}, kTwo, kOne, kOne, last));
    check<TypeParam>(make(t, 1, 2, 2, 9, 1, {{50, 1, 1}}, {{6, 1, 1}}, kTwo, {{5, 0, 0}}, kOne, last));
    check<TypeParam>(make(t, 2, 1, 200, 30, 1, {{6, 7, 1}}, kThree, kOne, kOne, kOne, last));
    check<TypeParam>(make(t, 2, 1, 24, 24, 3, {{20, 20, 1}}, kThree, kOne, kOne, kTwo, last));
  }
}

// A gradient of the weight beyond 2 MB, whose channels do not divide into blocks.
TYPED_TEST(Conv, LargeWeights) {
  check<TypeParam>(make(dtype_of<TypeParam>, 2, 1, 460, 130, 1, {{3, 3, 1}}, kThree, kOne, kOne, kOne, true));
}

// Tiles that read copied lines (copied_lines.h), for weights' gradients (conv_columns.cpp), and forward and back
// (conv_lines.cpp): blocks of lines, lines and columns outside, strides, gaps between taps, tiles of all heights,
// widths that they do not divide, several images and parts.
TEST(ConvLines, CopiedWithTheirPadding) {
  const auto image = [](int64_t n, int64_t c_in, int64_t c_out, Dims in, Dims kernel, Dims stride, Dims pad,
                        Dims gaps) {
    check<float>(make(DType::f32, 2, n, c_in, c_out, 1, in, kernel, stride, pad, gaps, true));
  };
  image(1, 32, 12, {{12, 12, 1}}, kThree, kOne, kOne, kOne);
  image(2, 32, 8, {{13, 15, 1}}, {{3, 5, 1}}, kOne, {{1, 2, 0}}, kOne);
  image(2, 64, 20, {{23, 25, 1}}, kThree, kTwo, kOne, kOne);
  image(2, 32, 16, {{20, 18, 1}}, kThree, kOne, kTwo, kTwo);
  image(1, 32, 12, {{12, 12, 1}}, kThree, kOne, kThree, kOne);
  image(2, 32, 24, {{26, 12, 1}}, {{1, 3, 1}}, {{2, 1, 1}}, kZero, kOne);
  image(1, 32, 8, {{3, 300, 1}}, {{2, 2, 1}}, kOne, kOne, kOne);
  image(3, 32, 8, {{40, 40, 1}}, kThree, kOne, kOne, kOne);
  image(1, 96, 70, {{9, 17, 1}}, kThree, kOne, kOne, kOne);
  image(1, 32, 128, {{9, 17, 1}}, kThree, kOne, kOne, kOne);
  // Few input channels: values under a row of the kernel are rows of tiles.
  image(2, 3, 32, {{35, 33, 1}}, {{7, 7, 1}}, kTwo, kThree, kOne);
  image(1, 3, 64, {{13, 14, 1}}, kThree, kOne, kOne, kOne);
  image(2, 5, 32, {{20, 18, 1}}, {{2, 3, 1}}, kOne, kZero, {{2, 1, 1}});
  image(1, 4, 32, {{12, 12, 1}}, {{1, 2, 1}}, kOne, kOne, kOne);
  image(1, 16, 96, {{12, 12, 1}}, kThree, kOne, kTwo, kOne);
  image(3, 1, 32, {{50, 45, 1}}, {{5, 7, 1}}, kOne, kThree, kOne);
  check<float>(make(DType::f32, 1, 2, 32, 12, 1, {{200, 1, 1}}, {{5, 1, 1}}, kOne, kTwo, kOne, true));
}

template <class T>
class ConvTiles : public ::testing::Test {
 protected:
  void check(int rank, int64_t n, int64_t c_in, int64_t c_out, int64_t groups, Dims in, Dims kernel, Dims stride,
             Dims pad, Dims gaps, bool last = true) {
    ::deft::test::check<T>(make(dtype_of<T>, rank, n, c_in, c_out, groups, in, kernel, stride, pad, gaps, last));
  }
};
using WordTypes = ::testing::Types<BFloat16, Half>;
TYPED_TEST_SUITE(ConvTiles, WordTypes);

// Rows of AMX tiles are positions of copied lines (conv_amx.cpp): tiles over the ends of lines, whole channels and
// joined taps, residues of a stride, gaps between taps, few columns, weights that pass by in parts, blocks of k,
// planes.
TYPED_TEST(ConvTiles, PositionsOfCopiedLines) {
  this->check(2, 2, 32, 40, 1, {{9, 14, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 64, 16, 1, {{7, 7, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 1, 32, 33, 1, {{13, 16, 1}}, {{3, 5, 1}}, {{3, 2, 1}}, {{1, 2, 0}}, kTwo);
  this->check(2, 2, 96, 20, 2, {{8, 9, 1}}, kThree, kOne, kTwo, kOne);
  this->check(2, 2, 64, 64, 2, {{40, 38, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 10, 96, 512, 1, {{3, 3, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 2, 16, 24, 1, {{9, 10, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 2, 48, 48, 3, {{15, 9, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 2, 24, 20, 1, {{9, 11, 1}}, kThree, kOne, kOne, kOne);  // with zeros behind pixels
  this->check(2, 3, 112, 56, 2, {{10, 9, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 1, 28, 40, 1, {{9, 14, 1}}, {{2, 3, 1}}, {{2, 3, 1}}, kTwo, kTwo);
  this->check(2, 1, 200, 34, 1, {{6, 5, 1}}, {{3, 4, 1}}, kOne, kTwo, {{1, 2, 1}});
  this->check(2, 1, 3, 40, 1, {{90, 80, 1}}, {{7, 7, 1}}, kTwo, kThree, kOne);
  this->check(3, 2, 32, 18, 1, {{4, 6, 7}}, {{1, 3, 3}}, {{2, 1, 1}}, kOne, kOne);
  this->check(3, 2, 5, 18, 1, {{4, 6, 7}}, {{1, 3, 3}}, {{2, 1, 1}}, kOne, kOne);
  this->check(1, 2, 64, 12, 1, {{200, 1, 1}}, {{5, 1, 1}}, kOne, kTwo, kOne);
}
// The same, written past the caches.
TYPED_TEST(Conv, LargeWeightsBeyondTheCaches) {
  const int64_t before = cpu::stream_bytes_per_thread();
  cpu::set_stream_bytes_per_thread(1 << 16);
  check<TypeParam>(make(dtype_of<TypeParam>, 2, 1, 460, 130, 1, {{3, 3, 1}}, kThree, kOne, kOne, kOne, true));
  cpu::set_stream_bytes_per_thread(before);
}

TYPED_TEST(Conv, Depthwise) {
  const DType t = dtype_of<TypeParam>;
  for (bool last : {false, true}) {
    for (int64_t c : {2, 16, 37}) {
      for (Dims stride : {kOne, kTwo, Dims{{1, 3, 1}}}) {
        for (Dims dilation : {kOne, kTwo}) {
          check<TypeParam>(make(t, 2, 2, c, c, c, {{11, 23, 1}}, kThree, stride, kOne, dilation, last));
        }
      }
      check<TypeParam>(make(t, 2, 1, c, c, c, {{9, 40, 1}}, {{5, 7, 1}}, kOne, {{2, 3, 0}}, kOne, last));
      check<TypeParam>(make(t, 1, 2, c, c, c, {{70, 1, 1}}, {{4, 1, 1}}, kOne, {{3, 0, 0}}, kOne, last));
      check<TypeParam>(make(t, 3, 1, c, c, c, {{5, 6, 19}}, kThree, {{1, 2, 2}}, kOne, kOne, last));
    }
  }
}

TYPED_TEST(Conv, EveryTile) {
  using T = TypeParam;
  for (Panel panel : {Panel::f32, Panel::f64, Panel::f16, Panel::bf16}) {
    const bool f64 = std::is_same_v<T, double>, same = panel == cpu::panel_for(dtype_of<T>);
    if (!same && (f64 || panel != Panel::f32)) continue;  // 16-bit floats can also widen to f32 panels
    for (const GemmTile& tile : cpu::gemm_tiles(panel)) {
      for (bool last : {false, true}) {
        ConvCall c = make(dtype_of<T>, 2, 2, 6, 30, 1, {{9, 10, 1}}, kThree, kOne, kOne, kOne, last);
        SCOPED_TRACE(describe(c) + " " + tile.name);
        const auto x = filled<T>(x_size(c), 1), w = filled<T>(w_size(c), 2);
        std::vector<double> sum(static_cast<size_t>(y_size(c))), norm = sum;
        for_each_product(c, [&](int64_t xi, int64_t wi, int64_t yi) {
          sum[yi] += as_double(x[xi]) * as_double(w[wi]), norm[yi] += std::abs(as_double(x[xi]) * as_double(w[wi]));
        });
        c.x = x.data(), c.w = w.data();
        check_fused(c, Guarded<T>(0), sum, norm, Activation::relu, &tile);
      }
    }
  }
}

// A value that is not finite reaches exactly what depends on it.
TYPED_TEST(Conv, NonFiniteValuesStayWhereTheyBelong) {
  using T = TypeParam;
  for (bool last : {false, true}) {
    for (float bad : {NAN, INFINITY}) {
      for (ConvCall c : {make(dtype_of<T>, 2, 2, 3, 5, 1, {{16, 15, 1}}, {{7, 7, 1}}, kTwo, kThree, kOne, last),
                         make(dtype_of<T>, 2, 1, 16, 20, 1, {{7, 9, 1}}, kThree, kOne, kOne, kOne, last),
                         make(dtype_of<T>, 2, 1, 8, 8, 8, {{7, 9, 1}}, kThree, kOne, kOne, kOne, last),
                         make(dtype_of<T>, 2, 2, 32, 16, 8, {{9, 8, 1}}, kThree, kTwo, kOne, kOne, last),
                         make(dtype_of<T>, 2, 1, 16, 3, 1, {{34, 33, 1}}, kThree, kOne, kOne, kOne, last),
                         make(dtype_of<T>, 2, 1, 9, 12, 1, {{6, 6, 1}}, kOne, kOne, kZero, kOne, last)}) {
        SCOPED_TRACE(describe(c));
        auto x = filled<T>(x_size(c), 1), w = filled<T>(w_size(c), 2), dy = filled<T>(y_size(c), 3);
        const int64_t x_at = x_size(c) / 3, y_at = y_size(c) * 7 / 10;
        std::vector<bool> y_bad(static_cast<size_t>(y_size(c))), dx_bad(static_cast<size_t>(x_size(c)));
        std::vector<bool> dw_bad(static_cast<size_t>(w_size(c)));
        for_each_product(c, [&](int64_t xi, int64_t wi, int64_t yi) {
          if (xi == x_at) y_bad[yi] = dw_bad[wi] = true;
          if (yi == y_at) dx_bad[xi] = true;
        });
        const auto expect = [](const Guarded<T>& found, const std::vector<bool>& is_bad, const char* what) {
          for (int64_t i = 0; i < found.size(); ++i) {
            EXPECT_EQ(!std::isfinite(as_double(found[i])), is_bad[static_cast<size_t>(i)]) << what << " at " << i;
          }
        };
        Guarded<T> y(y_size(c)), dx(x_size(c)), dw(w_size(c));
        const T good_x = x[x_at];
        x[x_at] = T(bad);
        c.x = x.data(), c.w = w.data(), c.y = y.data();
        cpu::conv_forward(c);
        expect(y, y_bad, "y");
        if (const auto packed = pack_conv_weight(c)) {
          ConvCall call = c;
          call.packed = packed.get(), call.w = nullptr;
          cpu::conv_forward(call);
          expect(y, y_bad, "y of packed weights");
        }
        y = filled<T>(y_size(c), 5);
        ConvCall onto = c;
        onto.y = y.data(), onto.residual = y.data();
        cpu::conv_forward(onto);
        expect(y, y_bad, "y that is its residual");
        cpu::conv_backward_weight(c, dy.data(), dw.data());
        expect(dw, dw_bad, "dw");
        x[x_at] = good_x, dy[y_at] = T(bad);
        cpu::conv_backward_input(c, dy.data(), dx.data());
        expect(dx, dx_bad, "dx");
      }
    }
  }
}

// ---- Bytes.

template <class X>
struct ByteCase {
  ConvCall c;
  int32_t zero;
  Guarded<X> x;
  Guarded<int8_t> w;
  std::vector<int64_t> sum;
  ByteCase(const ConvCall& call, int32_t x_zero)
      : c(call),
        zero(x_zero),
        x(filled<X>(x_size(c), 1)),
        w(filled<int8_t>(w_size(c), 2)),
        sum(static_cast<size_t>(y_size(c))) {
    c.x = x.data(), c.w = w.data();
    for_each_product(c, [&](int64_t xi, int64_t wi, int64_t yi) {
      sum[yi] += (static_cast<int64_t>(x[xi]) - zero) * static_cast<int64_t>(w[wi]);
    });
  }
  template <class Y>
  Guarded<Y> run(ConvQuant q, const std::function<void(ConvCall&)>& more = {}) const {
    q.x_zero = zero, q.y_dtype = dtype_of<Y>;
    return run_threads(filled<Y>(y_size(c), 6), [&](Y* to) {
      ConvCall call = c;
      call.y = to;
      if (more) more(call);
      cpu::conv_forward_int8(call, q);
    });
  }
};

template <class X>
void check_exact(const ByteCase<X>& b, const GemmTile* tile) {
  const auto packed = pack_conv_weight(b.c, tile);
  for (bool use_packed : {false, true}) {
    const auto y =
        b.template run<int32_t>({}, [&](ConvCall& call) { call.packed = use_packed ? packed.get() : nullptr; });
    for (int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], b.sum[static_cast<size_t>(i)]) << "at " << i;
  }
}

template <class X, class Y>
void check_quantized(const ByteCase<X>& b) {
  std::vector<float> scale(static_cast<size_t>(b.c.c_out)), bias = scale;
  for (size_t i = 0; i < scale.size(); ++i) {
    scale[i] = 1e-3f * static_cast<float>(i + 1), bias[i] = 0.1f * static_cast<float>(i) - 1;
  }
  ConvQuant q;
  q.scale = scale.data(), q.y_scale = 0.3f, q.y_zero = std::is_same_v<Y, uint8_t> ? 100 : -5;
  const auto y = b.template run<Y>(q, [&](ConvCall& call) {
    call.bias = bias.data();
    call.activation = Activation::relu;
  });
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto channel = static_cast<size_t>(y_channel(b.c, i));
    const double exact = static_cast<double>(b.sum[static_cast<size_t>(i)]) * static_cast<double>(scale[channel]);
    const double value = std::max(0.0, exact + static_cast<double>(bias[channel]));
    if constexpr (std::is_integral_v<Y>) {
      using L = std::numeric_limits<Y>;
      const double steps = value / static_cast<double>(q.y_scale) + q.y_zero;
      expect_near(as_double(y[i]), std::clamp(steps, double(L::min()), double(L::max())), 0.5 + 1e-3, "quantised", i);
    } else {
      expect_near(as_double(y[i]), value, epsilon_of(dtype_of<Y>) * value + 1e-6 * (std::abs(exact) + 1), "value", i);
    }
  }
}

template <class X>
void check_bytes(const ConvCall& c, int32_t zero) {
  SCOPED_TRACE(describe(c));
  const ByteCase<X> b(c, zero);
  for (Panel panel : {Panel::s8, Panel::u8s8}) {
    for (const GemmTile& tile : cpu::gemm_tiles(panel)) {
      SCOPED_TRACE(tile.name);
      check_exact(b, &tile);
    }
  }
  check_quantized<X, float>(b);
  check_quantized<X, BFloat16>(b);
  check_quantized<X, int8_t>(b);
  check_quantized<X, uint8_t>(b);
}

// Few channels without packing (conv_groups.cpp, conv_groups_weight.cpp, conv_depthwise_planes.cpp), forward and both
// gradients, at every level of instructions: bands of lines, ends of lines, lines of one position, strides, gaps,
// groups that share vectors and groups of several, partial sums.
void check_groups(bool last) {
  const auto image = [&](int64_t n, int64_t c_in, int64_t c_out, int64_t groups, Dims in, Dims kernel, Dims stride,
                         Dims pad, Dims gaps) {
    check<float>(make(DType::f32, 2, n, c_in, c_out, groups, in, kernel, stride, pad, gaps, last));
  };
  for (int64_t width : {1, 7, 15, 16, 17, 35, 66}) {
    image(2, 3, 3, 3, {{5, width, 1}}, kThree, kOne, kOne, kOne);
    image(1, 8, 8, 2, {{4, width, 1}}, kThree, kOne, kOne, kOne);
    image(1, 6, 6, 6, {{7, width, 1}}, kThree, kTwo, kOne, kOne);
  }
  for (int64_t channels : {1, 2, 3, 5, 8, 9, 16, 24}) {
    image(2, 3 * channels, 3 * channels, 3, {{6, 9, 1}}, kThree, kOne, kOne, kOne);
    image(1, 5 * channels, 10 * channels, 5, {{5, 11, 1}}, {{2, 3, 1}}, kTwo, kOne, kOne);
    image(1, 2 * channels, 6, 2, {{5, 8, 1}}, {{3, 1, 1}}, kOne, kTwo, {{1, 2, 1}});
  }
  for (Dims stride : {kOne, kTwo, kThree, Dims{{1, 3, 1}}, Dims{{3, 2, 1}}}) {
    for (Dims gaps : {kOne, kTwo, Dims{{3, 1, 1}}, Dims{{1, 3, 1}}}) {
      image(1, 4, 4, 4, {{13, 22, 1}}, kThree, stride, {{2, 1, 0}}, gaps);
      image(1, 8, 12, 4, {{11, 20, 1}}, {{3, 2, 1}}, stride, {{1, 3, 0}}, gaps);
      image(1, 32, 34, 2, {{7, 10, 1}}, {{2, 3, 1}}, stride, kOne, gaps);
    }
  }
  image(1, 2, 2, 2, {{60, 290, 1}}, kThree, kOne, kOne, kOne);             // several bands
  image(1, 32, 32, 2, {{20, 60, 1}}, kThree, kOne, kOne, kOne);            // the same of many channels
  image(1, 3, 3, 3, {{7, 7, 1}}, {{15, 15, 1}}, kOne, {{7, 7, 0}}, kOne);  // lines far apart
  image(1, 4, 4, 4, {{7, 7, 1}}, {{7, 7, 1}}, kOne, kZero, kOne);          // one position
  image(2, 6, 6, 3, {{3, 4, 1}}, kThree, kOne, {{5, 6, 0}}, kOne);         // lines outside
  image(3, 36, 36, 9, {{30, 49, 1}}, {{2, 3, 1}}, kOne, kOne, kOne);       // partial sums of weights, blocks for lanes
  image(2, 40, 56, 8, {{47, 45, 1}}, kOne, kOne, kZero, kOne);             // the same of one tap
  image(2, 3, 3, 3, {{9, 9, 1}}, {{5, 5, 1}}, kOne, kTwo, kOne);           // more taps than are summed at once
  check<float>(make(DType::f32, 1, 2, 6, 12, 3, {{77, 1, 1}}, {{5, 1, 1}}, kTwo, kTwo, kTwo, last));
  for (Dims kernel : {kThree, Dims{{1, 3, 3}}}) {
    check<float>(make(DType::f32, 3, 2, 4, 8, 2, {{5, 6, 7}}, kernel, {{2, 1, 2}}, kOne, kOne, last));
    check<float>(make(DType::f32, 3, 2, 3, 3, 3, {{5, 6, 17}}, kernel, {{1, 2, 1}}, {{2, 1, 1}}, {{2, 1, 1}}, last));
  }
}
TEST(ConvGroups, ChannelsFirst) {
  for_each_level([] { check_groups(false); });
}
TEST(ConvGroups, ChannelsLast) {
  for_each_level([] { check_groups(true); });
}

// What lies between the lines of a copy takes no part, whatever it is times zero.
void check_infinite_edges() {
  ConvCall c = make(DType::f32, 2, 2, 2, 2, 2, {{5, 6, 1}}, kThree, kOne, kOne, kOne, false);
  auto x = filled<float>(x_size(c), 1);
  const auto dy = filled<float>(y_size(c), 2);
  for (int64_t i = 0; i < x.size(); i += c.in[1]) x.data()[i] = std::numeric_limits<float>::infinity();
  std::vector<double> sum(static_cast<size_t>(w_size(c))), norm = sum;
  for_each_product(c, [&](int64_t xi, int64_t wi, int64_t yi) {
    sum[wi] += as_double(x[xi]) * as_double(dy[yi]), norm[wi] += std::abs(as_double(x[xi]) * as_double(dy[yi]));
  });
  c.x = x.data();
  auto dw = filled<float>(w_size(c), 3);
  cpu::conv_backward_weight(c, dy.data(), dw.data());
  for (int64_t i = 0; i < dw.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(std::isfinite(dw[i]), i % 3 == 2) << i;  // the last column of the kernel reads no first pixel
    if (std::isfinite(sum[at]))
      expect_near(as_double(dw[i]), sum[at], tolerance_of<float>(sum[at], norm[at], 60), "", i);
  }
}
TEST(ConvGroups, InfiniteEdges) { for_each_level(check_infinite_edges); }

TEST(Conv, Bytes) {
  for (bool last : {true, false}) {
    for (DType t : {DType::i8, DType::u8}) {
      for (const ConvCall& c : {make(t, 2, 2, 5, 13, 1, {{7, 9, 1}}, kThree, kOne, kOne, kOne, last),
                                make(t, 2, 1, 3, 16, 1, {{17, 15, 1}}, {{7, 7, 1}}, kTwo, kThree, kOne, last),
                                make(t, 2, 2, 16, 24, 1, {{6, 5, 1}}, kThree, kTwo, kTwo, kTwo, last),
                                make(t, 2, 3, 12, 8, 4, {{5, 5, 1}}, kThree, kOne, kOne, kOne, last),
                                make(t, 2, 1, 6, 6, 6, {{5, 7, 1}}, kThree, kOne, kOne, kOne, last),
                                make(t, 2, 2, 40, 12, 1, {{5, 5, 1}}, kOne, kOne, kZero, kOne, last),
                                make(t, 1, 2, 9, 5, 1, {{30, 1, 1}}, {{5, 1, 1}}, kTwo, kTwo, kOne, last),
                                make(t, 3, 1, 4, 5, 1, {{4, 5, 6}}, kThree, kOne, kOne, kOne, last)}) {
        t == DType::i8 ? check_bytes<int8_t>(c, -7) : check_bytes<uint8_t>(c, 119);
      }
    }
  }
}

// Groups that share tiles (conv_merged.cpp): all of a tile, less than that, as many as divide their number, more
// channels out than in.
TYPED_TEST(ConvTiles, GroupsTogether) {
  this->check(2, 2, 32, 32, 8, {{9, 14, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 1, 64, 64, 4, {{7, 8, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 2, 80, 40, 10, {{8, 9, 1}}, {{2, 3, 1}}, {{2, 1, 1}}, kOne, kTwo);
  this->check(2, 1, 12, 36, 6, {{11, 6, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 1, 32, 64, 32, {{6, 7, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 24, 24, 2, {{6, 9, 1}}, kThree, kOne, kOne, kOne, false);
  this->check(2, 3, 64, 64, 16, {{64, 66, 1}}, kThree, kOne, kOne, kOne);  // in parts
  this->check(1, 2, 16, 16, 8, {{40, 1, 1}}, {{5, 1, 1}}, kOne, kTwo, kOne);
}

// Whatever the activation makes of a NaN, the other groups of its tile do not see it.
TYPED_TEST(ConvTiles, NanStaysInItsGroup) {
  using T = TypeParam;
  ConvCall c = make(dtype_of<T>, 2, 1, 32, 32, 8, {{7, 9, 1}}, kThree, kOne, kOne, kOne, true);
  auto x = filled<T>(x_size(c), 1);
  const auto w = filled<T>(w_size(c), 2);
  for (int a = 0; a < 7; ++a) {
    c.x = x.data(), c.w = w.data(), c.activation = static_cast<Activation>(a);
    const T good = x[5];
    Guarded<T> clean(y_size(c)), found(y_size(c));
    c.y = clean.data();
    cpu::conv_forward(c);
    x[5] = T(NAN), c.y = found.data();
    cpu::conv_forward(c);
    x[5] = good;
    for (int64_t i = 0; i < y_size(c); ++i) {
      if (i % 32 / 4 == 1) continue;  // the group of channel 5
      EXPECT_EQ(as_double(found[i]), as_double(clean[i])) << "activation " << a << " at " << i;
    }
  }
}

// The weights' gradients (conv_amx_weight.cpp): slots of several images and parts of one, residues, padding that two
// lines share and more of it, copies by tap, blocks of channels.
TYPED_TEST(ConvTiles, GradientsOfWeights) {
  this->check(2, 24, 32, 40, 1, {{7, 7, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 20, 17, 1, {{21, 23, 1}}, kThree, kOne, kZero, kOne);
  this->check(2, 5, 64, 16, 2, {{30, 29, 1}}, kThree, kTwo, kOne, kOne);
  this->check(2, 2, 33, 12, 1, {{50, 61, 1}}, {{3, 5, 1}}, {{2, 3, 1}}, {{2, 4, 0}}, kTwo);
  this->check(2, 2, 16, 33, 1, {{75, 80, 1}}, kThree, kOne, kThree, kOne);
  this->check(2, 2, 16, 9, 1, {{75, 80, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 3, 20, 1, {{75, 80, 1}}, {{7, 7, 1}}, kTwo, kThree, kOne);
  this->check(2, 2, 10, 20, 1, {{40, 33, 1}}, {{2, 5, 1}}, {{1, 3, 1}}, {{1, 5, 0}}, {{3, 2, 1}});
  this->check(2, 1, 4, 8, 1, {{3, 1200, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 9, 3, 2, 1, {{90, 90, 1}}, kThree, kOne, kOne, kOne);  // in parts
  this->check(2, 8, 16, 4, 1, {{60, 60, 1}}, kThree, kOne, kOne, kOne);
  this->check(2, 3, 20, 40, 1, {{41, 40, 1}}, kOne, kOne, kZero, kOne);
  this->check(2, 3, 20, 40, 1, {{81, 80, 1}}, kOne, kTwo, kZero, kOne);
  this->check(3, 3, 20, 18, 1, {{9, 16, 15}}, {{1, 3, 3}}, {{2, 1, 1}}, kOne, kOne);
  this->check(2, 3, 24, 24, 1, {{30, 30, 1}}, kThree, kOne, kOne, kOne, false);
}
// Tiles multiply what lies at the ends of lines by zero, which may not show.
TYPED_TEST(ConvTiles, InfiniteEdges) {
  ConvCall c = make(dtype_of<TypeParam>, 2, 1, 16, 3, 1, {{34, 33, 1}}, kThree, kOne, kOne, kOne, true);
  auto x = filled<TypeParam>(x_size(c), 1);
  const auto dy = filled<TypeParam>(y_size(c), 2);
  for (int64_t i = 0; i < x.size(); i += c.in[1] * c.c_in) x.data()[i] = TypeParam(INFINITY);  // of channel 0
  c.x = x.data();
  auto dw = filled<TypeParam>(w_size(c), 3);
  cpu::conv_backward_weight(c, dy.data(), dw.data());
  for (int64_t i = 0; i < dw.size(); ++i) {
    const bool reads_them = i / 9 % c.c_in == 0 && i % 3 != 2;  // the last column of the kernel reads no first pixel
    EXPECT_EQ(std::isfinite(as_double(dw[i])), !reads_them) << i;
  }
}
TEST(ConvByteTiles, PositionsOfCopiedLines) {
  for (DType t : {DType::i8, DType::u8}) {
    for (const ConvCall& c : {make(t, 2, 2, 64, 40, 1, {{7, 9, 1}}, kThree, kOne, kOne, kOne, true),
                              make(t, 2, 2, 128, 16, 2, {{9, 11, 1}}, kThree, kTwo, kOne, kOne, true),
                              make(t, 2, 9, 64, 800, 1, {{3, 3, 1}}, {{4, 4, 1}}, kOne, kTwo, kOne, true),
                              make(t, 2, 2, 24, 33, 1, {{9, 8, 1}}, kThree, kOne, kOne, kTwo, true),
                              make(t, 2, 2, 48, 24, 12, {{9, 8, 1}}, kThree, kTwo, kOne, kOne, true),
                              make(t, 2, 2, 56, 24, 1, {{9, 8, 1}}, kThree, kTwo, kOne, kOne, true),
                              make(t, 3, 2, 64, 18, 1, {{4, 6, 7}}, {{1, 3, 3}}, {{2, 1, 1}}, kOne, kOne, true)}) {
      t == DType::i8 ? check_bytes<int8_t>(c, -7) : check_bytes<uint8_t>(c, 119);
    }
  }
}

// ---- Winograd.

struct WithWinograd {
  WithWinograd() { set_conv_winograd(true); }
  ~WithWinograd() { set_conv_winograd(false); }
};

// Relative to the largest sum of absolute products: a tile's error does not know which of its results are small.
double largest_error(const Guarded<float>& y, const std::vector<double>& sum, const std::vector<double>& norm) {
  double most = 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    const double error = std::abs(as_double(y[i]) - sum[static_cast<size_t>(i)]);
    if (!(error <= most)) most = error;
  }
  return most / *std::max_element(norm.begin(), norm.end());
}

TEST(Conv, Winograd) {
  WithWinograd on;
  for (const ConvCall& shape : {make(DType::f32, 2, 1, 64, 48, 1, {{28, 28, 1}}, kThree, kOne, kOne, kOne, true),
                                make(DType::f32, 2, 3, 17, 19, 1, {{13, 18, 1}}, kThree, kOne, kOne, kOne, true),
                                make(DType::f32, 2, 2, 20, 33, 1, {{17, 14, 1}}, kThree, kOne, kZero, kOne, true),
                                make(DType::f32, 2, 2, 16, 16, 1, {{9, 8, 1}}, kThree, kOne, kTwo, kOne, true)}) {
    ConvCall c = shape;
    SCOPED_TRACE(describe(c));
    const auto x = filled<float>(x_size(c), 1), w = filled<float>(w_size(c), 2), bias = filled<float>(c.c_out, 4);
    const auto residual = filled<float>(y_size(c), 5);
    std::vector<double> sum(static_cast<size_t>(y_size(c))), norm = sum, fused_sum = sum;
    for (int64_t i = 0; i < y_size(c); ++i) sum[i] = as_double(bias[y_channel(c, i)]);
    for_each_product(c, [&](int64_t xi, int64_t wi, int64_t yi) {
      sum[yi] += as_double(x[xi]) * as_double(w[wi]), norm[yi] += std::abs(as_double(x[xi]) * as_double(w[wi]));
    });
    for (int64_t i = 0; i < y_size(c); ++i) fused_sum[i] = std::max(0.0, sum[i] + as_double(residual[i]));
    c.x = x.data(), c.w = w.data(), c.bias = bias.data();
    const auto run = [&](const cpu::ConvWeight* packed, bool fused) {
      return run_threads(filled<float>(y_size(c), 6), [&](float* to) {
        ConvCall call = c;
        call.y = to, call.packed = packed;
        if (fused) call.residual = residual.data(), call.activation = Activation::relu;
        cpu::conv_forward(call);
      });
    };
    const auto y = run(nullptr, false);
    EXPECT_LE(largest_error(y, sum, norm), 2e-6);
    const auto packed = pack_conv_weight(c);
    EXPECT_TRUE(packed->winograd);
    EXPECT_TRUE(run(packed.get(), false).same_bits(y));
    EXPECT_LE(largest_error(run(packed.get(), true), fused_sum, norm), 2e-6);
    set_conv_winograd(false);
    const auto direct = run(nullptr, false);
    set_conv_winograd(true);
    EXPECT_FALSE(direct.same_bits(y)) << "the switch does nothing";
    EXPECT_LE(largest_error(direct, sum, norm), 3e-7);
  }
}

TEST(Conv, PackedWeightsOfAnotherCallAreRefused) {
  ConvCall c = make(DType::f32, 2, 1, 16, 16, 1, {{16, 16, 1}}, kThree, kOne, kOne, kOne, true);
  const auto w = filled<float>(w_size(c), 1), x = filled<float>(x_size(c), 2);
  auto y = filled<float>(y_size(c), 3);
  c.w = w.data(), c.x = x.data(), c.y = y.data();
  const auto packed = pack_conv_weight(c);
  ConvCall other = c;
  other.packed = packed.get(), other.kernel[0] = 1;
  EXPECT_THROW(cpu::conv_forward(other), ValueError);
  ConvCall point = make(DType::f32, 2, 1, 16, 16, 1, {{16, 16, 1}}, kOne, kOne, kZero, kOne, true);
  point.w = w.data(), point.x = x.data(), point.y = y.data();
  const auto of_pixels = pack_conv_weight(point);
  point.packed = of_pixels.get(), point.channels_last = false;
  EXPECT_THROW(cpu::conv_forward(point), ValueError);
  other = c, other.packed = packed.get(), other.c_out = 8;
  EXPECT_THROW(cpu::conv_forward(other), ValueError);
  WithWinograd on;
  const auto tiles = pack_conv_weight(c);
  other = make(DType::f32, 2, 1, 16, 16, 1, {{16, 16, 1}}, kThree, kTwo, kOne, kOne, true);
  other.x = x.data(), other.y = y.data(), other.packed = tiles.get();
  EXPECT_THROW(cpu::conv_forward(other), ValueError);
}

TEST(Conv, BytesOfBadTypesAreRefused) {
  ConvCall c = make(DType::i8, 2, 1, 1, 1, 1, kThree, kOne, kOne, kZero, kOne, false);
  ConvQuant q;
  q.x_zero = 200;
  EXPECT_THROW(cpu::conv_forward_int8(c, q), ValueError);
  q.x_zero = 0, q.y_dtype = DType::f64;
  EXPECT_THROW(cpu::conv_forward_int8(c, q), DTypeError);
  const float scale = 1;
  q.y_dtype = DType::i32, q.scale = &scale;
  EXPECT_THROW(cpu::conv_forward_int8(c, q), DTypeError);
  c.dtype = DType::f32;
  EXPECT_THROW(cpu::conv_forward_int8(c, {}), DTypeError);
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
