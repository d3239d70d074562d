#include "ops/conv.h"
#include "ops/creation.h"
#include "ops/sample.h"
#include "ops/view.h"

namespace deft {

namespace {

// How a sample calls a convolution. Lists are as a user gives them: one number or one per dimension.
struct Setting {
  std::vector<int64_t> stride{1}, padding{0}, dilation{1}, output_padding{0};
  int64_t groups = 1;
};

int64_t entry(const std::vector<int64_t>& list, int d) { return list[list.size() == 1 ? 0 : static_cast<size_t>(d)]; }

// A batched tensor as [n, c, depth, height, width] with ones for what it lacks.
struct Volume {
  int64_t n, c, size[3];
  double* data;
  Volume(const Tensor& t, int spatial) : n(1), c(1), size{1, 1, 1}, data(t.data<double>()) {
    int lead = t.dim() - spatial;
    if (lead == 2) n = t.sizes()[0];
    c = t.sizes()[lead - 1];
    for (int d = 0; d < spatial; ++d) size[3 - spatial + d] = t.sizes()[lead + d];
  }
  double& at(int64_t i, int64_t ch, const int64_t* p) const {
    return data[(((i * c + ch) * size[0] + p[0]) * size[1] + p[1]) * size[2] + p[2]];
  }
};

struct Steps {
  int64_t stride[3] = {1, 1, 1}, pad[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  Steps(const Setting& s, int spatial) {
    for (int d = 0; d < spatial; ++d) {
      stride[3 - spatial + d] = entry(s.stride, d);
      pad[3 - spatial + d] = entry(s.padding, d);
      dilation[3 - spatial + d] = entry(s.dilation, d);
    }
  }
};

// Calls f(i, small, out channel, big, in channel of the group, tap) for every product there is: `big` is the input of a
// convolution or the result of a transposed one, `small` the other.
template <class F>
void for_each_product(const Volume& small, const Volume& big, const Volume& w, const Steps& s, F f) {
  int64_t o[3], k[3], p[3];
  for (int64_t i = 0; i < small.n; ++i)
    for (int64_t co = 0; co < w.n; ++co)
      for (int64_t ci = 0; ci < w.c; ++ci)
        for (o[0] = 0; o[0] < small.size[0]; ++o[0])
          for (o[1] = 0; o[1] < small.size[1]; ++o[1])
            for (o[2] = 0; o[2] < small.size[2]; ++o[2])
              for (k[0] = 0; k[0] < w.size[0]; ++k[0])
                for (k[1] = 0; k[1] < w.size[1]; ++k[1])
                  for (k[2] = 0; k[2] < w.size[2]; ++k[2]) {
                    bool inside = true;
                    for (int d = 0; d < 3; ++d) {
                      p[d] = o[d] * s.stride[d] - s.pad[d] + k[d] * s.dilation[d];
                      inside = inside && p[d] >= 0 && p[d] < big.size[d];
                    }
                    if (inside) f(i, o, co, p, ci, k);
                  }
}

void add_bias(const Volume& y, const Tensor& bias) {
  if (!bias.defined()) return;
  int64_t spatial = y.size[0] * y.size[1] * y.size[2];
  for (int64_t i = 0; i < y.n * y.c * spatial; ++i) y.data[i] += bias.data<double>()[i / spatial % y.c];
}

Shape result_sizes(const Tensor& x, int64_t channels, int spatial, const std::vector<int64_t>& sizes) {
  Shape r;
  if (x.dim() == spatial + 2) r.push_back(x.sizes()[0]);
  r.push_back(channels);
  for (int64_t s : sizes) r.push_back(s);
  return r;
}

Tensors naive_conv(const Tensors& t, const Setting& s, int spatial) {
  std::vector<int64_t> sizes;
  for (int d = 0; d < spatial; ++d) {
    int64_t in = t[0].sizes()[t[0].dim() - spatial + d], k = t[1].sizes()[d + 2];
    sizes.push_back((in + 2 * entry(s.padding, d) - entry(s.dilation, d) * (k - 1) - 1) / entry(s.stride, d) + 1);
  }
  Tensor out = zeros(result_sizes(t[0], t[1].sizes()[0], spatial, sizes), DType::f64);
  Volume x(t[0], spatial), w(t[1], spatial), y(out, spatial);
  int64_t per_group = w.n / s.groups;
  for_each_product(y, x, w, Steps(s, spatial), [&](int64_t i, auto* o, int64_t co, auto* p, int64_t ci, auto* k) {
    y.at(i, co, o) += x.at(i, co / per_group * w.c + ci, p) * w.at(co, ci, k);
  });
  add_bias(y, t[2]);
  return {out};
}

Tensors naive_transpose(const Tensors& t, const Setting& s, int spatial) {
  std::vector<int64_t> sizes;
  for (int d = 0; d < spatial; ++d) {
    int64_t in = t[0].sizes()[t[0].dim() - spatial + d], k = t[1].sizes()[d + 2];
    sizes.push_back((in - 1) * entry(s.stride, d) - 2 * entry(s.padding, d) + entry(s.dilation, d) * (k - 1) +
                    entry(s.output_padding, d) + 1);
  }
  Tensor out = zeros(result_sizes(t[0], t[1].sizes()[1] * s.groups, spatial, sizes), DType::f64);
  Volume x(t[0], spatial), w(t[1], spatial), y(out, spatial);
  int64_t per_group = w.n / s.groups;
  for_each_product(x, y, w, Steps(s, spatial), [&](int64_t i, auto* o, int64_t co, auto* p, int64_t ci, auto* k) {
    y.at(i, co / per_group * w.c + ci, p) += x.at(i, co, o) * w.at(co, ci, k);
  });
  add_bias(y, t[2]);
  return {out};
}

Tensor call_conv(const Tensors& t, const Setting& s, int spatial) {
  using Conv = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, IntList, IntList, IntList, int64_t, Site);
  constexpr Conv kConvs[] = {conv1d, conv2d, conv3d};
  return kConvs[spatial - 1](t[0], t[1], t[2], s.stride, s.padding, s.dilation, s.groups, Site::current());
}

Tensor call_transpose(const Tensors& t, const Setting& s, int spatial) {
  auto f = spatial == 1 ? &conv_transpose1d : spatial == 2 ? &conv_transpose2d : &conv_transpose3d;
  return f(t[0], t[1], t[2], s.stride, s.padding, s.output_padding, s.groups, s.dilation, Site::current());
}

std::string python(const std::vector<int64_t>& list) {
  if (list.size() == 1) return std::to_string(list[0]);
  std::string r = "(";
  for (int64_t v : list) r += std::to_string(v) + ", ";
  return r + ")";
}

Sample conv_sample(std::string note, Shape x, Shape w, bool bias, Setting s = {}) {
  int spatial = w.size() - 2;
  std::string torch = "torch.nn.functional.conv" + std::to_string(spatial) + "d(a, b, " + (bias ? "c" : "None") +
                      ", stride=" + python(s.stride) + ", padding=" + python(s.padding) +
                      ", dilation=" + python(s.dilation) + ", groups=" + std::to_string(s.groups) + ")";
  return {std::to_string(spatial) + "d " + note,
          {real(x), real(w, -1, 1), bias ? real({w[0]}) : missing_arg()},
          [=](const Tensors& t) -> Tensors { return {call_conv(t, s, spatial)}; },
          [=](const Tensors& t) { return naive_conv(t, s, spatial); },
          torch};
}

Sample transpose_sample(std::string note, Shape x, Shape w, bool bias, Setting s = {}) {
  int spatial = w.size() - 2;
  std::string torch = "torch.nn.functional.conv_transpose" + std::to_string(spatial) + "d(a, b, " +
                      (bias ? "c" : "None") + ", stride=" + python(s.stride) + ", padding=" + python(s.padding) +
                      ", output_padding=" + python(s.output_padding) + ", groups=" + std::to_string(s.groups) +
                      ", dilation=" + python(s.dilation) + ")";
  return {std::to_string(spatial) + "d " + note,
          {real(x), real(w, -1, 1), bias ? real({w[1] * s.groups}) : missing_arg()},
          [=](const Tensors& t) -> Tensors { return {call_transpose(t, s, spatial)}; },
          [=](const Tensors& t) { return naive_transpose(t, s, spatial); },
          torch};
}

// padding = same by its definition: zeros around x, more of them at the end, and no other padding.
Sample same_sample(std::string note, Shape x, Shape w, std::vector<int64_t> dilation = {1}) {
  int spatial = w.size() - 2;
  Sample s = conv_sample(note, x, w, true);
  s.call = [=](const Tensors& t) -> Tensors {
    if (spatial == 1) return {conv1d(t[0], t[1], t[2], {1}, ConvPadding::same, dilation)};
    if (spatial == 2) return {conv2d(t[0], t[1], t[2], {1}, ConvPadding::same, dilation)};
    return {conv3d(t[0], t[1], t[2], {1}, ConvPadding::same, dilation)};
  };
  s.expect = [=](const Tensors& t) -> Tensors {
    Shape sizes = t[0].sizes();
    std::vector<int64_t> front;
    for (int d = 0; d < spatial; ++d) {
      int64_t total = entry(dilation, d) * (t[1].sizes()[d + 2] - 1);
      sizes[sizes.size() - spatial + d] += total;
      front.push_back(total / 2);
    }
    Tensor padded = zeros(sizes, DType::f64);
    Volume from(t[0], spatial), to(padded, spatial);
    int64_t p[3], q[3];
    for (int64_t i = 0; i < from.n; ++i)
      for (int64_t c = 0; c < from.c; ++c)
        for (p[0] = 0; p[0] < from.size[0]; ++p[0])
          for (p[1] = 0; p[1] < from.size[1]; ++p[1])
            for (p[2] = 0; p[2] < from.size[2]; ++p[2]) {
              for (int d = 0; d < 3; ++d)
                q[d] = p[d] + (d < 3 - spatial ? 0 : front[static_cast<size_t>(d - 3 + spatial)]);
              to.at(i, c, q) = from.at(i, c, p);
            }
    return naive_conv({padded, t[1], t[2]}, {.dilation = dilation}, spatial);
  };
  s.torch = "torch.nn.functional.conv" + std::to_string(spatial) +
            "d(a, b, c, padding='same', dilation=" + python(dilation) + ")";
  return s;
}

BadSample bad_conv(std::string note, Arg x, Arg w, Arg bias, Setting s, std::string error, std::string text) {
  int spatial = 2;
  return {note, {x, w, bias}, [=](const Tensors& t) -> Tensors { return {call_conv(t, s, spatial)}; }, error, text};
}
BadSample bad_transpose(std::string note, Arg x, Arg w, Arg bias, Setting s, std::string error, std::string text) {
  int spatial = 2;
  return {
      note, {x, w, bias}, [=](const Tensors& t) -> Tensors { return {call_transpose(t, s, spatial)}; }, error, text};
}

}  // namespace

OpSamples Convolution::samples() {
  OpSamples s{.op = "convolution", .growth = 64, .scale = 8};
  s.good = {
      conv_sample("plain", {2, 2, 4, 5}, {3, 2, 3, 2}, true),
      conv_sample("no bias", {2, 2, 4, 5}, {3, 2, 3, 2}, false),
      conv_sample("unbatched", {2, 4, 5}, {3, 2, 3, 3}, true),
      conv_sample("unbatched no bias", {1, 4, 4}, {2, 1, 2, 2}, false),
      conv_sample("stride", {1, 2, 6, 7}, {2, 2, 3, 3}, true, {.stride = {2}}),
      conv_sample("stride pair", {1, 2, 6, 7}, {2, 2, 2, 2}, true, {.stride = {2, 3}}),
      conv_sample("stride leaves a rest", {1, 1, 8, 9}, {2, 1, 2, 3}, false, {.stride = {3, 4}}),
      conv_sample("padding", {1, 2, 4, 4}, {2, 2, 3, 3}, true, {.padding = {1}}),
      conv_sample("padding pair", {1, 2, 3, 4}, {2, 2, 2, 3}, true, {.padding = {2, 1}}),
      conv_sample("dilation", {1, 2, 6, 6}, {2, 2, 2, 2}, true, {.dilation = {2}}),
      conv_sample("dilation pair", {1, 1, 6, 7}, {2, 1, 3, 2}, false, {.dilation = {2, 3}}),
      conv_sample("all", {2, 2, 7, 6}, {2, 2, 3, 2}, true, {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}}),
      conv_sample("groups", {2, 4, 4, 3}, {6, 2, 2, 2}, true, {.groups = 2}),
      conv_sample("groups stride padding", {1, 4, 5, 5}, {2, 2, 3, 3}, false,
                  {.stride = {2}, .padding = {1}, .groups = 2}),
      conv_sample("depthwise", {2, 3, 5, 4}, {3, 1, 3, 3}, true, {.padding = {1}, .groups = 3}),
      conv_sample("depthwise stride dilation", {1, 3, 7, 6}, {3, 1, 2, 2}, true,
                  {.stride = {2}, .dilation = {2}, .groups = 3}),
      conv_sample("depthwise twofold", {1, 2, 4, 4}, {4, 1, 3, 3}, true, {.groups = 2}),
      conv_sample("pointwise", {2, 3, 3, 4}, {5, 3, 1, 1}, true),
      conv_sample("pointwise stride", {1, 3, 5, 5}, {2, 3, 1, 1}, false, {.stride = {2}}),
      conv_sample("one pixel", {1, 1, 1, 1}, {1, 1, 1, 1}, true),
      conv_sample("kernel covers input", {2, 2, 3, 3}, {3, 2, 3, 3}, true),
      conv_sample("padding larger than input", {1, 1, 1, 2}, {1, 1, 3, 3}, true, {.padding = {3}}),
      conv_sample("one channel", {3, 1, 5, 5}, {1, 1, 3, 3}, false),
      conv_sample("larger", {3, 5, 17, 19}, {7, 5, 3, 3}, true, {.padding = {1}}),
      conv_sample("larger stride", {2, 6, 21, 18}, {8, 3, 5, 5}, true, {.stride = {2}, .padding = {2}, .groups = 2}),
      conv_sample("batch 0", {0, 2, 4, 4}, {3, 2, 3, 3}, true),
      conv_sample("plain", {2, 3, 7}, {4, 3, 3}, true),
      conv_sample("no bias", {2, 3, 7}, {4, 3, 2}, false),
      conv_sample("unbatched", {3, 7}, {4, 3, 3}, true),
      conv_sample("all", {2, 4, 9}, {2, 2, 3}, true, {.stride = {2}, .padding = {2}, .dilation = {2}, .groups = 2}),
      conv_sample("depthwise", {2, 3, 8}, {3, 1, 3}, true, {.groups = 3}),
      conv_sample("one", {1, 1, 1}, {1, 1, 1}, true),
      conv_sample("plain", {1, 2, 3, 4, 3}, {2, 2, 2, 2, 2}, true),
      conv_sample("unbatched", {2, 3, 3, 3}, {2, 2, 2, 1, 2}, true),
      conv_sample("all", {1, 2, 4, 5, 4}, {2, 1, 2, 2, 2}, true,
                  {.stride = {2, 1, 2}, .padding = {1, 0, 1}, .dilation = {1, 2, 1}, .groups = 2}),
      same_sample("same", {1, 2, 4, 5}, {2, 2, 3, 3}),
      same_sample("same even kernel", {1, 2, 4, 5}, {2, 2, 2, 4}),
      same_sample("same dilation", {1, 1, 5, 6}, {2, 1, 2, 3}, {3, 2}),
      same_sample("same even unbatched", {2, 6}, {2, 2, 4}),
      same_sample("same", {1, 1, 2, 3, 2}, {1, 1, 2, 1, 3}),
  };
  Arg x = real({1, 4, 5, 5}), w = real({6, 4, 3, 3}), none = missing_arg();
  s.bad = {
      bad_conv("channels", real({1, 3, 5, 5}), w, none, {}, "ShapeError",
               "conv2d: an input of shape [1, 3, 5, 5] has 3 channels"),
      bad_conv("channels behind pixels", real({1, 5, 5, 4}), w, none, {}, "ShapeError", "pass x.permute({0, 3, 1, 2})"),
      bad_conv("as many pixels as channels", real({1, 3, 4, 4}), w, none, {}, "ShapeError",
               "pass an input of 4 channels, or make the layer for 3"),
      bad_conv("groups and channels", x, w, none, {.groups = 2}, "ShapeError", "with 2 groups takes 8"),
      bad_conv("groups and outputs", x, real({3, 2, 3, 3}), none, {.groups = 2}, "ShapeError",
               "positive multiple of the 2 groups"),
      bad_conv("groups 0", x, w, none, {.groups = 0}, "ValueError", "groups must be at least 1"),
      bad_conv("input rank", real({5, 5}), w, none, {}, "ShapeError", "must have 4 dimensions"),
      bad_conv("input rank 5", real({1, 4, 5, 5, 5}), w, none, {}, "ShapeError", "must have 4 dimensions"),
      bad_conv("weight rank", x, real({6, 4, 3}), none, {}, "ShapeError", "must have 4 dimensions"),
      bad_conv("kernel too large", x, real({6, 4, 6, 3}), none, {}, "ShapeError",
               "reaches over 6 elements does not fit into 5"),
      bad_conv("dilated kernel too large", x, w, none, {.dilation = {1, 3}}, "ShapeError", "reaches over 7 elements"),
      bad_conv("empty kernel", x, real({6, 4, 0, 3}), none, {}, "ShapeError", "empty kernel"),
      bad_conv("empty input", real({1, 4, 0, 5}), w, none, {.padding = {2}}, "ShapeError",
               "only its batch size may be 0"),
      bad_conv("no output channels", x, real({0, 4, 3, 3}), none, {}, "ShapeError", "positive multiple"),
      bad_conv("bias size", x, w, real({5}), {}, "ShapeError", "a bias of shape [5] does not fit; expected [6]"),
      bad_conv("bias rank", x, w, real({6, 1}), {}, "ShapeError", "a bias of shape [6, 1]"),
      bad_conv("stride 0", x, w, none, {.stride = {0}}, "ValueError", "the stride must be at least 1, found 0"),
      bad_conv("stride count", x, w, none, {.stride = {1, 1, 1}}, "ValueError",
               "conv2d: stride has 3 numbers; give 1 or 2"),
      bad_conv("padding negative", x, w, none, {.padding = {0, -1}}, "ValueError", "the padding must not be negative"),
      bad_conv("padding count", x, w, none, {.padding = {}}, "ValueError", "padding has 0 numbers"),
      bad_conv("dilation 0", x, w, none, {.dilation = {0}}, "ValueError", "the dilation must be at least 1"),
      bad_conv("dilation count", x, w, none, {.dilation = {1, 2, 3}}, "ValueError", "dilation has 3 numbers"),
      bad_conv("weight dtype", x, index_arg({6, 4, 3, 3}, 3), none, {}, "DTypeError", "the weight i64"),
      bad_conv("bias dtype", x, w, index_arg({6}, 3), {}, "DTypeError", "the bias i64"),
      bad_conv("integers", index_arg({1, 4, 5, 5}, 3), w, none, {}, "DTypeError", "does not take i64"),
      bad_conv("no weight", x, none, none, {}, "ValueError", "the weight is an undefined tensor"),
      bad_conv("no input", none, w, none, {}, "ValueError", "conv2d: an input is an undefined tensor"),
      {"same with stride",
       {x, w, none},
       [](const Tensors& t) -> Tensors { return {conv2d(t[0], t[1], t[2], {2}, ConvPadding::same)}; },
       "ValueError",
       "conv2d: padding `same` needs stride 1, found 2"},
      {"1d name",
       {real({1, 3, 5}), real({2, 4, 3}), none},
       [](const Tensors& t) -> Tensors { return {conv1d(t[0], t[1], t[2])}; },
       "ShapeError",
       "conv1d: an input of shape"},
      {"3d name",
       {real({1, 3, 5, 5, 5}), real({2, 4, 3, 3, 3}), none},
       [](const Tensors& t) -> Tensors { return {conv3d(t[0], t[1], t[2])}; },
       "ShapeError",
       "conv3d: an input of shape"},
  };
  return s;
}

