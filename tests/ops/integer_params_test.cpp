// Every integer that an op takes, one at a time and in pairs, over zero, small numbers and those around which 16, 32
// and 64 bits end: a right result or a typed error, within bounds of memory and work. These are the functions that
// users call, with integer_functions_test.cpp; integer_fields_test.cpp has the parameters of the ops themselves.
#include "integer_sweep.h"

namespace deft::testing {
namespace {

// --- Windows over a plane --------------------------------------------------------------------------------------

// Where a tap of a window reads, or -1.
int64_t source_of(int64_t position, int64_t stride, int64_t padding, int64_t tap, int64_t dilation, int64_t size) {
  const __int128 at = static_cast<__int128>(position) * stride - padding + static_cast<__int128>(tap) * dilation;
  return at >= 0 && at < size ? static_cast<int64_t>(at) : -1;
}

struct Image {
  Tensor x;
  std::vector<double> values;
  explicit Image(Shape sizes) : x(counting(sizes)), values(x.to_vector<double>()) {}
  double at(int64_t n, int64_t c, int64_t y, int64_t col) const {
    const Shape& s = x.sizes();
    return y < 0 || col < 0 ? 0 : values[static_cast<size_t>(((n * s[1] + c) * s[2] + y) * s[3] + col)];
  }
};

// Numbers: stride, padding and dilation of the rows, then of the columns, then groups.
Function convolution(const std::string& name, bool channels_last) {
  auto x = std::make_shared<Image>(Shape{2, 4, 5, 4}), w = std::make_shared<Image>(Shape{6, 2, 3, 2});
  Tensor given = channels_last ? x->x.contiguous(MemoryFormat::channels_last) : x->x;
  auto call = [=](const Numbers& n) {
    Tensor in = given.detach().requires_grad_(), weight = w->x.detach().requires_grad_();
    return conv2d(in, weight, {}, {n[0], n[3]}, {n[1], n[4]}, {n[2], n[5]}, n[6]);
  };
  auto expect = [=](const Numbers& n, const Shape& at) {
    const int64_t group = at[1] / (6 / n[6]);
    double sum = 0;
    for (int64_t c = 0; c < 2; ++c)
      for (int64_t ky = 0; ky < 3; ++ky)
        for (int64_t kx = 0; kx < 2; ++kx)
          sum += w->at(at[1], c, ky, kx) * x->at(at[0], group * 2 + c, source_of(at[2], n[0], n[1], ky, n[2], 5),
                                                 source_of(at[3], n[3], n[4], kx, n[5], 4));
    return sum;
  };
  return {name, {1, 0, 1, 1, 0, 1, 2}, call, expect, true};
}

// The same, with output_padding of rows and columns at the end.
Function transposed(const std::string& name, bool channels_last) {
  auto x = std::make_shared<Image>(Shape{2, 4, 2, 3}), w = std::make_shared<Image>(Shape{4, 3, 3, 2});
  Tensor given = channels_last ? x->x.contiguous(MemoryFormat::channels_last) : x->x;
  auto call = [=](const Numbers& n) {
    Tensor in = given.detach().requires_grad_(), weight = w->x.detach().requires_grad_();
    return conv_transpose2d(in, weight, {}, {n[0], n[3]}, {n[1], n[4]}, {n[7], n[8]}, n[6], {n[2], n[5]});
  };
  auto expect = [=](const Numbers& n, const Shape& at) {
    const int64_t group = at[1] / 3, size = 4 / n[6];
    double sum = 0;
    for (int64_t y = 0; y < 2; ++y)
      for (int64_t col = 0; col < 3; ++col)
        for (int64_t ky = 0; ky < 3; ++ky)
          for (int64_t kx = 0; kx < 2; ++kx) {
            if (source_of(y, n[0], n[1], ky, n[2], kMost) != at[2]) continue;
            if (source_of(col, n[3], n[4], kx, n[5], kMost) != at[3]) continue;
            for (int64_t c = 0; c < size; ++c)
              sum += x->at(at[0], group * size + c, y, col) * w->at(group * size + c, at[1] % 3, ky, kx);
          }
    return sum;
  };
  return {name, {2, 0, 1, 2, 0, 1, 1, 0, 0}, call, expect, true};
}

TEST_F(IntegerParams, Convolutions) {
  sweep({convolution("conv2d", false), convolution("conv2d of pixels", true), transposed("conv_transpose2d", false),
         transposed("conv_transpose2d of pixels", true)});
}

TEST_F(IntegerParams, ConvolutionsOfLinesAndVolumes) {
  Tensor line = counting({1, 2, 9}), volume = counting({1, 2, 3, 4, 3}), lone = ones({1, 1, 4, 4});
  Tensor line_weight = counting({2, 2, 3}), volume_weight = counting({2, 2, 2, 2, 2}),
         depth_weight = counting({2, 1, 3});
  sweep({{"conv1d",
          {1, 0, 1, 1},
          [&](const Numbers& n) {
            return conv1d(line.detach().requires_grad_(), line_weight, {}, {n[0]}, {n[1]}, {n[2]}, n[3]);
          },
          nullptr,
          true},
         {"conv1d of each channel",
          {1, 0, 1},
          [&](const Numbers& n) {
            return conv1d(line.detach().requires_grad_(), depth_weight, {}, {n[0]}, {n[1]}, {n[2]}, 2);
          },
          nullptr,
          true},
         {"conv1d same",
          {1, 1},
          [&](const Numbers& n) { return conv1d(line, line_weight, {}, {n[0]}, ConvPadding::same, {n[1]}); }},
         {"conv3d",
          {1, 0, 1, 1},
          [&](const Numbers& n) {
            return conv3d(volume.detach().requires_grad_(), volume_weight, {}, {n[0]}, {n[1]}, {n[2]}, n[3]);
          },
          nullptr,
          true},
         {"conv2d of one tap",
          {1, 0, 1},
          [&](const Numbers& n) {
            return conv2d(lone, ones({1, 1, 1, 1}), {}, {n[0]}, {n[1]}, {n[2]});
          },
          [](const Numbers& n, const Shape& at) {
            return source_of(at[2], n[0], n[1], 0, 1, 4) >= 0 && source_of(at[3], n[0], n[1], 0, 1, 4) >= 0 ? 1.0 : 0.0;
          }},
         {"conv_transpose1d",
          {1, 0, 0, 1, 1},
          [&](const Numbers& n) {
            return conv_transpose1d(line.detach().requires_grad_(), line_weight, {}, {n[0]}, {n[1]}, {n[2]}, n[3],
                                    {n[4]});
          },
          nullptr,
          true},
         {"conv_transpose3d", {1, 0, 0, 1, 1}, [&](const Numbers& n) {
            return conv_transpose3d(volume, volume_weight, {}, {n[0]}, {n[1]}, {n[2]}, n[3], {n[4]});
          }}});
}

TEST_F(IntegerParams, Pools) {
  auto image = std::make_shared<Image>(Shape{1, 2, 6, 5});
  Tensor line = counting({2, 7}), volume = counting({1, 1, 3, 4, 3}), x = image->x.detach().requires_grad_();
  Tensor pixels = image->x.contiguous(MemoryFormat::channels_last).requires_grad_();
  auto windows = [&](const Tensor& in) {
    return [&in](const Numbers& n) { return max_pool2d(in, {n[0], 2}, {n[1], 1}, {n[2], 0}, {n[3], 1}, n[4] != 0); };
  };
  auto largest = [=](const Numbers& n, const Shape& at) {
    double best = -HUGE_VAL;
    for (int64_t ky = 0; ky < std::min<int64_t>(n[0], 1 << 17); ++ky) {
      const int64_t y = source_of(at[2], n[1], n[2], ky, n[3], 6);
      for (int64_t kx = 0; kx < 2 && y >= 0; ++kx) best = std::max(best, image->at(at[0], at[1], y, at[3] + kx));
    }
    return best;
  };
  auto mean = [&](const Tensor& in) {
    return [&in](const Numbers& n) {
      return avg_pool2d(in, {n[0], 2}, {n[1], 1}, {n[2], 0}, n[3] != 0, n[4] != 0, n[5]);
    };
  };
  sweep(
      {{"max_pool2d", {2, 1, 0, 1, 0}, windows(x), largest, true},
       {"max_pool2d of pixels", {2, 1, 0, 1, 0}, windows(pixels), largest, true},
       {"max_pool1d", {2, 1, 0, 1}, [&](const Numbers& n) { return max_pool1d(line, {n[0]}, {n[1]}, {n[2]}, {n[3]}); }},
       {"max_pool3d",
        {2, 1, 0, 1},
        [&](const Numbers& n) { return max_pool3d(volume, {n[0]}, {n[1]}, {n[2]}, {n[3]}); }},
       {"avg_pool2d", {2, 1, 0, 0, 1, 0}, mean(x), nullptr, true},
       {"avg_pool2d of pixels", {2, 1, 0, 0, 1, 0}, mean(pixels), nullptr, true},
       {"avg_pool1d", {2, 1, 0}, [&](const Numbers& n) { return avg_pool1d(line, {n[0]}, {n[1]}, {n[2]}); }},
       {"avg_pool3d",
        {2, 1, 0, 0},
        [&](const Numbers& n) { return avg_pool3d(volume, {n[0]}, {n[1]}, {n[2]}, n[3] != 0); }},
       {"adaptive_avg_pool2d",
        {2, 2},
        [&](const Numbers& n) {
          return adaptive_avg_pool2d(x, {n[0], n[1]});
        },
        nullptr,
        true},
       {"adaptive_max_pool1d", {2}, [&](const Numbers& n) { return adaptive_max_pool1d(line, {n[0]}); }},
       {"adaptive_avg_pool3d", {2, 2}, [&](const Numbers& n) {
          return adaptive_avg_pool3d(volume, {n[0], n[1], 1});
        }}});
}

TEST_F(IntegerParams, UnfoldAndFold) {
  auto image = std::make_shared<Image>(Shape{1, 1, 4, 5});
  Tensor columns = counting({1, 4, 6});
  auto expect = [=](const Numbers& n, const Shape& at) {
    const int64_t taps = n[1], width = (5 + 2 * n[5] - n[3] * (n[1] - 1) - 1) / n[7] + 1;
    return image->at(0, 0, source_of(at[2] / width, n[6], n[4], at[1] / taps, n[2], 4),
                     source_of(at[2] % width, n[7], n[5], at[1] % taps, n[3], 5));
  };
  sweep({{"unfold",
          {2, 2, 1, 1, 0, 0, 1, 1},
          [=](const Numbers& n) {
            return unfold(image->x.detach().requires_grad_(), {n[0], n[1]}, {n[2], n[3]}, {n[4], n[5]}, {n[6], n[7]});
          },
          expect,
          true},
         {"fold", {3, 4, 2, 2, 1, 0, 1}, [&](const Numbers& n) {
            return fold(columns, {n[0], n[1]}, {n[2], n[3]}, {n[4]}, {n[5]}, {n[6]});
          }}});
}

// --- Sizes and borders -----------------------------------------------------------------------------------------

TEST_F(IntegerParams, PadsAndResizes) {
  auto image = std::make_shared<Image>(Shape{1, 1, 4, 5});
  const Tensor x = image->x.detach().requires_grad_(),
               pixels = counting({1, 2, 3, 3}).contiguous(MemoryFormat::channels_last);
  auto pads = [&](PadMode mode) {
    return [&x, mode](const Numbers& n) { return pad(x, {n[0], n[1], n[2], n[3]}, mode); };
  };
  auto with_zeros = [=](const Numbers& n, const Shape& at) {
    return image->at(0, 0, source_of(at[2], 1, n[2], 0, 1, 4), source_of(at[3], 1, n[0], 0, 1, 5));
  };
  std::vector<Function> functions = {{"pad", {1, 1, 1, 1}, pads(PadMode::constant), with_zeros, true},
                                     {"pad of pixels",
                                      {1, 1, 1, 1},
                                      [&](const Numbers& n) {
                                        return pad(pixels, {n[0], n[1], n[2], n[3]});
                                      }},
                                     {"pad of the last",
                                      {1, 1},
                                      [](const Numbers& n) {
                                        return pad(ones({2, 3, 4}), {0, 0, n[0], n[1]});
                                      }},
                                     {"pad reflect", {1, 1, 1, 1}, pads(PadMode::reflect), nullptr, true},
                                     {"pad replicate", {1, 1, 1, 1}, pads(PadMode::replicate), nullptr, true},
                                     {"pad circular", {1, 1, 1, 1}, pads(PadMode::circular), nullptr, true}};
  for (InterpolateMode mode :
       {InterpolateMode::nearest, InterpolateMode::nearest_exact, InterpolateMode::linear, InterpolateMode::bicubic})
    functions.push_back({"interpolate " + std::to_string(static_cast<int>(mode)),
                         {7, 7},
                         [&x, mode](const Numbers& n) {
                           return interpolate(x, {n[0], n[1]}, mode);
                         },
                         nullptr,
                         true});
  sweep(functions);
}

TEST_F(IntegerParams, Creation) {
  sweep({{"empty",
          {2, 3},
          [](const Numbers& n) {
            return zeros({n[0], n[1]});
          }},
         {"full",
          {2, 3, 4},
          [](const Numbers& n) {
            return full({n[0], n[1], n[2]}, 1.5);
          },
          [](const Numbers&, const Shape&) { return 1.5; }},
         {"arange",
          {0, 10, 3},
          [](const Numbers& n) { return arange(n[0], n[1], n[2]).slice(0, Slice(0, 3)); },
          [](const Numbers& n, const Shape& at) {
            return static_cast<double>(static_cast<__int128>(n[0]) + static_cast<__int128>(at[0]) * n[2]);
          }},
         {"arange of f32", {0, 10, 3}, [](const Numbers& n) { return arange(n[0], n[1], n[2], TensorOptions(f32)); }},
         {"linspace", {5}, [](const Numbers& n) { return linspace(0, 1, n[0]); }},
         {"eye",
          {3, 4},
          [](const Numbers& n) { return eye(n[0], n[1]); },
          [](const Numbers&, const Shape& at) { return at[0] == at[1] ? 1.0 : 0.0; }},
         {"randint", {0, 5, 3}, [](const Numbers& n) { return randint(n[0], n[1], {n[2]}); }},
         {"randperm", {5}, [](const Numbers& n) { return randperm(n[0]); }},
         {"one_hot",
          {4},
          [](const Numbers& n) {
            return one_hot(tensor<int64_t>({0, 2}), n[0]);
          }},
         {"from_blob", {2, 3, 3, 1}, [](const Numbers& n) {
            static float memory[6];
            if (n[0] > 2 || n[1] > 3 || n[2] > 3 || n[3] > 1) {  // beyond the memory: only that sizes are checked
              Tensor t = from_blob(memory, {n[0], n[1]}, {}, {n[2], n[3]});
              (void)t.meta().span();
              return zeros({0});
            }
            return from_blob(memory, {n[0], n[1]}, {}, {n[2], n[3]}).clone();
          }}});
}

// --- Views, and what is made of them ---------------------------------------------------------------------------

TEST_F(IntegerParams, Views) {
  const Tensor x = counting({3, 4, 2}).requires_grad_(), empty = zeros({0, 3}), one = counting({1});
  auto at = [&](int64_t i, int64_t j, int64_t k) { return static_cast<float>((i * 4 + j) * 2 + k) * 0.01f + 1; };
  sweep({{"view",
          {4, 6},
          [&](const Numbers& n) {
            return x.view({n[0], n[1]});
          }},
         {"view of nothing",
          {0, 3, 1},
          [&](const Numbers& n) {
            return empty.view({n[0], n[1], n[2]});
          }},
         {"reshape",
          {4, 6},
          [&](const Numbers& n) {
            return x.transpose(0, 1).reshape({n[0], n[1]});
          },
          nullptr,
          true},
         {"expand",
          {3, 2},
          [&](const Numbers& n) {
            return one.expand({n[0], n[1]});
          }},
         {"flatten", {0, 1}, [&](const Numbers& n) { return x.flatten(n[0], n[1]); }},
         {"permute",
          {1, 0, 2},
          [&](const Numbers& n) {
            return x.permute({n[0], n[1], n[2]});
          }},
         {"transpose", {1, 0}, [&](const Numbers& n) { return x.transpose(n[0], n[1]); }},
         {"movedim", {1, 0}, [&](const Numbers& n) { return movedim(x, n[0], n[1]); }},
         {"squeeze", {1}, [&](const Numbers& n) { return x.squeeze(n[0]); }},
         {"unsqueeze", {1}, [&](const Numbers& n) { return x.unsqueeze(n[0]); }},
         {"select", {1, 1}, [&](const Numbers& n) { return x.select(n[0], n[1]); }, nullptr, true},
         {"slice",
          {1, 0, 3, 1},
          [&](const Numbers& n) { return x.slice(n[0], Slice(n[1], n[2], n[3])); },
          [=](const Numbers& n, const Shape& p) {
            const int64_t d = n[0] < 0 ? n[0] + 3 : n[0], size = d == 0 ? 3 : d == 1 ? 4 : 2;
            const int64_t first = std::clamp<int64_t>(n[1] < 0 ? n[1] + size : n[1], 0, size);
            Shape from = p;
            from[static_cast<int>(d)] = first + p[static_cast<int>(d)] * n[3];
            return at(from[0], from[1], from[2]);
          },
          true},
         {"narrow", {1, 1, 2}, [&](const Numbers& n) { return x.narrow(n[0], n[1], n[2]); }, nullptr, true},
         {"as_strided",
          {2, 3, 4, 1, 0},
          [&](const Numbers& n) {
            return x.as_strided({n[0], n[1]}, {n[2], n[3]}, n[4]);
          },
          nullptr,
          true},
         {"as_strided, sliced and joined",
          {1, 4, 3},
          [&](const Numbers& n) {
            Tensor t = x.as_strided({n[0], 1, 2}, {n[1], n[1], 1}, 0);
            return t.slice(0, Slice({}, {}, n[2])).unsqueeze(0).diagonal(0, 0, 1).sum();
          }},
         {"diagonal", {0, 0, 1}, [&](const Numbers& n) { return x.diagonal(n[0], n[1], n[2]); }, nullptr, true},
         {"split", {2, 0}, [&](const Numbers& n) { return x.split(n[0], n[1])[0]; }},
         {"split by sizes",
          {1, 2, 0},
          [&](const Numbers& n) {
            return split(x, {n[0], n[1]}, n[2])[0];
          }},
         {"chunk", {2, 0}, [&](const Numbers& n) { return x.chunk(n[0], n[1])[0]; }},
         {"chunk of nothing", {2, 0}, [&](const Numbers& n) { return empty.chunk(n[0], n[1])[0]; }},
         {"unbind", {0}, [&](const Numbers& n) { return x.unbind(n[0])[0]; }},
         {"index", {1, 0, 3, 1}, [&](const Numbers& n) {
            return x.index({n[0], Slice(n[1], n[2], n[3])});
          }}});
}

TEST_F(IntegerParams, CopiesAndReductions) {
  const Tensor x = counting({3, 4}).requires_grad_(), square = counting({4, 4});
  const Tensor index = tensor<int64_t>({0, 2}), rows = tensor<int64_t>({0, 1, 1, 0}).view({1, 4});
  auto roll_of = [](const Numbers& n, const Shape& p) {
    const int64_t d = n[1] < 0 ? n[1] + 2 : n[1], size = d == 0 ? 3 : 4;
    Shape from = p;
    const __int128 back = (static_cast<__int128>(p[static_cast<int>(d)]) - n[0]) % size;
    from[static_cast<int>(d)] = static_cast<int64_t>(back < 0 ? back + size : back);
    return (from[0] * 4 + from[1]) * 0.01 + 1;
  };
  sweep(
      {{"repeat",
        {1, 2},
        [&](const Numbers& n) {
          return repeat(x, {n[0], n[1]});
        },
        nullptr,
        true},
       {"repeat_interleave", {2, 0}, [&](const Numbers& n) { return repeat_interleave(x, n[0], n[1]); }, nullptr, true},
       {"roll", {1, 0}, [&](const Numbers& n) { return roll(x, n[0], n[1]); }, roll_of, true},
       {"flip",
        {0, 1},
        [&](const Numbers& n) {
          return flip(x, {n[0], n[1]});
        }},
       {"tril",
        {0},
        [&](const Numbers& n) { return tril(square, n[0]); },
        [](const Numbers& n, const Shape& p) { return p[1] - p[0] <= n[0] ? (p[0] * 4 + p[1]) * 0.01 + 1 : 0; }},
       {"triu",
        {0},
        [&](const Numbers& n) { return triu(square, n[0]); },
        [](const Numbers& n, const Shape& p) { return p[1] - p[0] >= n[0] ? (p[0] * 4 + p[1]) * 0.01 + 1 : 0; }},
       {"cat",
        {0},
        [&](const Numbers& n) {
          return cat({x, x}, n[0]);
        }},
       {"stack",
        {0},
        [&](const Numbers& n) {
          return stack({x, x}, n[0]);
        }},
       {"sum",
        {0, 1},
        [&](const Numbers& n) {
          return x.sum({n[0], n[1]});
        }},
       {"amax", {1}, [&](const Numbers& n) { return x.amax({n[0]}); }},
       {"var", {1, 1}, [&](const Numbers& n) { return x.var({n[0]}, static_cast<double>(n[1])); }},
       {"argmax", {1}, [&](const Numbers& n) { return x.argmax(n[0]); }},
       {"softmax", {1}, [&](const Numbers& n) { return softmax(x, n[0]); }},
       {"cumsum", {1}, [&](const Numbers& n) { return cumsum(x, n[0]); }},
       {"diff", {1, 1}, [&](const Numbers& n) { return diff(x, n[0], n[1]); }, nullptr, true},
       {"sort", {1}, [&](const Numbers& n) { return sort(x, n[0])[0]; }},
       {"topk", {2, 1}, [&](const Numbers& n) { return topk(x, n[0], n[1])[0]; }},
       {"index_select", {1}, [&](const Numbers& n) { return index_select(x, n[0], index); }},
       {"gather", {0}, [&](const Numbers& n) { return gather(x, n[0], rows); }},
       {"embedding", {0}, [&](const Numbers& n) { return embedding(index, x, n[0]); }},
       {"tensordot", {1}, [&](const Numbers& n) { return tensordot(square, square, n[0]); }},
       {"group_norm",
        {2},
        [&](const Numbers& n) {
          return group_norm(counting({2, 4, 3}), n[0]);
        }},
       {"cosine_similarity", {1}, [&](const Numbers& n) { return cosine_similarity(x, x, n[0]); }}});
}

}  // namespace
}  // namespace deft::testing
