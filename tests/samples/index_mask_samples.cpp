#include "ops/gather_scatter.h"
#include "samples/reference.h"

namespace deft {

namespace {

using reference::build;
using reference::coordinates;
using reference::place_of;

BadSample bad(std::string note, std::vector<Arg> args, SampleFn call, std::string error, std::string text) {
  return {std::move(note), std::move(args), std::move(call), std::move(error), std::move(text)};
}

}  // namespace

OpSamples MaskedSelect::samples() {
  OpSamples s{.op = "masked_select", .dtypes = kAllTypes};
  auto call = [](const Tensors& t) { return Tensors{masked_select(t[0], t[1])}; };
  auto add = [&](std::string note, Shape x, Shape mask) {
    auto expect = [](const Tensors& t) {
      Shape both = broadcast_shapes(t[0].sizes(), t[1].sizes(), "masked_select");
      Tensor all = t[0].expand(both).contiguous(), chosen = t[1].expand(both).contiguous();
      std::vector<double> kept;
      for (int64_t i = 0; i < all.numel(); ++i)
        if (chosen.data<bool>()[i]) kept.push_back(all.data<double>()[i]);
      return Tensors{tensor(kept)};
    };
    s.good.push_back({note, {real(x), boolean_arg(mask)}, call, expect, "torch.masked_select(a, b)"});
  };
  add("vector", {7}, {7});
  add("matrix", {3, 5}, {3, 5});
  add("rank 3", {2, 3, 4}, {2, 3, 4});
  add("rank 4", {2, 3, 2, 3}, {2, 3, 2, 3});
  add("mask broadcasts", {3, 4}, {4});
  add("tensor broadcasts", {4}, {3, 4});
  add("both broadcast", {3, 1}, {1, 5});
  add("0-d mask", {3}, {});
  add("0-d", {}, {});
  add("empty", {0, 3}, {0, 3});
  add("odd", {17, 3}, {17, 3});
  s.bad = {
      bad("mask type", {real({3}), index_arg({3}, 2)}, call, "DTypeError", "masked_select: the mask must be bool"),
      bad("shapes", {real({3}), boolean_arg({4})}, call, "ShapeError", "masked_select: "),
      bad("no mask", {real({3}), missing_arg()}, call, "ValueError", "masked_select: "),
      bad("no tensor", {missing_arg(), boolean_arg({3})}, call, "ValueError", "masked_select: "),
  };
  return s;
}

OpSamples MaskedUnpack::samples() {
  OpSamples s{.op = "masked_unpack", .dtypes = kAllTypes};
  // As many values as the mask has room for; more are left over.
  auto unpack = [](const Tensors& t) {
    int64_t n = nonzero(t[1]).sizes()[0];
    return Tensors{call<MaskedUnpack>(Site::current(), {}, t[0].narrow(0, 0, n), t[1])};
  };
  for (Shape mask :
       {Shape{7}, Shape{3, 5}, Shape{2, 3, 4}, Shape{2, 3, 2, 3}, Shape{1}, Shape{0, 3}, Shape{17, 3}, Shape{}}) {
    auto expect = [](const Tensors& t) {
      Tensor y = zeros(t[1].sizes(), DType::f64);
      int64_t used = 0;
      for (int64_t i = 0; i < y.numel(); ++i)
        if (t[1].data<bool>()[i]) y.data<double>()[i] = t[0].data<double>()[used++];
      return Tensors{y};
    };
    int64_t count = checked_numel(mask, DType::f64);
    s.good.push_back({to_string(mask),
                      {real({count}), boolean_arg(mask)},
                      unpack,
                      expect,
                      "torch.zeros_like(b, dtype=a.dtype).masked_scatter(b, a)"});
  }
  return s;
}

OpSamples Nonzero::samples() {
  OpSamples s{.op = "nonzero", .dtypes = kAllTypes, .grad = false};
  auto add = [&](std::string note, Shape sizes) {
    Arg x = real(sizes);
    x.away_from = 0;
    auto expect = [](const Tensors& t) {
      std::vector<double> found;
      for (int64_t i = 0; i < t[0].numel(); ++i)
        if (t[0].data<double>()[i] != 0 && !t[1].data<bool>()[i])
          for (int64_t c : coordinates(t[0].sizes(), i)) found.push_back(static_cast<double>(c));
      int64_t rank = t[0].dim(), rows = rank ? static_cast<int64_t>(found.size()) / rank : 0;
      if (rank == 0) rows = t[0].data<double>()[0] != 0 && !t[1].data<bool>()[0];
      return Tensors{tensor(found).view({rows, rank})};
    };
    s.good.push_back({note,
                      {x, boolean_arg(sizes)},
                      [](const Tensors& t) { return Tensors{nonzero(masked_fill(t[0], t[1], 0))}; },
                      expect,
                      "torch.nonzero(a.masked_fill(b, 0))"});
  };
  add("vector", {9});
  add("matrix", {3, 5});
  add("rank 3", {2, 3, 4});
  add("rank 4", {2, 3, 2, 3});
  add("0-d", {});
  add("one", {1, 1});
  add("empty", {0, 3});
  add("odd", {17, 3});
  s.bad = {bad(
      "undefined", {missing_arg()}, [](const Tensors& t) { return Tensors{nonzero(t[0])}; }, "ValueError",
      "undefined")};
  return s;
}

OpSamples MaskedFill::samples() {
  OpSamples s{.op = "masked_fill", .dtypes = kAllTypes};
  auto filled = [](const Tensors& t, const std::function<double()>& value) {
    Shape both = broadcast_shapes(t[0].sizes(), t[1].sizes(), "masked_fill");
    Tensor x = t[0].expand(both).contiguous(), mask = t[1].expand(both).contiguous();
    return Tensors{build(both, [&](const Shape& at) {
      int64_t i = place_of(both, at);
      return mask.data<bool>()[i] ? value() : x.data<double>()[i];
    })};
  };
  auto call = [](const Tensors& t) { return Tensors{masked_fill(t[0], t[1], 1)}; };
  auto add = [&](std::string note, Shape x, Shape mask) {
    s.good.push_back({note,
                      {real(x), boolean_arg(mask)},
                      call,
                      [=](const Tensors& t) { return filled(t, [] { return 1.0; }); },
                      "a.masked_fill(b, 1)"});
  };
  add("vector", {7}, {7});
  add("matrix", {3, 5}, {3, 5});
  add("rank 4", {2, 3, 2, 3}, {2, 3, 2, 3});
  add("mask broadcasts", {2, 3, 4}, {3, 1});
  add("tensor broadcasts", {4}, {3, 4});
  add("0-d mask", {3}, {});
  add("0-d", {}, {});
  add("empty", {0, 3}, {3});
  auto by_tensor = [](const Tensors& t) { return Tensors{masked_fill(t[0], t[1], t[2])}; };
  for (Shape sizes : {Shape{7}, Shape{3, 5}, Shape{2, 3, 4}, Shape{}})
    s.good.push_back({"by tensor " + to_string(sizes),
                      {real(sizes), boolean_arg(sizes), real({})},
                      by_tensor,
                      [=](const Tensors& t) { return filled(t, [&] { return t[2].data<double>()[0]; }); },
                      "a.masked_fill(b, c)"});
  s.bad = {
      bad("mask type", {real({3}), index_arg({3}, 2)}, call, "DTypeError", "masked_fill: the mask must be bool"),
      bad("shapes", {real({3}), boolean_arg({4})}, call, "ShapeError", ""),
      bad("value shape", {real({3}), boolean_arg({3}), real({1})}, by_tensor, "ShapeError",
          "masked_fill: the value must be one number"),
      bad("no mask", {real({3}), missing_arg()}, call, "ValueError", "masked_fill: "),
      bad("no value", {real({3}), boolean_arg({3}), missing_arg()}, by_tensor, "ValueError", "masked_fill: "),
      bad("no tensor", {missing_arg(), boolean_arg({3})}, call, "ValueError", "masked_fill: "),
      bad(
          "in place", {real({3}), boolean_arg({2, 3})},
          [](const Tensors& t) { return Tensors{Tensor(t[0]).masked_fill_(t[1], 0)}; }, "ShapeError",
          "masked_fill_: a mask of shape [2, 3] does not fit into [3]"),
  };
  return s;
}

}  // namespace deft