OpSamples ConvTranspose::samples() {
  OpSamples s{.op = "conv_transpose", .growth = 64, .scale = 8};
  s.good = {
      transpose_sample("plain", {2, 2, 3, 4}, {2, 3, 3, 2}, true),
      transpose_sample("no bias", {2, 2, 3, 4}, {2, 3, 3, 2}, false),
      transpose_sample("unbatched", {2, 3, 4}, {2, 3, 2, 2}, true),
      transpose_sample("stride", {1, 2, 3, 3}, {2, 2, 3, 3}, true, {.stride = {2}}),
      transpose_sample("stride larger than kernel", {1, 2, 3, 2}, {2, 2, 2, 1}, true, {.stride = {3}}),
      transpose_sample("padding", {1, 2, 4, 4}, {2, 2, 3, 3}, true, {.padding = {1}}),
      transpose_sample("padding pair", {1, 2, 3, 4}, {2, 2, 3, 3}, false, {.padding = {0, 2}}),
      transpose_sample("output_padding", {1, 2, 3, 3}, {2, 2, 3, 3}, true,
                       {.stride = {2}, .padding = {1}, .output_padding = {1}}),
      transpose_sample("output_padding pair", {1, 2, 2, 3}, {2, 2, 2, 2}, true,
                       {.stride = {2, 3}, .output_padding = {1, 2}}),
      transpose_sample("output_padding below dilation", {1, 2, 3, 3}, {2, 2, 2, 2}, true,
                       {.dilation = {3}, .output_padding = {2}}),
      transpose_sample("dilation", {1, 2, 3, 3}, {2, 2, 2, 3}, true, {.dilation = {2}}),
      transpose_sample("groups", {2, 4, 3, 3}, {4, 3, 2, 2}, true, {.groups = 2}),
      transpose_sample("depthwise", {2, 3, 3, 4}, {3, 1, 3, 3}, true, {.stride = {2}, .groups = 3}),
      transpose_sample(
          "all", {1, 4, 3, 4}, {4, 1, 3, 2}, true,
          {.stride = {2, 3}, .padding = {1, 2}, .dilation = {1, 2}, .output_padding = {1, 2}, .groups = 2}),
      transpose_sample("pointwise", {2, 3, 3, 2}, {3, 4, 1, 1}, true),
      transpose_sample("one pixel", {1, 1, 1, 1}, {1, 1, 1, 1}, true),
      transpose_sample("one pixel, larger kernel", {1, 2, 1, 1}, {2, 3, 4, 4}, true),
      transpose_sample("larger", {2, 6, 9, 11}, {6, 5, 3, 3}, true,
                       {.stride = {2}, .padding = {1}, .output_padding = {1}}),
      transpose_sample("batch 0", {0, 2, 3, 3}, {2, 3, 3, 3}, true),
      transpose_sample("plain", {2, 3, 5}, {3, 2, 3}, true),
      transpose_sample("unbatched", {3, 5}, {3, 2, 3}, false),
      transpose_sample("all", {1, 4, 5}, {4, 2, 3}, true,
                       {.stride = {3}, .padding = {1}, .dilation = {2}, .output_padding = {2}, .groups = 2}),
      transpose_sample("plain", {1, 2, 2, 3, 2}, {2, 2, 2, 2, 2}, true),
      transpose_sample("unbatched", {2, 2, 2, 3}, {2, 1, 2, 1, 2}, true),
      transpose_sample(
          "all", {1, 2, 2, 3, 2}, {2, 1, 2, 2, 3}, true,
          {.stride = {2, 1, 2}, .padding = {1, 0, 1}, .dilation = {1, 2, 1}, .output_padding = {1, 0, 1}, .groups = 2}),
  };
  Arg x = real({1, 4, 5, 5}), w = real({4, 6, 3, 3}), none = missing_arg();
  s.bad = {
      bad_transpose("channels", real({1, 3, 5, 5}), w, none, {}, "ShapeError",
                    "conv_transpose2d: an input of shape [1, 3, 5, 5] has 3 channels"),
      bad_transpose("groups", x, w, none, {.groups = 3}, "ShapeError", "positive multiple of the 3 groups"),
      bad_transpose("groups 0", x, w, none, {.groups = 0}, "ValueError", "groups must be at least 1"),
      bad_transpose("input rank", real({5, 5}), w, none, {}, "ShapeError", "must have 4 dimensions"),
      bad_transpose("weight rank", x, real({4, 6, 3}), none, {}, "ShapeError", "must have 4 dimensions"),
      bad_transpose("bias size", x, w, real({4}), {}, "ShapeError", "expected [6]"),
      bad_transpose("stride 0", x, w, none, {.stride = {0}}, "ValueError", "the stride must be at least 1"),
      bad_transpose("padding negative", x, w, none, {.padding = {-1}}, "ValueError",
                    "the padding must not be negative"),
      bad_transpose("padding eats all", x, w, none, {.padding = {4}}, "ShapeError", "gives a result of size -1"),
      bad_transpose("dilation 0", x, w, none, {.dilation = {0}}, "ValueError", "the dilation must be at least 1"),
      bad_transpose("output_padding too large", x, w, none, {.stride = {2}, .output_padding = {2}}, "ValueError",
                    "output_padding 2 must be at least 0 and smaller than the stride 2 or the dilation 1"),
      bad_transpose("output_padding negative", x, w, none, {.output_padding = {-1}}, "ValueError", "output_padding -1"),
      bad_transpose("output_padding count", x, w, none, {.output_padding = {0, 0, 0}}, "ValueError",
                    "output_padding has 3 numbers"),
      bad_transpose("empty input", real({1, 4, 5, 0}), w, none, {}, "ShapeError", "only its batch size may be 0"),
      bad_transpose("weight dtype", x, index_arg({4, 6, 3, 3}, 3), none, {}, "DTypeError", "the weight i64"),
      bad_transpose("integers", index_arg({1, 4, 5, 5}, 3), w, none, {}, "DTypeError", "does not take i64"),
      bad_transpose("no weight", x, none, none, {}, "ValueError", "the weight is an undefined tensor"),
  };
  return s;
}

