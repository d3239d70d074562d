#include "ops/pool.h"

#include <algorithm>

#include "ops/creation.h"
#include "ops/sample.h"

namespace deft {

namespace {

using List = std::vector<int64_t>;

// How a sample calls pooling. Lists are as a user gives them: one number or one per dimension.
struct Setting {
  List kernel{}, stride{}, padding{0}, dilation{1};
  bool ceil_mode = false, include_pad = true;
  int64_t divisor = 0;
  List adaptive{};  // output sizes; empty: not adaptive
  bool indices = true;
};

int64_t entry(const List& list, int d) { return list[list.size() == 1 ? 0 : static_cast<size_t>(d)]; }

// One spatial dimension: which input positions, inside or in the padding, belong to window o.
struct Line {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
  bool adaptive = false;

  bool fits(int64_t o, bool ceil_mode) const {
    int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
    return ceil_mode ? o * stride < room + stride && o * stride < in + pad : o * stride <= room;
  }
  List positions(int64_t o) const {
    List at;
    if (adaptive) {
      for (int64_t i = 0; i < in; ++i)
        if (i * out < (o + 1) * in && (i + 1) * out > o * in) at.push_back(i);
    } else {
      for (int64_t k = 0; k < kernel; ++k) at.push_back(o * stride - pad + k * dilation);
    }
    return at;
  }
};

Line line_of(const Setting& s, int d, int64_t in) {
  Line l;
  l.in = in;
  l.adaptive = !s.adaptive.empty();
  if (l.adaptive) {
    l.out = entry(s.adaptive, d);
    return l;
  }
  l.kernel = entry(s.kernel, d);
  l.stride = s.stride.empty() ? l.kernel : entry(s.stride, d);
  l.pad = entry(s.padding, d);
  l.dilation = entry(s.dilation, d);
  for (l.out = 0; l.fits(l.out, s.ceil_mode);) ++l.out;
  return l;
}

struct Grid {
  Line line[3];
  int64_t planes = 1;
  Shape sizes;  // of the result
  Grid(const Tensor& x, const Setting& s, int spatial) : sizes(x.sizes()) {
    int lead = x.dim() - spatial;
    for (int i = 0; i < lead; ++i) planes *= x.sizes()[i];
    for (int d = 0; d < spatial; ++d) {
      Line l = line_of(s, d, x.sizes()[lead + d]);
      line[3 - spatial + d] = l;
      sizes[lead + d] = l.out;
    }
  }
  int64_t in() const { return line[0].in * line[1].in * line[2].in; }
};

// Calls f(plane, output number, flat input positions of the window, window size with the padding it covers).
template <class F>
void for_each_window(const Grid& g, F f) {
  int64_t n = 0;
  for (int64_t plane = 0; plane < g.planes; ++plane)
    for (int64_t a = 0; a < g.line[0].out; ++a)
      for (int64_t b = 0; b < g.line[1].out; ++b)
        for (int64_t c = 0; c < g.line[2].out; ++c) {
          List inside;
          int64_t padded = 0;
          for (int64_t z : g.line[0].positions(a))
            for (int64_t y : g.line[1].positions(b))
              for (int64_t x : g.line[2].positions(c)) {
                int64_t p[3] = {z, y, x};
                bool live = true, counted = true;
                for (int d = 0; d < 3; ++d) {
                  live = live && p[d] >= 0 && p[d] < g.line[d].in;
                  counted = counted && p[d] < g.line[d].in + g.line[d].pad;
                }
                padded += counted;
                if (live) inside.push_back((z * g.line[1].in + y) * g.line[2].in + x);
              }
          f(plane, n++, inside, padded);
        }
}

Tensors naive_max(const Tensor& x, const Setting& s, int spatial) {
  Grid g(x, s, spatial);
  Tensor y = empty(g.sizes, DType::f64), at = empty(g.sizes, DType::f64);
  const double* from = x.data<double>();
  for_each_window(g, [&](int64_t plane, int64_t n, const List& inside, int64_t) {
    int64_t best = inside[0];
    for (int64_t i : inside)
      if (from[plane * g.in() + i] > from[plane * g.in() + best]) best = i;
    y.data<double>()[n] = from[plane * g.in() + best];
    at.data<double>()[n] = static_cast<double>(best);
  });
  return s.indices ? Tensors{y, at} : Tensors{y};
}

Tensors naive_avg(const Tensor& x, const Setting& s, int spatial) {
  Grid g(x, s, spatial);
  Tensor y = empty(g.sizes, DType::f64);
  for_each_window(g, [&](int64_t plane, int64_t n, const List& inside, int64_t padded) {
    double sum = 0;
    for (int64_t i : inside) sum += x.data<double>()[plane * g.in() + i];
    int64_t count = s.divisor ? s.divisor : s.include_pad ? padded : static_cast<int64_t>(inside.size());
    y.data<double>()[n] = sum / static_cast<double>(count);
  });
  return {y};
}

Tensors pair(const std::array<Tensor, 2>& t) { return {t[0], t[1]}; }

Tensors call_max(const Tensor& x, const Setting& s, int n) {
  if (!s.adaptive.empty()) {
    if (n == 1)
      return s.indices ? pair(adaptive_max_pool1d_with_indices(x, s.adaptive))
                       : Tensors{adaptive_max_pool1d(x, s.adaptive)};
    if (n == 2)
      return s.indices ? pair(adaptive_max_pool2d_with_indices(x, s.adaptive))
                       : Tensors{adaptive_max_pool2d(x, s.adaptive)};
    return s.indices ? pair(adaptive_max_pool3d_with_indices(x, s.adaptive))
                     : Tensors{adaptive_max_pool3d(x, s.adaptive)};
  }
  using Both = std::array<Tensor, 2> (*)(const Tensor&, IntList, IntList, IntList, IntList, bool, Site);
  using Values = Tensor (*)(const Tensor&, IntList, IntList, IntList, IntList, bool, Site);
  constexpr Both both[] = {max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices};
  constexpr Values values[] = {max_pool1d, max_pool2d, max_pool3d};
  if (s.indices) return pair(both[n - 1](x, s.kernel, s.stride, s.padding, s.dilation, s.ceil_mode, Site::current()));
  return {values[n - 1](x, s.kernel, s.stride, s.padding, s.dilation, s.ceil_mode, Site::current())};
}

Tensors call_avg(const Tensor& x, const Setting& s, int n) {
  if (!s.adaptive.empty())
    return {n == 1   ? adaptive_avg_pool1d(x, s.adaptive)
            : n == 2 ? adaptive_avg_pool2d(x, s.adaptive)
                     : adaptive_avg_pool3d(x, s.adaptive)};
  using Avg = Tensor (*)(const Tensor&, IntList, IntList, IntList, bool, bool, int64_t, Site);
  constexpr Avg avg[] = {avg_pool1d, avg_pool2d, avg_pool3d};
  return {avg[n - 1](x, s.kernel, s.stride, s.padding, s.ceil_mode, s.include_pad, s.divisor, Site::current())};
}

std::string python(const List& l) {
  if (l.size() == 1) return std::to_string(l[0]);
  std::string s;
  for (int64_t v : l) s += (s.empty() ? "(" : ", ") + std::to_string(v);
  return s + ")";
}

std::string torch_call(const Setting& s, int n, bool max) {
  std::string name = std::string(max ? "max" : "avg") + "_pool" + std::to_string(n) + "d(a, ";
  std::string with_indices = max && s.indices ? ", return_indices=True" : "";
  if (!s.adaptive.empty()) return "F.adaptive_" + name + python(s.adaptive) + with_indices + ")";
  std::string call =
      "F." + name + python(s.kernel) + ", " + (s.stride.empty() ? "None" : python(s.stride)) + ", " + python(s.padding);
  if (max) call += ", " + python(s.dilation);
  if (s.ceil_mode) call += ", ceil_mode=True";
  if (!s.include_pad) call += ", count_include_pad=False";
  if (s.divisor) call += ", divisor_override=" + std::to_string(s.divisor);
  return call + with_indices + ")";
}

Sample pool_sample(bool max, int n, std::string note, Shape sizes, Setting s) {
  Arg x = real(sizes);
  x.distinct = max;
  return {std::to_string(n) + "d " + note,
          {x},
          [=](const Tensors& t) { return max ? call_max(t[0], s, n) : call_avg(t[0], s, n); },
          [=](const Tensors& t) { return max ? naive_max(t[0], s, n) : naive_avg(t[0], s, n); },
          torch_call(s, n, max)};
}

BadSample bad_pool(bool max, int n, std::string note, Shape sizes, Setting s, std::string error, std::string text) {
  return {note,
          {real(sizes)},
          [=](const Tensors& t) { return max ? call_max(t[0], s, n) : call_avg(t[0], s, n); },
          std::move(error),
          std::move(text)};
}

// What both kinds have in common.
void add_common(OpSamples& s, bool max) {
  auto add = [&](int n, std::string note, Shape sizes, Setting p) {
    s.good.push_back(pool_sample(max, n, note, sizes, p));
  };
  add(1, "plain", {2, 3, 8}, {.kernel = {2}});
  add(1, "stride and padding", {2, 2, 9}, {.kernel = {3}, .stride = {2}, .padding = {1}});
  add(1, "unbatched", {3, 7}, {.kernel = {3}, .stride = {1}, .indices = false});
  add(1, "ceil", {1, 2, 8}, {.kernel = {3}, .stride = {2}, .ceil_mode = true});
  add(1, "window of all", {2, 1, 5}, {.kernel = {5}});
  add(1, "size one", {1, 1, 1}, {.kernel = {1}});
  add(2, "plain", {2, 3, 6, 4}, {.kernel = {2}});
  add(2, "odd sizes", {1, 2, 7, 5}, {.kernel = {3, 2}, .stride = {2, 1}});
  add(2, "padding", {2, 2, 5, 6}, {.kernel = {3}, .stride = {2}, .padding = {1}});
  add(2, "uneven padding", {1, 3, 4, 7}, {.kernel = {2, 4}, .stride = {1, 3}, .padding = {1, 2}});
  add(2, "gaps between windows", {1, 2, 9, 8}, {.kernel = {2}, .stride = {4, 3}});
  add(2, "ceil", {1, 2, 6, 7}, {.kernel = {3, 2}, .stride = {2, 4}, .ceil_mode = true});
  add(2, "ceil with padding", {2, 1, 5, 6}, {.kernel = {3}, .stride = {3, 2}, .padding = {1}, .ceil_mode = true});
  add(2, "ceil drops a window of padding", {1, 1, 4, 5},
      {.kernel = {2}, .stride = {5, 3}, .padding = {1}, .ceil_mode = true});
  add(2, "ceil larger than input", {1, 1, 3, 3}, {.kernel = {4}, .stride = {2}, .ceil_mode = true});
  add(2, "unbatched", {3, 4, 5}, {.kernel = {2}, .stride = {2, 1}});
  add(2, "no samples", {0, 2, 4, 4}, {.kernel = {2}, .indices = false});
  add(2, "many channels", {2, 37, 6, 5}, {.kernel = {3}, .stride = {1}, .padding = {1}});
  add(2, "large", {3, 16, 33, 35}, {.kernel = {3}, .stride = {2}, .padding = {1}});
  add(3, "plain", {1, 2, 4, 4, 2}, {.kernel = {2}, .indices = false});
  add(3, "all different", {2, 1, 3, 5, 4}, {.kernel = {2, 3, 1}, .stride = {1, 2, 3}, .padding = {1, 1, 0}});
  add(3, "ceil", {1, 1, 3, 4, 5}, {.kernel = {2}, .stride = {2}, .padding = {0, 1, 1}, .ceil_mode = true});
  add(3, "unbatched", {2, 3, 2, 4}, {.kernel = {2}, .stride = {1}});
  add(1, "adaptive", {2, 3, 7}, {.adaptive = {3}});
  add(1, "adaptive up", {1, 2, 3}, {.adaptive = {5}});
  add(1, "adaptive unbatched", {2, 9}, {.adaptive = {4}, .indices = false});
  add(2, "adaptive one", {2, 3, 5, 4}, {.adaptive = {1}});
  add(2, "adaptive", {2, 2, 7, 5}, {.adaptive = {3, 2}});
  add(2, "adaptive both ways", {1, 2, 3, 8}, {.adaptive = {5, 3}, .indices = false});
  add(2, "adaptive same", {1, 1, 4, 3}, {.adaptive = {4, 3}});
  add(2, "adaptive unbatched", {3, 6, 6}, {.adaptive = {4}});
  add(3, "adaptive", {1, 2, 5, 3, 4}, {.adaptive = {2, 3, 3}});
  add(3, "adaptive unbatched", {2, 4, 3, 5}, {.adaptive = {2, 1, 4}, .indices = false});

  std::string name = max ? "max_pool" : "avg_pool";
  auto bad = [&](int n, std::string note, Shape sizes, Setting p, std::string error, std::string text) {
    s.bad.push_back(bad_pool(max, n, note, sizes, p, error, text));
  };
  bad(2, "too few dims", {4, 4}, {.kernel = {2}}, "ShapeError", name + "2d: needs 3 or 4 dimensions");
  bad(1, "too many dims", {1, 1, 4, 4}, {.kernel = {2}}, "ShapeError", name + "1d: needs 2 or 3 dimensions");
  bad(3, "0-d", {}, {.kernel = {2}}, "ShapeError", name + "3d: needs 4 or 5 dimensions");
  bad(2, "kernel 0", {1, 1, 4, 4}, {.kernel = {2, 0}, .stride = {1}}, "ValueError",
      "kernel 0, stride 1 and dilation 1");
  bad(2, "kernel huge", {1, 1, 4, 4}, {.kernel = {INT64_MAX}, .stride = {1}}, "ValueError", "below 2^31");
  bad(2, "stride 0", {1, 1, 4, 4}, {.kernel = {2}, .stride = {0}}, "ValueError", "must be positive");
  bad(2, "stride negative", {1, 1, 4, 4}, {.kernel = {2}, .stride = {1, -1}}, "ValueError", "must be positive");
  bad(2, "padding negative", {1, 1, 4, 4}, {.kernel = {2}, .padding = {-1}}, "ValueError", "padding -1");
  bad(2, "padding large", {1, 1, 4, 4}, {.kernel = {3}, .padding = {2}}, "ValueError",
      "padding 2 must be at most half the kernel 3");
  bad(2, "does not fit", {1, 1, 4, 2}, {.kernel = {3}}, "ShapeError",
      "kernel 3 does not fit into size 2 of shape [1, 1, 4, 2]");
  bad(2, "empty image", {1, 1, 0, 2}, {.kernel = {2}}, "ShapeError", "does not fit into size 0");
  bad(2, "kernel list", {1, 1, 4, 4}, {.kernel = {2, 2, 2}}, "ValueError", "the kernel needs 1 or 2 numbers, found 3");
  bad(3, "stride list", {1, 1, 4, 4, 4}, {.kernel = {2}, .stride = {1, 1}}, "ValueError",
      "the stride needs 1 or 3 numbers");
  bad(2, "padding list", {1, 1, 4, 4}, {.kernel = {2}, .padding = {}}, "ValueError", "the padding needs");
  bad(2, "adaptive negative", {1, 1, 4, 4}, {.adaptive = {2, -1}}, "ValueError", "must not be negative, found -1");
  bad(2, "adaptive empty image", {1, 1, 0, 4}, {.adaptive = {2}}, "ShapeError", "must not be empty");
  bad(2, "adaptive list", {1, 1, 4, 4}, {.adaptive = {1, 2, 3}}, "ValueError", "the output size needs 1 or 2 numbers");
  bad(2, "adaptive too large", {1, 1, 4, 4}, {.adaptive = {INT64_MAX}}, "ShapeError", "");
  s.bad.push_back(
      {"undefined",
       {missing_arg()},
       [=](const Tensors& t) { return max ? call_max(t[0], {.kernel = {2}}, 2) : call_avg(t[0], {.kernel = {2}}, 2); },
       "ValueError",
       "undefined"});
}

}  // namespace

OpSamples MaxPool::samples() {
  OpSamples s{.op = "max_pool", .dtypes = kNumbers};
  add_common(s, true);
  auto add = [&](int n, std::string note, Shape sizes, Setting p) {
    s.good.push_back(pool_sample(true, n, note, sizes, p));
  };
  add(1, "dilation", {2, 2, 9}, {.kernel = {3}, .stride = {1}, .dilation = {2}});
  add(2, "dilation", {1, 2, 7, 8}, {.kernel = {2, 3}, .stride = {1, 2}, .dilation = {3, 2}});
  add(2, "dilation and padding", {2, 1, 6, 7}, {.kernel = {3}, .stride = {2}, .padding = {1}, .dilation = {2}});
  add(2, "dilation and ceil", {1, 1, 8, 7}, {.kernel = {2}, .stride = {3}, .dilation = {3}, .ceil_mode = true});
  add(3, "dilation", {1, 1, 5, 4, 6},
      {.kernel = {2}, .stride = {2, 1, 1}, .padding = {1, 0, 0}, .dilation = {2, 3, 1}});
  s.bad.push_back(
      bad_pool(true, 2, "dilation 0", {1, 1, 4, 4}, {.kernel = {2}, .dilation = {0}}, "ValueError", "dilation 0"));
  s.bad.push_back(bad_pool(true, 2, "dilation does not fit", {1, 1, 4, 4}, {.kernel = {2}, .dilation = {4}},
                           "ShapeError", "does not fit"));
  s.bad.push_back(bad_pool(true, 2, "dilation list", {1, 1, 4, 4}, {.kernel = {2}, .dilation = {1, 1, 1}}, "ValueError",
                           "the dilation needs"));
  return s;
}

OpSamples AvgPool::samples() {
  OpSamples s{.op = "avg_pool", .growth = 16};
  add_common(s, false);
  auto add = [&](int n, std::string note, Shape sizes, Setting p) {
    s.good.push_back(pool_sample(false, n, note, sizes, p));
  };
  add(1, "padding not counted", {2, 2, 7}, {.kernel = {3}, .stride = {2}, .padding = {1}, .include_pad = false});
  add(2, "padding not counted", {1, 2, 5, 6}, {.kernel = {3, 2}, .stride = {2}, .padding = {1}, .include_pad = false});
  add(2, "padding not counted, ceil", {1, 1, 6, 5},
      {.kernel = {3}, .stride = {2}, .padding = {1}, .ceil_mode = true, .include_pad = false});
  add(3, "padding not counted", {1, 1, 4, 3, 5},
      {.kernel = {2, 3, 2}, .stride = {2}, .padding = {1}, .include_pad = false});
  add(2, "divisor 3", {2, 1, 4, 6}, {.kernel = {2}, .divisor = 3});
  add(2, "divisor 1 with padding", {1, 2, 5, 5},
      {.kernel = {3}, .stride = {2}, .padding = {1}, .include_pad = false, .divisor = 1});
  add(3, "divisor 5", {1, 2, 3, 4, 3}, {.kernel = {2}, .stride = {1}, .divisor = 5});
  s.bad.push_back(bad_pool(false, 2, "divisor negative", {1, 1, 4, 4}, {.kernel = {2}, .divisor = -1}, "ValueError",
                           "divisor_override must be positive, found -1"));
  return s;
}

}  // namespace deft
