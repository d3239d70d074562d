#include "ops/creation.h"
#include "ops/sample.h"
#include "ops/view.h"

namespace deft {

namespace {

using Index = Shape;
using IndexFn = std::function<Index(const Index&)>;

// A tensor of shape `sizes` whose element i is element from(i) of x. The plain definition of a view.
Tensor mapped(const Tensor& x, const Shape& sizes, const IndexFn& from) {
  Tensor out = empty(sizes, DType::f64);
  Index i = sizes;
  for (int64_t n = 0; n < out.numel(); ++n) {
    int64_t rest = n;
    for (int d = sizes.size() - 1; d >= 0; --d) {
      i[d] = rest % sizes[d];
      rest /= sizes[d];
    }
    Index source = from(i);
    int64_t at = 0;
    for (int d = 0; d < source.size(); ++d) at = at * x.sizes()[d] + source[d];
    out.data<double>()[n] = x.data<double>()[at];
  }
  return out;
}

// Same elements in the same order.
Tensor relabelled(const Tensor& x, const Shape& sizes) {
  Tensor out = empty(sizes, DType::f64);
  for (int64_t i = 0; i < out.numel(); ++i) out.data<double>()[i] = x.data<double>()[i];
  return out;
}

using ViewFn = std::function<Tensor(const Tensor&)>;

Sample order_sample(std::string note, Shape in, Shape out, ViewFn call, std::string torch) {
  return {std::move(note),
          {real(in)},
          [call](const Tensors& a) { return Tensors{call(a[0])}; },
          [out](const Tensors& a) { return Tensors{relabelled(a[0], out)}; },
          std::move(torch)};
}
Sample index_sample(std::string note, Shape in, Shape out, ViewFn call, IndexFn from, std::string torch) {
  return {std::move(note),
          {real(in)},
          [call](const Tensors& a) { return Tensors{call(a[0])}; },
          [out, from](const Tensors& a) { return Tensors{mapped(a[0], out, from)}; },
          std::move(torch)};
}
BadSample bad_sample(std::string note, Shape in, ViewFn call, std::string error, std::string text) {
  return {std::move(note),
          {real(in)},
          [call](const Tensors& a) { return Tensors{call(a[0])}; },
          std::move(error),
          std::move(text)};
}

}  // namespace

OpSamples View::samples() {
  auto to = [](Shape sizes) { return [sizes](const Tensor& x) { return x.contiguous().view(sizes); }; };
  auto reshape_to = [](Shape sizes) { return [sizes](const Tensor& x) { return x.reshape(sizes); }; };
  OpSamples s{.op = "view", .dtypes = kAllTypes};
  s.may_alias = true;
  s.good = {
      order_sample("merge", {2, 3, 4}, {6, 4}, to({6, 4}), "a.reshape(6, 4)"),
      order_sample("split", {12}, {3, 1, 4}, to({3, 1, 4}), "a.reshape(3, 1, 4)"),
      order_sample("open size", {4, 5}, {2, 10}, to({2, -1}), "a.reshape(2, -1)"),
      order_sample("to 0-d", {1, 1}, {}, to({}), "a.reshape(())"),
      order_sample("from 0-d", {}, {1, 1}, to({1, 1}), "a.reshape(1, 1)"),
      order_sample("empty", {0, 3}, {3, 0, 2}, to({3, 0, 2}), "a.reshape(3, 0, 2)"),
      order_sample("reshape", {3, 4, 5}, {5, 12}, reshape_to({5, 12}), "a.reshape(5, 12)"),
      order_sample("reshape flat", {7, 3}, {21}, reshape_to({-1}), "a.reshape(-1)"),
      order_sample("reshape rank 4", {2, 3, 2, 3}, {4, 9}, reshape_to({4, 9}), "a.reshape(4, 9)"),
      order_sample(
          "flatten", {2, 3, 4}, {24}, [](const Tensor& x) { return x.flatten(); }, "a.flatten()"),
      order_sample(
          "flatten from 1", {2, 3, 4}, {2, 12}, [](const Tensor& x) { return x.flatten(1); }, "a.flatten(1)"),
      order_sample(
          "flatten 0-d", {}, {1}, [](const Tensor& x) { return x.flatten(); }, "a.flatten()"),
  };
  s.bad = {
      bad_sample("count", {2, 3}, to({4, 2}), "ShapeError", "view: shape [4, 2] has 8 elements"),
      bad_sample("two open sizes", {2, 3}, to({-1, -1}), "ShapeError", "only one size may be -1"),
      bad_sample("negative size", {2, 3}, to({-2, 3}), "ShapeError", "must not be negative"),
      bad_sample("open size does not divide", {2, 3}, to({4, -1}), "ShapeError", "cannot be shown as"),
      bad_sample("open size of none", {0, 3}, to({0, -1}), "ShapeError", "cannot be shown as"),
      bad_sample("overflow", {2, 3}, to({INT64_MAX, 4}), "ShapeError", "too many elements"),
      bad_sample(
          "needs a copy", {3, 4}, [](const Tensor& x) { return x.t().view({12}); }, "ShapeError", "use reshape()"),
      bad_sample("reshape count", {2, 3}, reshape_to({7}), "ShapeError", "reshape: "),
      bad_sample(
          "flatten order", {2, 3}, [](const Tensor& x) { return x.flatten(1, 0); }, "ShapeError", "comes after"),
      bad_sample(
          "flatten dim", {2, 3}, [](const Tensor& x) { return x.flatten(0, 2); }, "IndexError", "flatten: "),
  };
  return s;
}

OpSamples Permute::samples() {
  auto by = [](Shape dims) { return [dims](const Tensor& x) { return x.permute(dims); }; };
  auto swap = [](int64_t a, int64_t b) { return [=](const Tensor& x) { return x.transpose(a, b); }; };
  OpSamples s{.op = "permute", .dtypes = kAllTypes};
  s.good = {
      index_sample(
          "rank 3", {2, 3, 4}, {4, 2, 3}, by({2, 0, 1}),
          [](const Index& i) {
            return Index{i[1], i[2], i[0]};
          },
          "a.permute(2, 0, 1)"),
      index_sample(
          "negative dims", {2, 3, 4}, {3, 4, 2}, by({-2, -1, 0}),
          [](const Index& i) {
            return Index{i[2], i[0], i[1]};
          },
          "a.permute(-2, -1, 0)"),
      index_sample(
          "identity", {3, 5}, {3, 5}, by({0, 1}), [](const Index& i) { return i; }, "a.permute(0, 1)"),
      index_sample(
          "square", {3, 3}, {3, 3}, by({1, 0}),
          [](const Index& i) {
            return Index{i[1], i[0]};
          },
          "a.permute(1, 0)"),
      index_sample(
          "cube", {2, 2, 2}, {2, 2, 2}, by({1, 2, 0}),
          [](const Index& i) {
            return Index{i[2], i[0], i[1]};
          },
          "a.permute(1, 2, 0)"),
      index_sample(
          "0-d", {}, {}, by({}), [](const Index& i) { return i; }, "a.permute(())"),
      index_sample(
          "empty", {0, 3}, {3, 0}, by({1, 0}),
          [](const Index& i) {
            return Index{i[1], i[0]};
          },
          "a.permute(1, 0)"),
      index_sample(
          "rank 4", {2, 3, 4, 5}, {2, 4, 5, 3}, by({0, 2, 3, 1}),
          [](const Index& i) {
            return Index{i[0], i[3], i[1], i[2]};
          },
          "a.permute(0, 2, 3, 1)"),
      index_sample(
          "transpose", {3, 5}, {5, 3}, swap(0, 1),
          [](const Index& i) {
            return Index{i[1], i[0]};
          },
          "a.transpose(0, 1)"),
      index_sample(
          "transpose negative", {2, 3, 5}, {2, 5, 3}, swap(-1, -2),
          [](const Index& i) {
            return Index{i[0], i[2], i[1]};
          },
          "a.transpose(-1, -2)"),
      index_sample(
          "transpose with itself", {2, 3}, {2, 3}, swap(1, 1), [](const Index& i) { return i; }, "a.transpose(1, 1)"),
      index_sample(
          "t", {7, 1}, {1, 7}, [](const Tensor& x) { return x.t(); },
          [](const Index& i) {
            return Index{i[1], i[0]};
          },
          "a.t()"),
      index_sample(
          "movedim", {2, 3, 4}, {3, 4, 2}, [](const Tensor& x) { return movedim(x, 0, 2); },
          [](const Index& i) {
            return Index{i[2], i[0], i[1]};
          },
          "a.movedim(0, 2)"),
  };
  s.bad = {
      bad_sample("too few dims", {2, 3}, by({0}), "ShapeError", "1 dims given for a tensor of shape [2, 3]"),
      bad_sample("dim twice", {2, 3}, by({1, -1}), "ShapeError", "named twice"),
      bad_sample("dim out of range", {2, 3}, by({0, 2}), "IndexError", "permute: "),
      bad_sample("transpose out of range", {2, 3}, swap(0, 3), "IndexError", "transpose: "),
      bad_sample(
          "movedim out of range", {2, 3}, [](const Tensor& x) { return movedim(x, -3, 0); }, "IndexError", "movedim: "),
  };
  return s;
}

OpSamples Expand::samples() {
  auto to = [](Shape sizes) { return [sizes](const Tensor& x) { return x.expand(sizes); }; };
  OpSamples s{.op = "expand", .dtypes = kAllTypes};
  s.good = {
      index_sample(
          "rows", {1, 4}, {3, 4}, to({3, 4}),
          [](const Index& i) {
            return Index{0, i[1]};
          },
          "a.expand(3, 4)"),
      index_sample(
          "columns", {3, 1}, {3, 5}, to({3, 5}),
          [](const Index& i) {
            return Index{i[0], 0};
          },
          "a.expand(3, 5)"),
      index_sample(
          "kept size", {3, 1}, {3, 2}, to({-1, 2}),
          [](const Index& i) {
            return Index{i[0], 0};
          },
          "a.expand(-1, 2)"),
      index_sample(
          "new dim", {4}, {2, 4}, to({2, 4}), [](const Index& i) { return Index{i[1]}; }, "a.expand(2, 4)"),
      index_sample(
          "0-d", {}, {2, 3}, to({2, 3}), [](const Index&) { return Index{}; }, "a.expand(2, 3)"),
      index_sample(
          "to nothing", {1, 3}, {0, 3}, to({0, 3}),
          [](const Index& i) {
            return Index{0, i[1]};
          },
          "a.expand(0, 3)"),
      index_sample(
          "no change", {2, 3}, {2, 3}, to({2, 3}), [](const Index& i) { return i; }, "a.expand(2, 3)"),
      index_sample(
          "broadcast_to", {2, 1, 3}, {2, 4, 3},
          [](const Tensor& x) {
            return broadcast_to(x, {2, 4, 3});
          },
          [](const Index& i) {
            return Index{i[0], 0, i[2]};
          },
          "torch.broadcast_to(a, (2, 4, 3))"),
  };
  s.bad = {
      bad_sample("not 1", {2, 3}, to({4, 3}), "ShapeError", "expand: size 2 at dimension 0 cannot become 4"),
      bad_sample("fewer dims", {2, 3}, to({3}), "ShapeError", "fewer dimensions"),
      bad_sample("open new dim", {3}, to({-1, 3}), "ShapeError", "expand: "),
      bad_sample("too large", {1, 1}, to({INT64_MAX, 8}), "ShapeError", ""),
  };
  return s;
}

OpSamples Squeeze::samples() {
  auto at = [](int64_t d) { return [d](const Tensor& x) { return x.squeeze(d); }; };
  auto all = [](const Tensor& x) { return x.squeeze(); };
  OpSamples s{.op = "squeeze", .dtypes = kAllTypes};
  s.good = {
      order_sample("all", {1, 3, 1, 4}, {3, 4}, all, "a.squeeze()"),
      order_sample("all to 0-d", {1, 1}, {}, all, "a.squeeze()"),
      order_sample("0-d", {}, {}, all, "a.squeeze()"),
      order_sample("none to drop", {2, 3}, {2, 3}, all, "a.squeeze()"),
      order_sample("dim 0", {1, 3, 1}, {3, 1}, at(0), "a.squeeze(0)"),
      order_sample("dim -1", {1, 3, 1}, {1, 3}, at(-1), "a.squeeze(-1)"),
      order_sample("dim that stays", {1, 3}, {1, 3}, at(1), "a.squeeze(1)"),
      order_sample("empty", {0, 1, 2}, {0, 2}, all, "a.squeeze()"),
      order_sample("0-d dim", {}, {}, at(-1), "a.squeeze(-1)"),
  };
  s.bad = {bad_sample("dim out of range", {1, 3}, at(2), "IndexError", "squeeze: "),
           bad_sample("dim too negative", {1, 3}, at(-3), "IndexError", "squeeze: ")};
  return s;
}

OpSamples Unsqueeze::samples() {
  auto at = [](int64_t d) { return [d](const Tensor& x) { return x.unsqueeze(d); }; };
  OpSamples s{.op = "unsqueeze", .dtypes = kAllTypes};
  s.good = {
      order_sample("dim=0", {2, 3}, {1, 2, 3}, at(0), "a.unsqueeze(0)"),
      order_sample("dim=1", {2, 3}, {2, 1, 3}, at(1), "a.unsqueeze(1)"),
      order_sample("dim=2", {2, 3}, {2, 3, 1}, at(2), "a.unsqueeze(2)"),
      order_sample("dim=-1", {4}, {4, 1}, at(-1), "a.unsqueeze(-1)"),
      order_sample("dim=-2", {4}, {1, 4}, at(-2), "a.unsqueeze(-2)"),
      order_sample("0-d", {}, {1}, at(0), "a.unsqueeze(0)"),
      order_sample("empty", {0, 2}, {0, 1, 2}, at(1), "a.unsqueeze(1)"),
      order_sample("size 1", {1, 1}, {1, 1, 1}, at(1), "a.unsqueeze(1)"),
  };
  s.bad = {bad_sample("dim out of range", {2, 3}, at(3), "IndexError", "unsqueeze: "),
           bad_sample("dim too negative", {2, 3}, at(-4), "IndexError", "unsqueeze: ")};
  return s;
}

OpSamples SliceOp::samples() {
  auto cut = [](int64_t d, Slice r) { return [d, r](const Tensor& x) { return x.slice(d, r); }; };
  OpSamples s{.op = "slice", .dtypes = kAllTypes};
  s.good = {
      index_sample(
          "rows", {5, 3}, {2, 3}, cut(0, {1, 3}),
          [](const Index& i) {
            return Index{i[0] + 1, i[1]};
          },
          "a[1:3]"),
      index_sample(
          "step", {3, 7}, {3, 3}, cut(1, {1, 7, 2}),
          [](const Index& i) {
            return Index{i[0], 2 * i[1] + 1};
          },
          "a[:, 1:7:2]"),
      index_sample(
          "open end", {6}, {4}, cut(0, {2, {}}), [](const Index& i) { return Index{i[0] + 2}; }, "a[2:]"),
      index_sample(
          "open start", {6}, {4}, cut(0, {{}, 4}), [](const Index& i) { return i; }, "a[:4]"),
      index_sample(
          "negative ends", {6, 2}, {3, 2}, cut(0, {-4, -1}),
          [](const Index& i) {
            return Index{i[0] + 2, i[1]};
          },
          "a[-4:-1]"),
      index_sample(
          "negative dim", {2, 3, 4}, {2, 3, 2}, cut(-1, {2, 4}),
          [](const Index& i) {
            return Index{i[0], i[1], i[2] + 2};
          },
          "a[:, :, 2:4]"),
      index_sample(
          "nothing", {4, 2}, {0, 2}, cut(0, {3, 1}), [](const Index& i) { return i; }, "a[3:1]"),
      index_sample(
          "past the end", {4}, {2}, cut(0, {2, 100}), [](const Index& i) { return Index{i[0] + 2}; }, "a[2:100]"),
      index_sample(
          "step over the end", {7}, {3}, cut(0, {0, 7, 3}), [](const Index& i) { return Index{3 * i[0]}; }, "a[0:7:3]"),
      index_sample(
          "of nothing", {0, 3}, {0, 3}, cut(0, {}), [](const Index& i) { return i; }, "a[:]"),
      index_sample(
          "narrow", {2, 5}, {2, 3}, [](const Tensor& x) { return x.narrow(1, 2, 3); },
          [](const Index& i) {
            return Index{i[0], i[1] + 2};
          },
          "a.narrow(1, 2, 3)"),
      index_sample(
          "narrow negative", {5}, {2}, [](const Tensor& x) { return x.narrow(0, -3, 2); },
          [](const Index& i) { return Index{i[0] + 2}; }, "a.narrow(0, -3, 2)"),
  };
  s.good.push_back({"split",
                    {real({5, 2})},
                    [](const Tensors& a) { return a[0].split(2); },
                    [](const Tensors& a) {
                      Tensors parts;
                      for (int64_t at : {0, 2, 4})
                        parts.push_back(mapped(a[0], {std::min<int64_t>(2, 5 - at), 2}, [at](const Index& i) {
                          return Index{i[0] + at, i[1]};
                        }));
                      return parts;
                    },
                    "a.split(2)"});
  s.good.push_back({"split sizes",
                    {real({2, 5})},
                    [](const Tensors& a) {
                      return split(a[0], IntList{1, 0, 4}, 1);
                    },
                    [](const Tensors& a) {
                      return Tensors{mapped(a[0], {2, 1}, [](const Index& i) { return i; }),
                                     mapped(a[0], {2, 0}, nullptr), mapped(a[0], {2, 4}, [](const Index& i) {
                                       return Index{i[0], i[1] + 1};
                                     })};
                    },
                    "a.split([1, 0, 4], 1)"});
  s.good.push_back({"chunks of nothing",
                    {real({2, 0})},
                    [](const Tensors& a) { return a[0].chunk(3, 1); },
                    [](const Tensors&) {
                      return Tensors(3, zeros({2, 0}, DType::f64));
                    },
                    "a.chunk(3, 1)"});
  s.good.push_back({"chunk",
                    {real({5})},
                    [](const Tensors& a) { return a[0].chunk(3); },
                    [](const Tensors& a) {
                      return Tensors{mapped(a[0], {2}, [](const Index& i) { return i; }),
                                     mapped(a[0], {2}, [](const Index& i) { return Index{i[0] + 2}; }),
                                     mapped(a[0], {1}, [](const Index& i) { return Index{i[0] + 4}; })};
                    },
                    "a.chunk(3)"});
  s.bad = {
      bad_sample("0-d", {}, cut(0, {0, 1}), "ShapeError", "0-d tensor"),
      bad_sample("step 0", {4}, cut(0, {0, 4, 0}), "ValueError", "the step must be at least 1, found 0"),
      bad_sample("step -1", {4}, cut(0, {{}, {}, -1}), "ValueError", "use flip()"),
      bad_sample("dim out of range", {4}, cut(1, {0, 1}), "IndexError", "slice: "),
      bad_sample(
          "narrow too long", {4}, [](const Tensor& x) { return x.narrow(0, 2, 3); }, "IndexError", "do not fit"),
      bad_sample(
          "narrow huge", {4}, [](const Tensor& x) { return x.narrow(0, 2, INT64_MAX); }, "IndexError", "do not fit"),
      bad_sample(
          "split by 0", {4}, [](const Tensor& x) { return x.split(0)[0]; }, "ValueError", "split: "),
      bad_sample(
          "split 0-d", {}, [](const Tensor& x) { return x.split(1)[0]; }, "ShapeError", "split: "),
      bad_sample(
          "split sum", {4},
          [](const Tensor& x) {
            return split(x, IntList{1, 2})[0];
          },
          "ShapeError", "add up to 3"),
      bad_sample(
          "split negative", {4},
          [](const Tensor& x) {
            return split(x, IntList{-1, 5})[0];
          },
          "ValueError", "negative"),
      bad_sample(
          "chunk by 0", {4}, [](const Tensor& x) { return x.chunk(0)[0]; }, "ValueError", "chunk: "),
  };
  return s;
}

OpSamples Select::samples() {
  auto pick = [](int64_t d, int64_t i) { return [d, i](const Tensor& x) { return x.select(d, i); }; };
  OpSamples s{.op = "select", .dtypes = kAllTypes};
  s.good = {
      index_sample(
          "row", {3, 4}, {4}, pick(0, 1),
          [](const Index& i) {
            return Index{1, i[0]};
          },
          "a.select(0, 1)"),
      index_sample(
          "column", {3, 4}, {3}, pick(1, 2),
          [](const Index& i) {
            return Index{i[0], 2};
          },
          "a.select(1, 2)"),
      index_sample(
          "last", {3, 4}, {3}, pick(-1, -1),
          [](const Index& i) {
            return Index{i[0], 3};
          },
          "a.select(-1, -1)"),
      index_sample(
          "to 0-d", {5}, {}, pick(0, 4), [](const Index&) { return Index{4}; }, "a.select(0, 4)"),
      index_sample(
          "first of negative", {5}, {}, pick(0, -5), [](const Index&) { return Index{0}; }, "a.select(0, -5)"),
      index_sample(
          "middle", {2, 3, 4}, {2, 4}, pick(1, 0),
          [](const Index& i) {
            return Index{i[0], 0, i[1]};
          },
          "a.select(1, 0)"),
      index_sample(
          "operator[]", {2, 3}, {3}, [](const Tensor& x) { return x[-1]; },
          [](const Index& i) {
            return Index{1, i[0]};
          },
          "a[-1]"),
      index_sample(
          "of nothing", {2, 0}, {0}, pick(0, 1),
          [](const Index& i) {
            return Index{1, i[0]};
          },
          "a.select(0, 1)"),
  };
  s.good.push_back({"unbind",
                    {real({2, 3})},
                    [](const Tensors& a) { return a[0].unbind(1); },
                    [](const Tensors& a) {
                      Tensors parts;
                      for (int64_t c = 0; c < 3; ++c)
                        parts.push_back(mapped(a[0], {2}, [c](const Index& i) { return Index{i[0], c}; }));
                      return parts;
                    },
                    "a.unbind(1)"});
  s.bad = {
      bad_sample("0-d", {}, pick(0, 0), "IndexError", "use item()"),
      bad_sample("index", {3, 4}, pick(0, 3), "IndexError", "index 3 is out of range for dimension 0 of shape [3, 4]"),
      bad_sample("negative index", {3, 4}, pick(1, -5), "IndexError", "index -5 is out of range"),
      bad_sample("dim", {3, 4}, pick(2, 0), "IndexError", "select: "),
      bad_sample("of nothing", {0}, pick(0, 0), "IndexError", "select: "),
      bad_sample(
          "unbind 0-d", {}, [](const Tensor& x) { return x.unbind()[0]; }, "ShapeError", "unbind: "),
  };
  return s;
}

OpSamples AsStrided::samples() {
  auto show = [](Shape sizes, Shape strides, int64_t offset = 0) {
    return [=](const Tensor& x) { return x.as_strided(sizes, strides, offset); };
  };
  OpSamples s{.op = "as_strided", .dtypes = kAllTypes};
  s.any_layout = false;  // its result depends on the memory order
  s.good = {
      index_sample(
          "every other", {8}, {4}, show({4}, {2}), [](const Index& i) { return Index{2 * i[0]}; },
          "a.as_strided((4,), (2,))"),
      index_sample(
          "offset", {8}, {3}, show({3}, {1}, 5), [](const Index& i) { return Index{i[0] + 5}; },
          "a.as_strided((3,), (1,), 5)"),
      index_sample(
          "windows", {6}, {4, 3}, show({4, 3}, {1, 1}), [](const Index& i) { return Index{i[0] + i[1]}; },
          "a.as_strided((4, 3), (1, 1))"),
      index_sample(
          "repeated", {3}, {4, 3}, show({4, 3}, {0, 1}), [](const Index& i) { return Index{i[1]}; },
          "a.as_strided((4, 3), (0, 1))"),
      index_sample(
          "transposed", {3, 4}, {4, 3}, show({4, 3}, {1, 4}),
          [](const Index& i) {
            return Index{i[1], i[0]};
          },
          "a.as_strided((4, 3), (1, 4))"),
      index_sample(
          "0-d", {5}, {}, show({}, {}, 2), [](const Index&) { return Index{2}; }, "a.as_strided((), (), 2)"),
      index_sample(
          "nothing", {5}, {0, 2}, show({0, 2}, {2, 1}), [](const Index& i) { return i; },
          "a.as_strided((0, 2), (2, 1))"),
      index_sample(
          "block", {4, 5}, {2, 2}, show({2, 2}, {5, 1}, 6),
          [](const Index& i) {
            return Index{i[0] + 1, i[1] + 1};
          },
          "a.as_strided((2, 2), (5, 1), 6)"),
  };
  s.bad = {
      bad_sample("too long", {8}, show({5}, {2}), "IndexError", "reach outside the 8 elements"),
      bad_sample("negative offset", {8}, show({2}, {1}, -1), "IndexError", "as_strided: "),
      bad_sample("overflow", {8}, show({INT64_MAX, 2}, {INT64_MAX, 1}), "IndexError", "as_strided: "),
      bad_sample("ranks", {8}, show({2, 2}, {1}), "ShapeError", "2 sizes but 1 strides"),
      bad_sample("negative stride", {8}, show({2}, {-1}), "ShapeError", "must not be negative"),
      bad_sample("negative size", {8}, show({-2}, {1}), "ShapeError", "must not be negative"),
  };
  return s;
}

OpSamples Diagonal::samples() {
  auto of = [](int64_t offset, int64_t a = 0, int64_t b = 1) {
    return [=](const Tensor& x) { return x.diagonal(offset, a, b); };
  };
  OpSamples s{.op = "diagonal", .dtypes = kAllTypes};
  s.good = {
      index_sample(
          "main", {4, 4}, {4}, of(0),
          [](const Index& i) {
            return Index{i[0], i[0]};
          },
          "a.diagonal()"),
      index_sample(
          "wide above", {3, 5}, {3}, of(2),
          [](const Index& i) {
            return Index{i[0], i[0] + 2};
          },
          "a.diagonal(2)"),
      index_sample(
          "tall below", {5, 3}, {3}, of(-1),
          [](const Index& i) {
            return Index{i[0] + 1, i[0]};
          },
          "a.diagonal(-1)"),
      index_sample(
          "short", {3, 5}, {1}, of(-2),
          [](const Index& i) {
            return Index{i[0] + 2, i[0]};
          },
          "a.diagonal(-2)"),
      index_sample(
          "none", {3, 3}, {0}, of(4), [](const Index& i) { return i; }, "a.diagonal(4)"),
      index_sample(
          "batch", {2, 3, 4}, {2, 3}, of(0, 1, 2),
          [](const Index& i) {
            return Index{i[0], i[1], i[1]};
          },
          "a.diagonal(0, 1, 2)"),
      index_sample(
          "negative dims", {2, 3, 4}, {3, 2}, of(1, -3, -1),
          [](const Index& i) {
            return Index{i[1], i[0], i[1] + 1};
          },
          "a.diagonal(1, -3, -1)"),
      index_sample(
          "swapped dims", {3, 4}, {3}, of(0, 1, 0),
          [](const Index& i) {
            return Index{i[0], i[0]};
          },
          "a.diagonal(0, 1, 0)"),
      index_sample(
          "empty", {0, 3}, {0}, of(0), [](const Index& i) { return i; }, "a.diagonal()"),
  };
  s.bad = {
      bad_sample("rank 1", {3}, of(0), "ShapeError", "needs at least 2 dimensions, found shape [3]"),
      bad_sample("same dims", {3, 3}, of(0, 1, -1), "ShapeError", "must differ"),
      bad_sample("dim", {3, 3}, of(0, 0, 2), "IndexError", "diagonal: "),
  };
  return s;
}

}  // namespace deft