OpSamples ConvBackwardWeight::samples() {
  OpSamples s{.op = "conv_backward_weight", .growth = 64, .scale = 16};
  auto sample = [&](std::string note, Shape x, Shape w, Setting set = {}) {
    int spatial = w.size() - 2;
    ConvGeometry p{.spatial = spatial, .groups = set.groups};
    Shape g{x[0], w[0]};
    ConvBackwardWeight::Params q;
    for (int d = 0; d < spatial; ++d) {
      auto i = static_cast<size_t>(d);
      p.stride[i] = entry(set.stride, d), p.padding[i] = entry(set.padding, d), p.dilation[i] = entry(set.dilation, d);
      q.kernel[i] = w[d + 2];
      g.push_back((x[d + 2] + 2 * p.padding[i] - p.dilation[i] * (w[d + 2] - 1) - 1) / p.stride[i] + 1);
    }
    q.geometry = p;
    s.good.push_back(
        {std::to_string(spatial) + "d " + note,
         {real(x, -1, 1), real(g, -1, 1)},
         [q](const Tensors& t) -> Tensors { return {call<ConvBackwardWeight>(Site::current(), q, t[0], t[1])}; },
         [=](const Tensors& t) -> Tensors {
           Tensor out = zeros(w, DType::f64);
           Volume vx(t[0], spatial), vg(t[1], spatial), vw(out, spatial);
           int64_t per_group = vw.n / set.groups;
           for_each_product(vg, vx, vw, Steps(set, spatial),
                            [&](int64_t i, auto* o, int64_t co, auto* at, int64_t ci, auto* k) {
                              vw.at(co, ci, k) += vx.at(i, co / per_group * vw.c + ci, at) * vg.at(i, co, o);
                            });
           return {out};
         }});
  };
  sample("plain", {2, 2, 4, 4}, {3, 2, 2, 3});
  sample("stride", {1, 2, 6, 5}, {2, 2, 3, 2}, {.stride = {2}});
  sample("padding", {1, 2, 3, 4}, {2, 2, 3, 3}, {.padding = {1}});
  sample("dilation", {1, 2, 5, 5}, {2, 2, 2, 2}, {.dilation = {2}});
  sample("groups", {2, 4, 3, 3}, {2, 2, 2, 2}, {.groups = 2});
  sample("depthwise", {2, 3, 4, 4}, {3, 1, 3, 3}, {.padding = {1}, .groups = 3});
  sample("pointwise", {2, 3, 3, 3}, {4, 3, 1, 1});
  sample("larger", {2, 5, 11, 9}, {6, 5, 3, 3}, {.stride = {2}, .padding = {1}});
  sample("batch 0", {0, 2, 4, 4}, {3, 2, 2, 2});
  sample("plain", {2, 2, 6}, {3, 2, 3});
  sample("all", {1, 4, 9}, {2, 2, 2}, {.stride = {3}, .padding = {1}, .dilation = {2}, .groups = 2});
  sample("plain", {1, 2, 3, 2, 3}, {2, 2, 2, 1, 2});
  auto bad = [&](std::string note, Arg x, Arg g) {
    s.bad.push_back({note,
                     {x, g},
                     [](const Tensors& t) -> Tensors {
                       return {call<ConvBackwardWeight>(Site::current(), {{}, {2, 2, 1}}, t[0], t[1])};
                     },
                     "ShapeError",
                     "do not belong to one convolution"});
  };
  bad("rank", real({2, 3, 4}), real({2, 3, 3, 3}));
  bad("batch", real({2, 3, 4, 4}), real({1, 2, 3, 3}));
  bad("dtype", real({2, 3, 4, 4}), index_arg({2, 2, 3, 3}, 3));
  bad("undefined", real({2, 3, 4, 4}), missing_arg());
  return s;
}

}  // namespace deft
