// Gradient of an input of few channels, such as an RGB image: a GEMM computes what each output position adds to
// everything under its window (col2im), and contiguous rows of that are added to dx. Tiles are as wide as all taps and
// channels; a convolution over dy would fill them with the channels alone (7 x 7 x 3 of ResNet-50: 3.5 instead of 12
// ms).
#include "kernels/cpu/conv/conv_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kBandBytes = 1 << 20;  // of GEMM results at a time

// The first output position along a dim whose window of `taps` reaches `at` or beyond, and the last one that begins at
// or before it.
int64_t first_reaching(int64_t at, int64_t taps, int64_t stride, int64_t pad) {
  return std::max<int64_t>(0, at + pad - taps + stride) / stride;
}
int64_t last_beginning(int64_t at, int64_t stride, int64_t pad, int64_t count) {
  return std::min(count - 1, (at + pad) / stride);
}

template <class T>
class Scatter {
  using S = accumulate_t<T>;

 public:
  Scatter(const ConvCall& c, const T* dy, T* dx)
      : c_(c),
        dy_(dy),
        dx_(dx),
        line_(c.in[2] * c.c_in),
        run_(c.kernel[2] * c.c_in),
        columns_(c.kernel[1] * run_),
        reach_((c.kernel[1] - 1) * c.dilation[1] + 1) {
    const int64_t rows = std::max<int64_t>(1, kBandBytes / (c.out[2] * columns_ * static_cast<int64_t>(sizeof(S))));
    height_ = std::clamp<int64_t>(rows * c.stride[1] - reach_ + 1, std::min(reach_, c.in[1]), c.in[1]);
    pack_weight();
  }

