#include "kernels/cpu/conv/conv.h"

#include <functional>

#include "base/error.h"
#include "kernels/conv_util.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "runtime/numerics.h"

namespace deft::test {
namespace {

template <class T>
class Conv : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Half>;
TYPED_TEST_SUITE(Conv, Types);

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

// Most positions of the image lie under no tap of any window.
TYPED_TEST(Conv, StridesOfHundreds) {
  const DType t = dtype_of<TypeParam>;
  for (bool last : {false, true}) {
    for (int64_t groups : {1, 2, 4}) {
      check<TypeParam>(
          make(t, 2, 1, 4, 4, groups, {{400, 300, 1}}, {{2, 3, 1}}, {{250, 170, 1}}, kOne, {{3, 85, 1}}, last));
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

// More than is copied at a time (conv_relayout.cpp): two samples of f32, five of 16 bits, and groups as f32.
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

// Channel counts around the widths of tiles and vectors, few channels (a kernel row is one run), many positions.
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

// Tiles that read padded rows (padded_lines.h), for weight gradients (conv_weight_tn.cpp), and forward and back
// (conv_lines.cpp): blocks of rows, rows and columns in the padding, strides, gaps between taps, tiles of all heights,
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
  // Few input channels: values under a kernel row are rows of tiles.
  image(2, 3, 32, {{35, 33, 1}}, {{7, 7, 1}}, kTwo, kThree, kOne);
  image(1, 3, 64, {{13, 14, 1}}, kThree, kOne, kOne, kOne);
  image(2, 5, 32, {{20, 18, 1}}, {{2, 3, 1}}, kOne, kZero, {{2, 1, 1}});
  image(1, 4, 32, {{12, 12, 1}}, {{1, 2, 1}}, kOne, kOne, kOne);
  image(1, 16, 96, {{12, 12, 1}}, kThree, kOne, kTwo, kOne);
  image(3, 1, 32, {{50, 45, 1}}, {{5, 7, 1}}, kOne, kThree, kOne);
  check<float>(make(DType::f32, 1, 2, 32, 12, 1, {{200, 1, 1}}, {{5, 1, 1}}, kOne, kTwo, kOne, true));
}

// The same with streaming stores.
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

// A value that is not finite reaches exactly the results that depend on it.
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

// Few channels without packing (conv_groups.cpp, conv_groups_weight.cpp, conv_depthwise_nchw.cpp), forward and both
// gradients, at every level of instructions: bands of rows, ends of rows, rows of one position, strides, gaps, groups
// that share vectors and groups of several, partial sums.
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
  image(1, 3, 3, 3, {{7, 7, 1}}, {{15, 15, 1}}, kOne, {{7, 7, 0}}, kOne);  // rows far apart
  image(1, 4, 4, 4, {{7, 7, 1}}, {{7, 7, 1}}, kOne, kZero, kOne);          // one position
  image(2, 6, 6, 3, {{3, 4, 1}}, kThree, kOne, {{5, 6, 0}}, kOne);         // rows in the padding
  image(3, 36, 36, 9, {{30, 49, 1}}, {{2, 3, 1}}, kOne, kOne, kOne);  // partial sums of weights, blocks for threads
  image(2, 40, 56, 8, {{47, 45, 1}}, kOne, kOne, kZero, kOne);        // the same of one tap
  image(2, 3, 3, 3, {{9, 9, 1}}, {{5, 5, 1}}, kOne, kTwo, kOne);      // more taps than are summed at once
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

// Values between the rows of a copy have no effect, even where they are multiplied by zero.
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

TEST(ConvByteTiles, PositionsOfPaddedRows) {
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
