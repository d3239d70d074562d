#include "ops/indexing.h"

#include "ops/gather_scatter.h"
#include "samples/reference.h"

namespace deft {

namespace {

using reference::coordinates;
using reference::place_of;

BadSample bad(std::string note, std::vector<Arg> args, SampleFn call, std::string error, std::string text) {
  return {std::move(note), std::move(args), std::move(call), std::move(error), std::move(text)};
}
Arg index_range(Shape sizes, int64_t low, int64_t high) {
  return {.sizes = sizes,
          .kind = Arg::Kind::index,
          .low = static_cast<double>(low),
          .high = static_cast<double>(high),
          .grad = false};
}
// Indices of either sign into a dimension of size n.
Arg signed_index(Shape sizes, int64_t n) { return index_range(sizes, -n, n - 1); }
Arg once_each(Shape sizes, int64_t n) {
  Arg a = index_arg(sizes, n);
  a.distinct = true;
  return a;
}

const Slice kAll;
using List = std::vector<TensorIndex>;
using ListFn = std::function<List(const Tensors&)>;

// The rule told element by element: for every position of the result, which element of x it names. Lists are normal
// ones: numbers, slices, NewAxis, i64 tensors and masks, with no Ellipsis.
struct Named {
  Shape sizes;
  std::vector<int64_t> places;
};

// One dimension of x as the list treats it.
struct Axis {
  enum { fixed, range, added, listed } kind;
  int64_t size = 1;  // in the result; of a listed one: in x
  int64_t start = 0, step = 1;
  std::vector<int64_t> list;  // over the broadcast shape of all tensors
};

Named named(const Shape& x, const List& list) {
  Shape common;
  std::vector<std::pair<Shape, std::vector<int64_t>>> tensors;  // one for every listed dim
  for (const TensorIndex& i : list) {
    const Tensor* t = std::get_if<Tensor>(&i.value);
    if (!t) continue;
    if (t->dtype() == DType::i64) {
      tensors.push_back({t->sizes(), t->to_vector<int64_t>()});
    } else {
      std::vector<std::vector<int64_t>> columns(static_cast<size_t>(t->dim()));
      std::vector<bool> set = t->to_vector<bool>();
      for (int64_t f = 0; f < t->numel(); ++f)
        for (int d = 0; set[static_cast<size_t>(f)] && d < t->dim(); ++d)
          columns[static_cast<size_t>(d)].push_back(coordinates(t->sizes(), f)[d]);
      for (auto& c : columns) tensors.push_back({Shape{static_cast<int64_t>(c.size())}, c});
    }
  }
  for (auto& [sizes, v] : tensors) common = broadcast_shapes(common, sizes, "sample");

  std::vector<Axis> axes;
  int dim = 0;
  size_t next = 0;
  auto add_listed = [&] {
    auto& [sizes, v] = tensors[next++];
    Axis a{.kind = Axis::listed, .size = x[dim++], .list = {}};
    for (int64_t f = 0; f < checked_numel(common, DType::i64); ++f) {
      Shape at = coordinates(common, f), own = sizes;
      for (int d = 0; d < sizes.size(); ++d) own[d] = sizes[d] == 1 ? 0 : at[common.size() - sizes.size() + d];
      int64_t i = v[static_cast<size_t>(place_of(sizes, own))];
      a.list.push_back(i < 0 ? i + a.size : i);
    }
    axes.push_back(a);
  };
  for (const TensorIndex& i : list) {
    if (auto* n = std::get_if<int64_t>(&i.value)) {
      axes.push_back({.kind = Axis::fixed, .start = *n < 0 ? *n + x[dim] : *n, .list = {}});
      ++dim;
    } else if (auto* r = std::get_if<Slice>(&i.value)) {
      int64_t stop = std::min(r->stop.value_or(x[dim]), x[dim]), start = r->start.value_or(0);
      axes.push_back({.kind = Axis::range,
                      .size = (stop - start + r->step - 1) / r->step,
                      .start = start,
                      .step = r->step,
                      .list = {}});
      ++dim;
    } else if (std::holds_alternative<NewAxis>(i.value)) {
      axes.push_back({.kind = Axis::added, .list = {}});
    } else {
      const Tensor& t = std::get<Tensor>(i.value);
      for (int k = 0; k < (t.dtype() == DType::i64 ? 1 : t.dim()); ++k) add_listed();
    }
  }
  while (dim < x.size()) {
    axes.push_back({.kind = Axis::range, .size = x[dim], .list = {}});
    ++dim;
  }

  // Where the common dims go: at the first listed axis, or in front if other dims lie between listed ones.
  Named out;
  int first = -1, last = -1, seen = 0;
  for (const Axis& a : axes) {
    if (a.kind == Axis::listed) {
      if (first < 0) first = seen;
      last = seen;
    }
    if (a.kind != Axis::fixed) ++seen;
  }
  bool in_front = last - first + 1 != static_cast<int>(tensors.size());
  if (in_front) out.sizes = common;
  bool placed = in_front;
  int common_at = 0;
  for (const Axis& a : axes) {
    if (a.kind == Axis::listed && !placed) {
      common_at = out.sizes.size();
      for (int64_t n : common) out.sizes.push_back(n);
      placed = true;
    }
    if (a.kind == Axis::range || a.kind == Axis::added) out.sizes.push_back(a.size);
  }
  for (int64_t f = 0; f < checked_numel(out.sizes, DType::i64); ++f) {
    Shape at = coordinates(out.sizes, f), source;
    Shape in_common = common;
    for (int d = 0; d < common.size(); ++d) in_common[d] = at[common_at + d];
    int64_t entry = place_of(common, in_common);
    int d = in_front ? common.size() : 0;
    bool passed = in_front;
    for (const Axis& a : axes) {
      if (a.kind == Axis::listed) {
        source.push_back(a.list[static_cast<size_t>(entry)]);
        if (!passed) d += common.size();
        passed = true;
      } else if (a.kind == Axis::fixed) {
        source.push_back(a.start);
      } else if (a.kind == Axis::added) {
        ++d;
      } else {
        source.push_back(a.start + a.step * at[d++]);
      }
    }
    out.places.push_back(place_of(x, source));
  }
  return out;
}

// A way of indexing: x and the index tensors, the list as written, the same without Ellipsis, and in Python.
struct Way {
  std::string note;
  Shape x;
  std::vector<Arg> tensors;
  ListFn list;  // of the tensors
  std::string python;
  ListFn normal = nullptr;
};

// What both index and index_put are tried with. `unique` gives indices that do not repeat.
std::vector<Way> ways(bool unique) {
  auto some = [unique](Shape sizes, int64_t n) { return unique ? once_each(sizes, n) : signed_index(sizes, n); };
  auto any = [](Shape sizes, int64_t n) { return signed_index(sizes, n); };
  std::vector<Way> w = {
      {"first", {5, 3}, {some({4}, 5)}, [](const Tensors& t) { return List{t[0]}; }, "[b]"},
      {"last",
       {3, 5},
       {some({4}, 5)},
       [](const Tensors& t) {
         return List{kAll, t[0]};
       },
       "[:, b]"},
      {"middle",
       {2, 5, 3},
       {some({3}, 5)},
       [](const Tensors& t) {
         return List{kAll, t[0], kAll};
       },
       "[:, b, :]"},
      {"by a matrix", {7, 2}, {some({2, 3}, 7)}, [](const Tensors& t) { return List{t[0]}; }, "[b]"},
      {"rank 4",
       {2, 3, 5, 2},
       {some({4}, 5)},
       [](const Tensors& t) {
         return List{kAll, kAll, t[0]};
       },
       "[:, :, b]"},
      {"vector", {9}, {some({5}, 9)}, [](const Tensors& t) { return List{t[0]}; }, "[b]"},
      {"no indices", {4, 2}, {some({0}, 4)}, [](const Tensors& t) { return List{t[0]}; }, "[b]"},
      {"no columns", {4, 0}, {some({3}, 4)}, [](const Tensors& t) { return List{t[0]}; }, "[b]"},
      {"two together",
       {5, 4, 2},
       {some({3}, 5), any({3}, 4)},
       [](const Tensors& t) {
         return List{t[0], t[1]};
       },
       "[b, c]"},
      {"two at the end",
       {2, 5, 4},
       {some({3}, 5), any({3}, 4)},
       [](const Tensors& t) {
         return List{kAll, t[0], t[1]};
       },
       "[:, b, c]"},
      {"two apart",
       {5, 3, 4},
       {some({2}, 5), any({2}, 4)},
       [](const Tensors& t) {
         return List{t[0], kAll, t[1]};
       },
       "[b, :, c]"},
      {"two apart at the end",
       {2, 5, 3, 4},
       {some({2}, 5), any({2}, 4)},
       [](const Tensors& t) {
         return List{kAll, t[0], kAll, t[1]};
       },
       "[:, b, :, c]"},
      {"broadcast",
       {5, 4},
       {some({3, 1}, 5), some({2}, 4)},
       [](const Tensors& t) {
         return List{t[0], t[1]};
       },
       "[b, c]"},
      {"three",
       {5, 2, 3},
       {some({4}, 5), any({4}, 2), any({1}, 3)},
       [](const Tensors& t) {
         return List{t[0], t[1], t[2]};
       },
       "[b, c, d]"},
      {"slice before",
       {5, 6},
       {some({3}, 6)},
       [](const Tensors& t) {
         return List{Slice(1, 4), t[0]};
       },
       "[1:4, b]"},
      {"step after",
       {5, 7},
       {some({3}, 5)},
       [](const Tensors& t) {
         return List{t[0], Slice(1, 7, 2)};
       },
       "[b, 1:7:2]"},
      {"number before",
       {3, 5, 2},
       {some({3}, 5)},
       [](const Tensors& t) {
         return List{-1, t[0]};
       },
       "[-1, b]"},
      {"number apart",
       {3, 2, 5},
       {some({3}, 5)},
       [](const Tensors& t) {
         return List{1, kAll, t[0]};
       },
       "[1, :, b]"},
      {"number between",
       {5, 3, 4},
       {some({2}, 5), any({2}, 4)},
       [](const Tensors& t) {
         return List{t[0], 2, t[1]};
       },
       "[b, 2, c]"},
      {"new axis before",
       {5, 2},
       {some({3}, 5)},
       [](const Tensors& t) {
         return List{NewAxis(), t[0]};
       },
       "[None, b]"},
      {"new axis between",
       {5, 4},
       {some({3}, 5), any({3}, 4)},
       [](const Tensors& t) {
         return List{t[0], NewAxis(), t[1]};
       },
       "[b, None, c]"},
      {"ellipsis",
       {2, 3, 5},
       {some({4}, 5)},
       [](const Tensors& t) {
         return List{Ellipsis(), t[0]};
       },
       "[..., b]",
       [](const Tensors& t) {
         return List{kAll, kAll, t[0]};
       }},
      {"ellipsis between",
       {5, 2, 2, 4},
       {some({3}, 5), any({3}, 4)},
       [](const Tensors& t) {
         return List{t[0], Ellipsis(), t[1]};
       },
       "[b, ..., c]",
       [](const Tensors& t) {
         return List{t[0], kAll, kAll, t[1]};
       }},
      {"ellipsis of none",
       {5},
       {some({3}, 5)},
       [](const Tensors& t) {
         return List{t[0], Ellipsis()};
       },
       "[b, ...]",
       [](const Tensors& t) { return List{t[0]}; }},
      {"mask", {3, 4}, {boolean_arg({3, 4})}, [](const Tensors& t) { return List{t[0]}; }, "[b]"},
      {"mask of rows", {6, 2}, {boolean_arg({6})}, [](const Tensors& t) { return List{t[0]}; }, "[b]"},
      {"mask of columns",
       {2, 6},
       {boolean_arg({6})},
       [](const Tensors& t) {
         return List{kAll, t[0]};
       },
       "[:, b]"},
      {"mask in the middle",
       {2, 3, 4, 2},
       {boolean_arg({3, 4})},
       [](const Tensors& t) {
         return List{kAll, t[0]};
       },
       "[:, b]"},
      {"mask after a slice",
       {5, 4},
       {boolean_arg({4})},
       [](const Tensors& t) {
         return List{Slice(0, 5, 2), t[0]};
       },
       "[0:5:2, b]"},
      {"mask and index",
       {4, 5},
       {boolean_arg({4}), some({1}, 5)},
       [](const Tensors& t) {
         return List{t[0], t[1]};
       },
       "[b, c]"},
      {"mask of nothing", {0, 3}, {boolean_arg({0})}, [](const Tensors& t) { return List{t[0]}; }, "[b]"},
  };
  return w;
}

Tensors tail(const Tensors& t, size_t from, size_t count) {
  return {t.begin() + static_cast<std::ptrdiff_t>(from), t.begin() + static_cast<std::ptrdiff_t>(from + count)};
}
const ListFn& normal_list(const Way& w) { return w.normal ? w.normal : w.list; }

}  // namespace

OpSamples Index::samples() {
  OpSamples s{.op = "index", .dtypes = kAllTypes};
  for (const Way& w : ways(false)) {
    std::vector<Arg> args{real(w.x)};
    args.insert(args.end(), w.tensors.begin(), w.tensors.end());
    size_t n = w.tensors.size();
    s.good.push_back({w.note, args, [w, n](const Tensors& t) { return Tensors{t[0].index(w.list(tail(t, 1, n)))}; },
                      [w, n](const Tensors& t) {
                        Named all = named(w.x, normal_list(w)(tail(t, 1, n)));
                        Tensor y = zeros(all.sizes, DType::f64);
                        for (size_t i = 0; i < all.places.size(); ++i)
                          y.data<double>()[i] = t[0].data<double>()[all.places[i]];
                        return Tensors{y};
                      },
                      "a" + w.python});
  }
  auto call = [](ListFn list) {
    return [list](const Tensors& t) { return Tensors{t[0].index(list(tail(t, 1, t.size() - 1)))}; };
  };
  auto same = [](const Tensors& t) { return List(t.begin(), t.end()); };
  // Basic indices alone make views, hence the copies.
  auto basic = [&](std::string note, Shape x, List list, List normal, std::string python) {
    s.good.push_back({"basic " + note,
                      {real(x)},
                      [list](const Tensors& t) { return Tensors{t[0].index(list).clone()}; },
                      [x, normal](const Tensors& t) {
                        Named all = named(x, normal);
                        Tensor y = zeros(all.sizes, DType::f64);
                        for (size_t i = 0; i < all.places.size(); ++i)
                          y.data<double>()[i] = t[0].data<double>()[all.places[i]];
                        return Tensors{y};
                      },
                      "a" + python});
  };
  basic("number", {3, 4}, {1}, {1}, "[1]");
  basic("numbers", {3, 4}, {-1, 2}, {-1, 2}, "[-1, 2]");
  basic("slices", {5, 6, 2}, {Slice(1, 4), Slice({}, {}, 2)}, {Slice(1, 4), Slice({}, {}, 2)}, "[1:4, ::2]");
  basic("ellipsis and number", {2, 3, 4}, {Ellipsis(), 1}, {kAll, kAll, 1}, "[..., 1]");
  basic("new axes", {2, 3}, {NewAxis(), kAll, NewAxis(), 1}, {NewAxis(), kAll, NewAxis(), 1}, "[None, :, None, 1]");
  basic("nothing", {2, 3}, {}, {}, "[()]");
  s.good.push_back({"true",
                    {real({2, 3})},
                    [](const Tensors& t) { return Tensors{t[0].index({true})}; },
                    [](const Tensors& t) {
                      return Tensors{t[0].view({1, 2, 3})};
                    },
                    "a[True]"});
  s.good.push_back({"false",
                    {real({2, 3})},
                    [](const Tensors& t) { return Tensors{t[0].index({false})}; },
                    [](const Tensors&) {
                      return Tensors{zeros({0, 2, 3}, DType::f64)};
                    },
                    "a[False]"});
  s.bad = {
      bad("index too large", {real({3, 2}), index_range({2}, 3, 4)}, call(same), "IndexError",
          "index at dimension 0: found index"),
      bad("index too negative", {real({3, 2}), index_range({2}, -5, -4)}, call(same), "IndexError",
          "position 0, expected -3 <= index < 3"),
      bad("second index", {real({4, 3}), index_arg({2}, 3), index_range({1}, 7, 7)}, call(same), "IndexError",
          "index at dimension 1: found index 7"),
      bad("after a number", {real({2, 3}), index_range({2}, 5, 5)}, call([](const Tensors& t) {
            return List{0, t[0]};
          }),
          "IndexError", "index at dimension 1: found index 5"),
      bad("number", {real({2, 3})}, call([](const Tensors&) {
            return List{0, 3};
          }),
          "IndexError", "index: 3 is out of range for dimension 1 of shape [2, 3]"),
      bad("negative number", {real({2, 3})}, call([](const Tensors&) { return List{-3}; }), "IndexError",
          "index: -3 is out of range"),
      bad("0-d index", {real({2}), index_range({}, 2, 2)}, call(same), "IndexError", "index: 2 is out of range"),
      bad("too many", {real({2, 3})}, call([](const Tensors&) {
            return List{0, 0, 0};
          }),
          "IndexError", "the indices take 3 dimensions"),
      bad("of 0-d", {real({})}, call([](const Tensors&) { return List{0}; }), "IndexError",
          "the indices take 1 dimensions"),
      bad("two ellipses", {real({2, 3})}, call([](const Tensors&) {
            return List{Ellipsis(), Ellipsis()};
          }),
          "IndexError", "only one Ellipsis"),
      bad("step", {real({4})}, call([](const Tensors&) { return List{Slice(0, 4, 0)}; }), "ValueError",
          "the step must be at least 1"),
      bad("mask shape", {real({3, 2}), boolean_arg({2})}, call(same), "IndexError",
          "a mask of shape [2] does not fit dimension 0 of shape [3, 2]"),
      bad("mask rank", {real({3}), boolean_arg({3, 2})}, call(same), "IndexError", "the indices take 2 dimensions"),
      bad("type", {real({3}), real({2})}, call(same), "DTypeError", "must be i64 or bool"),
      bad("broadcast", {real({3, 2}), index_arg({2}, 3), index_arg({3}, 2)}, call(same), "ShapeError", "index: "),
      bad("undefined index", {real({3}), missing_arg()}, call(same), "ValueError", "index: "),
      bad("undefined", {missing_arg()}, call([](const Tensors&) { return List{0}; }), "ValueError", "index: "),
  };
  return s;
}

OpSamples IndexPut::samples() {
  OpSamples s{.op = "index_put", .dtypes = kAllTypes, .growth = 16, .scale = 4};
  auto add = [&](const Way& w, bool accumulate, Shape value, std::string how) {
    std::vector<Arg> args{real(w.x)};
    args.insert(args.end(), w.tensors.begin(), w.tensors.end());
    args.push_back(real(value));
    size_t n = w.tensors.size();
    auto expect = [=](const Tensors& t) {
      Named all = named(w.x, normal_list(w)(tail(t, 1, n)));
      Tensor y = t[0].clone(), v = t.back().expand(all.sizes).contiguous();
      for (size_t i = 0; i < all.places.size(); ++i) {
        double& to = y.data<double>()[all.places[i]];
        to = (accumulate ? to : 0) + v.data<double>()[i];
      }
      return Tensors{y};
    };
    s.good.push_back(
        {(accumulate ? "add " : "") + w.note + how, args,
         [=](const Tensors& t) { return Tensors{index_put(t[0], w.list(tail(t, 1, n)), t.back(), accumulate)}; },
         expect});
    if (w.python.find_first_of(":.N0123456789") == w.python.npos)  // a tuple of tensors
      s.good.back().torch = "torch.index_put(a, (" + w.python.substr(1, w.python.size() - 2) + ",), " +
                            static_cast<char>('b' + n) + ", accumulate=" + (accumulate ? "True)" : "False)");
  };
  for (bool accumulate : {false, true}) {
    std::vector<Way> all = ways(!accumulate);
    for (const Way& w : all) {
      bool masked = false;
      for (const Arg& a : w.tensors) masked |= a.kind == Arg::Kind::boolean;
      if (masked) {  // how many elements there are depends on the mask
        add(w, accumulate, {}, "");
        continue;
      }
      Tensors zero;
      for (const Arg& a : w.tensors) zero.push_back(zeros(a.sizes, DType::i64));
      Shape sizes = named(w.x, normal_list(w)(zero)).sizes;
      add(w, accumulate, sizes, "");
      if (sizes.size() < 2) continue;
      sizes[0] = 1;
      add(w, accumulate, sizes, " broadcast");
    }
  }
  auto call = [](ListFn list) {
    return
        [list](const Tensors& t) { return Tensors{Tensor(t[0]).index_put_(list(tail(t, 1, t.size() - 2)), t.back())}; };
  };
  auto same = [](const Tensors& t) { return List(t.begin(), t.end()); };
  s.good.push_back({"a number",
                    {real({4, 3}), index_range({2}, 1, 2)},
                    [](const Tensors& t) {
                      Tensor y = t[0].clone();
                      y.index_put_({t[1]}, 1);
                      return Tensors{y};
                    },
                    [](const Tensors& t) {
                      Tensor y = t[0].clone();
                      for (int64_t i = 0; i < 6; ++i) y.data<double>()[t[1].data<int64_t>()[i / 3] * 3 + i % 3] = 1;
                      return Tensors{y};
                    }});
  for (bool accumulate : {false, true})
    s.good.push_back({std::string("basic") + (accumulate ? " add" : ""),
                      {real({4, 3}), real({2})},
                      [=](const Tensors& t) {
                        return Tensors{index_put(t[0], {Slice(1, 3), 2}, t[1], accumulate)};
                      },
                      [=](const Tensors& t) {
                        Tensor y = t[0].clone();
                        for (int64_t i = 0; i < 2; ++i) {
                          double& to = y.data<double>()[(i + 1) * 3 + 2];
                          to = (accumulate ? to : 0) + t[1].data<double>()[i];
                        }
                        return Tensors{y};
                      }});
  s.bad = {
      bad("index too large", {real({3, 2}), index_range({2}, 3, 4), real({2, 2})}, call(same), "IndexError",
          "index at dimension 0: found index"),
      bad("second index", {real({4, 3}), index_arg({2}, 3), index_range({2}, 7, 7), real({2})}, call(same),
          "IndexError", "index at dimension 1: found index 7 at position 0"),
      bad("number", {real({2, 3}), real({})}, call([](const Tensors&) { return List{2}; }), "IndexError",
          "index: 2 is out of range"),
      bad("value shape", {real({3, 2}), index_arg({2}, 3), real({3, 2})}, call(same), "ShapeError", "index_put: "),
      bad("value larger", {real({3, 2}), index_arg({1}, 3), real({3, 2})}, call(same), "ShapeError",
          "does not fit into the indexed [1, 2]"),
      bad("value rank", {real({3}), index_arg({2}, 3), real({1, 2})}, call(same), "ShapeError",
          "does not fit into the indexed [2]"),
      bad("value of a view", {real({3, 2}), real({3})}, call([](const Tensors&) { return List{0}; }), "ShapeError",
          "copy_: "),
      bad("value type", {real({3}), index_arg({2}, 3), index_arg({2}, 3)}, call(same), "DTypeError",
          "index_put: the value is i64, the tensor f32"),
      bad("value type of a view", {real({3}), index_arg({}, 3)}, call([](const Tensors&) { return List{0}; }),
          "DTypeError", "index_put: the value is i64"),
      bad("mask shape", {real({3}), boolean_arg({4}), real({})}, call(same), "IndexError",
          "a mask of shape [4] does not fit"),
      bad("no value", {real({3}), index_arg({2}, 3), missing_arg()}, call(same), "ValueError", "index_put: "),
      bad("no tensor", {missing_arg(), index_arg({2}, 3), real({2})}, call(same), "ValueError", ""),
  };
  return s;
}

OpSamples LinearIndex::samples() {
  OpSamples s{.op = "linear_index", .dtypes = only(DType::i64), .grad = false};
  auto add = [&](std::string note, std::vector<Shape> shapes, Shape sizes) {
    std::vector<Arg> args;
    for (size_t i = 0; i < shapes.size(); ++i) args.push_back(signed_index(shapes[i], sizes[static_cast<int>(i)]));
    Shape dims = sizes;
    auto fold = [=](const Tensors& t) { return Tensors{call_list<LinearIndex>(Site::current(), {sizes, dims}, t)}; };
    auto expect = [=](const Tensors& t) {
      Shape both;
      for (const Shape& shape : shapes) both = broadcast_shapes(both, shape, "sample");
      return Tensors{reference::build(both, [&](const Shape& at) {
        int64_t linear = 0;
        for (size_t i = 0; i < t.size(); ++i) {
          int64_t n = sizes[static_cast<int>(i)];
          Shape own = t[i].sizes();
          for (int d = 0; d < own.size(); ++d) own[d] = own[d] == 1 ? 0 : at[at.size() - own.size() + d];
          int64_t v = t[i].data<int64_t>()[place_of(t[i].sizes(), own)];
          linear = linear * n + (v < 0 ? v + n : v);
        }
        return static_cast<double>(linear);
      })};
    };
    s.good.push_back({note, args, fold, expect});
  };
  add("one", {{5}}, {7});
  add("two", {{4}, {4}}, {3, 5});
  add("three", {{2, 3}, {2, 3}, {2, 3}}, {3, 5, 2});
  add("broadcast", {{3, 1}, {4}}, {6, 2});
  add("0-d", {{}}, {3});
  add("0-d and vector", {{}, {5}}, {3, 4});
  add("empty", {{0, 2}, {2}}, {3, 4});
  add("rank 4", {{2, 1, 2, 1}, {3, 1, 2}}, {5, 9});
  auto broken = [](const Tensors& t) {
    return Tensors{call_list<LinearIndex>(Site::current(), {Shape{3, 3}, Shape{0, 1}}, t)};
  };
  s.bad = {
      bad("count", {index_arg({2}, 3)}, broken, "ValueError", "index: 1 index tensors for 2 dimensions"),
      bad("type", {index_arg({2}, 3), real({2})}, broken, "DTypeError", "must all be i64"),
      bad("undefined", {index_arg({2}, 3), missing_arg()}, broken, "DTypeError", "an undefined one"),
      bad("shapes", {index_arg({2}, 3), index_arg({3}, 3)}, broken, "ShapeError", "index: "),
      bad("range", {index_arg({2}, 3), index_range({2}, 3, 3)}, broken, "IndexError",
          "index at dimension 1: found index 3 at position 0, expected -3 <= index < 3"),
  };
  return s;
}

}  // namespace deft