  // Each band of rows is summed by one thread.
  void run() const {
    const int64_t bands = (c_.in[1] + height_ - 1) / height_;
    parallel_for(0, c_.n * c_.in[0] * bands, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t y = i % bands * height_;
        add_band(i / bands / c_.in[0], i / bands % c_.in[0], y, std::min(c_.in[1], y + height_));
      }
    });
  }

 private:
  // One matrix for each z of the kernel: [output channel][y, x, input channel].
  void pack_weight() {
    const int64_t plane = c_.kernel[1] * c_.kernel[2], taps = c_.kernel[0] * plane;
    const GemmTile& tile = best_tile(panel_for(c_.dtype), 0, columns_);
    Workspace<T> ordered(c_.c_out * columns_);
    for (int64_t z = 0; z < c_.kernel[0]; ++z) {
      T* to = ordered.data();
      for (int64_t o = 0; o < c_.c_out; ++o) {
        const T* from = static_cast<const T*>(c_.w) + o * c_.c_in * taps + z * plane;
        for (int64_t t = 0; t < plane; ++t) {
          for (int64_t j = 0; j < c_.c_in; ++j) *to++ = from[j * taps + t];
        }
      }
      const StridedSource source({c_.dtype, ordered.data(), 1, columns_});
      planes_.push_back(std::make_unique<PackedMatrix>(tile, Side::b, source, columns_, c_.c_out, false));
    }
  }

  void add_band(int64_t n, int64_t z, int64_t y0, int64_t y1) const {
    const Workspace<S> sums((y1 - y0) * line_);
    const T* bias = static_cast<const T*>(c_.bias);
    for (int64_t i = 0; i < (y1 - y0) * line_; ++i) sums[i] = bias ? static_cast<S>(bias[i % c_.c_in]) : S(0);
    for (int64_t tap = 0; tap < c_.kernel[0]; ++tap) {
      const int64_t at = z + c_.pad[0] - tap * c_.dilation[0];
      if (at >= 0 && at % c_.stride[0] == 0 && at / c_.stride[0] < c_.out[0]) {
        add_plane(n * c_.out[0] + at / c_.stride[0], *planes_[static_cast<size_t>(tap)], y0, y1, sums.data());
      }
    }
    T* to = dx_ + ((n * c_.in[0] + z) * c_.in[1] + y0) * line_;
    for (int64_t i = 0; i < (y1 - y0) * line_; ++i) to[i] = T(sums[i]);
  }

  // Adds the contribution of a plane of dy.
  void add_plane(int64_t plane, const PackedMatrix& weight, int64_t y0, int64_t y1, S* sums) const {
    const int64_t first = first_reaching(y0, reach_, c_.stride[1], c_.pad[1]);
    const int64_t last = last_beginning(y1 - 1, c_.stride[1], c_.pad[1], c_.out[1]);
    if (first > last) return;
    const int64_t positions = (last - first + 1) * c_.out[2];
    const Workspace<S> added(positions * columns_);
    const StridedSource rows({c_.dtype, dy_ + (plane * c_.out[1] + first) * c_.out[2] * c_.c_out, c_.c_out, 1});
    BlockedGemm p;
    p.m = positions, p.n = columns_, p.k = c_.c_out;
    p.a = &rows, p.packed_b = &weight, p.tile = &tile_for_rows(weight.tile(), positions);
    p.c = added.data(), p.c_dtype = dtype_of<S>, p.c_row = columns_;
    run_blocked_gemm(p);
    for (int64_t y = first; y <= last; ++y) {
      for (int64_t tap = 0; tap < c_.kernel[1]; ++tap) {
        const int64_t at = y * c_.stride[1] - c_.pad[1] + tap * c_.dilation[1];
        if (at < y0 || at >= y1) continue;
        add_row(added.data() + (y - first) * c_.out[2] * columns_ + tap * run_, sums + (at - y0) * line_);
      }
    }
  }

  // Adds a row of dy, through one row of the kernel. Overlapping windows are added alternately: loads from what was
  // just stored in other vectors are slow (the 7 x 7 x 3: 4.0 ms without alternating, 3.5 with it).
  void add_row(const S* from, S* to) const {
    const int64_t apart = (c_.kernel[2] + c_.stride[2] - 1) / c_.stride[2];
    for (int64_t first = 0; first < apart; ++first) {
      for (int64_t x = first; x < c_.out[2]; x += apart) {
        const int64_t begin = (x * c_.stride[2] - c_.pad[2]) * c_.c_in;
        const int64_t i0 = std::max<int64_t>(0, -begin), i1 = std::min(run_, line_ - begin);
        const S* added = from + x * columns_;
        S* sums = to + begin;
        for (int64_t i = i0; i < i1; ++i) sums[i] += added[i];
      }
    }
  }

  const ConvCall& c_;
  const T* dy_;
  T* dx_;
  int64_t line_, run_, columns_;  // values of a row of dx, of a kernel row, of a plane of the kernel
  int64_t reach_, height_;        // rows under a window; rows of a band
  std::vector<std::unique_ptr<PackedMatrix>> planes_;
};

}  // namespace

bool scatter_pays(const ConvCall& c) {
  if (!c.channels_last || c.groups > 1 || c.dilation[2] != 1) return false;
  // Channels that fill a tile gain nothing (512 of 7 x 7 positions, 3 x 3 taps: 4.4 ms gathered, 8.1 scattered).
  const int64_t nr = gemm_tiles(panel_for(c.dtype))[0].nr;
  if (c.c_in >= nr) return false;
  const auto padded = [&](int64_t columns) { return static_cast<double>((columns + nr - 1) / nr * nr); };
  const auto channels = static_cast<double>(c.c_out), planes = static_cast<double>(c.kernel[0]);
  const int64_t columns = c.kernel[1] * c.kernel[2] * c.c_in;
  const double gathered = channels * planes * static_cast<double>(c.kernel[1] * c.kernel[2]) * padded(c.c_in);
  // Adding a value takes as long as 24 multiply-adds, but gathering packs dy for each tap. (16 channels, 4 x 4 taps of
  // stride 2, 32 channels of dy: 0.52 instead of 1.13 ms; 32 channels would take 0.52 instead of 0.45.)
  const double scattered = planes * (channels * padded(columns) + 24 * static_cast<double>(columns));
  return scattered < 1.1 * gathered;
}

void scatter_input(const ConvCall& c, const void* dy, void* dx) {
  dispatch_floating(c.dtype, [&]<class T>() { Scatter<T>(c, static_cast<const T*>(dy), static_cast<T*>(dx)).run(); });
}

}  // namespace deft::cpu::detail
