// Shared by the tests of convolution: calls, the expected sums, and a check of all three passes.
#pragma once

#include <string>
#include <vector>

#include "kernels/cpu/conv/conv.h"
#include "kernels/dense_util.h"
#include "kernels/engine_util.h"

namespace deft::test {

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

inline int64_t product(const int64_t* v, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; ++i) p *= v[i];
  return p;
}

inline ConvCall make(DType t, int spatial, int64_t n, int64_t c_in, int64_t c_out, int64_t groups, Dims in, Dims kernel,
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

// Where each tap of each position of the output reads its input; -1: outside.
inline std::vector<int64_t> places_read(const ConvCall& c) {
  const int64_t s = c.spatial, out = product(c.out, s), taps = product(c.kernel, s);
  std::vector<int64_t> places;
  places.reserve(static_cast<size_t>(out * taps));
  for (int64_t q = 0; q < out; ++q) {
    for (int64_t t = 0; t < taps; ++t) {
      int64_t place = 0, qr = q, tr = t, scale = 1;
      bool inside = true;
      for (int64_t d = s - 1; d >= 0; --d) {
        const int64_t at = qr % c.out[d] * c.stride[d] - c.pad[d] + tr % c.kernel[d] * c.dilation[d];
        inside = inside && at >= 0 && at < c.in[d];
        place += at * scale;
        scale *= c.in[d];
        qr /= c.out[d];
        tr /= c.kernel[d];
      }
      places.push_back(inside ? place : -1);
    }
  }
  return places;
}

// Calls f(x index, w index, y index) for every multiplication of the convolution.
template <class F>
void for_each_product(const ConvCall& c, F f) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, s = c.spatial;
  const int64_t in = product(c.in, s), out = product(c.out, s), taps = product(c.kernel, s);
  const std::vector<int64_t> places = places_read(c);
  for (int64_t n = 0; n < c.n; ++n) {
    for (int64_t o = 0; o < c.c_out; ++o) {
      for (int64_t i = 0; i < cg; ++i) {
        const int64_t channel = o / og * cg + i;
        const int64_t* place = places.data();
        for (int64_t q = 0; q < out; ++q) {
          for (int64_t t = 0; t < taps; ++t) {
            const int64_t pos = *place++;
            if (pos < 0) continue;
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

inline std::string describe(const ConvCall& c) {
  ::testing::Message m;
  m << name_of(c.dtype) << " " << c.spatial << "d n" << c.n << " c" << c.c_in << "->" << c.c_out << "/" << c.groups
    << " in " << c.in[0] << "," << c.in[1] << " k " << c.kernel[0] << "," << c.kernel[1] << " s " << c.stride[0]
    << " p " << c.pad[0] << " d " << c.dilation[0] << (c.channels_last ? " last" : " first");
  return m.GetString();
}
inline int64_t x_size(const ConvCall& c) { return c.n * c.c_in * product(c.in, c.spatial); }
inline int64_t y_size(const ConvCall& c) { return c.n * c.c_out * product(c.out, c.spatial); }
inline int64_t w_size(const ConvCall& c) { return c.c_out * (c.c_in / c.groups) * product(c.kernel, c.spatial); }
inline int64_t terms_of(const ConvCall& c) { return c.c_in / c.groups * product(c.kernel, c.spatial); }
inline int64_t y_channel(const ConvCall& c, int64_t i) {
  return c.channels_last ? i % c.c_out : i / product(c.out, c.spatial) % c.c_out;
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

inline Activation next_activation() {
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

inline constexpr Dims kOne{{1, 1, 1}}, kTwo{{2, 2, 2}}, kThree{{3, 3, 3}}, kZero{{0, 0, 0}};

}  // namespace deft::test
