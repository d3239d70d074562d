// In-place writes: versions through every alias, what is refused, and gradients equal to those of out-of-place code.
#include <functional>

#include "core_util.h"

namespace deft {
namespace {

TEST(Version, IsSharedByAliases) {
  Tensor x = zeros({2, 3});
  Tensor view = x.view({6}), of_view = view.narrow(0, 1, 2), detached = x.detach(), same = x;
  EXPECT_EQ(x.version(), 0u);
  of_view.add_(1);
  detached.mul_(2);
  no_grad([&] { view.zero_(); });
  same += 1;
  for (const Tensor& t : {x, view, of_view, detached, same}) EXPECT_EQ(t.version(), 4u);
  EXPECT_EQ(x.clone().version(), 0u);
}

// y keeps x for backward; then x is written through `alias`.
void expect_write_is_seen(const std::function<Tensor(const Tensor&)>& alias_of, bool under_no_grad) {
  Tensor w = leaf({4}, 1), x = leaf({4}, 2) * 1;
  Tensor alias = alias_of(x);
  Tensor y = (x * w).sum();
  if (under_no_grad)
    no_grad([&] { alias.add_(1); });
  else
    alias.add_(1);
  EXPECT_THROW(y.backward(), InplaceError);
}

TEST(Version, WriteToSavedInputIsSeenThroughEveryAlias) {
  for (bool off : {false, true}) {
    expect_write_is_seen([](const Tensor& x) { return x; }, off);
    expect_write_is_seen([](const Tensor& x) { return x.view({2, 2}); }, off);
    expect_write_is_seen([](const Tensor& x) { return x.view({2, 2})[1].narrow(0, 0, 1); }, off);
    expect_write_is_seen([](const Tensor& x) { return x.detach(); }, off);
    expect_write_is_seen([](const Tensor& x) { return x.detach().view({2, 2}).t(); }, off);
  }
}

TEST(Version, SavedViewSeesWriteToBase) {
  Tensor w = leaf({2}, 1), base = leaf({4}, 2) * 1;
  Tensor part = base.narrow(0, 0, 2);
  Tensor y = (part * w).sum();
  base.narrow(0, 2, 2).zero_();  // not even the same elements: one counter per storage
  EXPECT_THROW(y.backward(), InplaceError);
}

TEST(Version, WriteToSavedOutput) {
  Tensor x = leaf({3});
  Tensor y = x.exp();
  Tensor z = y.sum();
  no_grad([&] { y.mul_(2); });
  EXPECT_THROW(z.backward(), InplaceError);
  Tensor t = x.tanh();
  t.exp_();  // overwrites what tanh saved
  EXPECT_THROW(t.sum().backward(), InplaceError);
}

TEST(Version, WriteToWhatIsNotSavedIsFine) {
  Tensor x = leaf({3});
  Tensor y = x + x;
  y.mul_(3);
  Tensor z = y.sum();
  no_grad([&] { y.zero_(); });
  z.backward();
  EXPECT_VALUES(x.grad(), 6, 6, 6);
}

TEST(Refused, LeafThatRequiresGrad) {
  Tensor x = leaf({3});
  EXPECT_THROW(x.add_(1), InplaceError);
  EXPECT_THROW(x.zero_(), InplaceError);
  EXPECT_THROW(x.copy_(sample({3})), InplaceError);
  Tensor view = x.view({3, 1});
  EXPECT_THROW(view.mul_(2), InplaceError);
  uint32_t before = x.version();
  EXPECT_EQ(before, 0u) << "a refused write is not a write";
  std::vector<double> old = values(x);
  no_grad([&] { x.add_(1); });
  EXPECT_EQ(x.version(), 1u);
  EXPECT_TRUE(x.requires_grad());
  EXPECT_TRUE(x.is_leaf());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(values(x)[i], old[i] + 1);
}

TEST(Refused, ViewMadeUnderNoGrad) {
  Tensor x = leaf({4}), base = x * 1;
  Tensor view = no_grad([&] { return base.view({2, 2}); });
  EXPECT_THROW(view.mul_(2), InplaceError);
  Tensor of_view = view[0];  // made with gradients on, but of a marked view
  EXPECT_THROW(of_view.mul_(2), InplaceError);
  EXPECT_NO_THROW(no_grad([&] { view.mul_(2); }));
  EXPECT_FALSE(view.requires_grad()) << "stays a constant";
  Tensor plain = zeros({4});
  Tensor plain_view = no_grad([&] { return plain.view({2, 2}); });
  EXPECT_NO_THROW(plain_view.add_(1)) << "nothing is tracked";
  EXPECT_THROW(plain_view.mul_(x.view({2, 2})), InplaceError) << "now it would be";
}

TEST(Refused, ViewMadeInInferenceMode) {
  Tensor x = leaf({4}), base = x * 1;
  Tensor view = inference_mode([&] { return base.view({2, 2}); });
  EXPECT_FALSE(view.is_inference());
  EXPECT_THROW(view.mul_(2), InplaceError);
}

TEST(Refused, OneOfSeveralViews) {
  Tensor x = leaf({4}), base = x * 1;
  for (Tensor part : {base.split(2)[0], base.chunk(2)[1], base.unbind()[0]}) {
    EXPECT_THROW(part.mul_(2), InplaceError);
    EXPECT_NO_THROW(no_grad([&] { part.mul_(2); }));
  }
  Tensor plain = zeros({4});
  plain.split(2)[0].add_(1);
  EXPECT_VALUES(plain, 1, 1, 0, 0);
}

TEST(Refused, ElementsThatShareMemory) {
  Tensor x = zeros({1, 3});
  EXPECT_THROW(x.expand({4, 3}).add_(1), InplaceError);
  EXPECT_NO_THROW(x.expand({1, 3}).add_(1));
}

TEST(Refused, ResultThatDoesNotFit) {
  Tensor x = zeros({3}), row = zeros({2, 3}), whole = zeros({3}, DType::i64);
  EXPECT_THROW(x.add_(row), ShapeError);
  EXPECT_THROW(whole.add_(sample({3})), DTypeError);
  EXPECT_EQ(x.version(), 0u);
  EXPECT_EQ(whole.version(), 0u);
}

// --- Gradients -------------------------------------------------------------------------------------------------

using Inputs = std::vector<Tensor>;
struct Pair {
  const char* name;
  std::function<Tensor(const Inputs&)> in_place, out_of_place;
};

// x [3, 4] with rows [from, from + n) replaced.
Tensor with_rows(const Tensor& x, const Tensor& rows, int64_t from) {
  return as_strided_scatter(x, rows, rows.sizes(), {x.size(1), 1}, from * x.size(1));
}

// Inputs: x [3, 4], w [4], s [].
const std::vector<Pair>& pairs() {
  static const std::vector<Pair> all = {
      {"mul_",
       [](const Inputs& i) {
         Tensor y = i[0].clone();
         return y.mul_(i[1]);
       },
       [](const Inputs& i) { return i[0] * i[1]; }},
      {"mul_ with itself",
       [](const Inputs& i) {
         Tensor y = i[0] * 2;
         return y.mul_(y);
       },
       [](const Inputs& i) { return (i[0] * 2) * (i[0] * 2); }},
      {"div_ by itself plus w",
       [](const Inputs& i) {
         Tensor y = i[0].exp() * 1;
         return y.div_(y + i[1].exp());
       },
       [](const Inputs& i) { return i[0].exp() / (i[0].exp() + i[1].exp()); }},
      {"add_ into a constant",
       [](const Inputs& i) {
         Tensor y = sample({3, 4}, 9);
         return y.add_(i[0]).mul_(i[1]);
       },
       [](const Inputs& i) {
         return (sample({3, 4}, 9) + i[0]) * i[1];
       }},
      {"relu_",
       [](const Inputs& i) {
         Tensor y = i[0] * i[1];
         return y.relu_();
       },
       [](const Inputs& i) { return (i[0] * i[1]).relu(); }},
      {"add_ then tanh_",
       [](const Inputs& i) {
         Tensor y = i[0] * 1;
         return y.add_(i[1]).tanh_();
       },
       [](const Inputs& i) { return (i[0] + i[1]).tanh(); }},
      {"row mul_",
       [](const Inputs& i) {
         Tensor y = i[0].clone();
         y[0].mul_(i[1]);
         return y;
       },
       [](const Inputs& i) {
         return with_rows(i[0], (i[0][0] * i[1]).view({1, 4}), 0);
       }},
      {"row copy_",
       [](const Inputs& i) {
         Tensor y = i[0].clone();
         y[1].copy_(i[1]);
         return y * y;
       },
       [](const Inputs& i) {
         Tensor y = with_rows(i[0], i[1].view({1, 4}), 1);
         return y * y;
       }},
      {"rows into a constant",
       [](const Inputs& i) {
         Tensor y = zeros({3, 4}, DType::f64);
         y[0].copy_(i[1]);
         y[2].copy_(i[0][1] * i[1]);
         return y.exp();
       },
       [](const Inputs& i) {
         Tensor y = with_rows(zeros({3, 4}, DType::f64), i[1].view({1, 4}), 0);
         return with_rows(y, (i[0][1] * i[1]).view({1, 4}), 2).exp();
       }},
      {"old view after a write to it",
       [](const Inputs& i) {
         Tensor y = i[0].clone(), v = y[1];
         v.add_(i[1]);
         return y * v;
       },
       [](const Inputs& i) {
         Tensor y = with_rows(i[0], (i[0][1] + i[1]).view({1, 4}), 1);
         return y * y[1];
       }},
      {"old view after a write to the base",
       [](const Inputs& i) {
         Tensor y = i[0].clone(), v = y.view({12}).narrow(0, 2, 5);
         y.mul_(i[1]);
         return v * v;
       },
       [](const Inputs& i) {
         Tensor v = (i[0] * i[1]).view({12}).narrow(0, 2, 5);
         return v * v;
       }},
      {"old view of a base that had no history",
       [](const Inputs& i) {
         Tensor y = sample({3, 4}, 4), v = y[2];
         y.mul_(i[1]);
         return v.exp();
       },
       [](const Inputs& i) {
         return (sample({3, 4}, 4) * i[1])[2].exp();
       }},
      {"two overlapping views, one after the other",
       [](const Inputs& i) {
         Tensor y = i[0].clone(), a = y.narrow(0, 0, 2), b = y.narrow(0, 1, 2);
         a.mul_(i[1]);
         b.add_(i[1]);
         a.mul_(i[1]);
         return y * b[0];
       },
       [](const Inputs& i) {
         Tensor y = with_rows(i[0], i[0].narrow(0, 0, 2) * i[1], 0);
         y = with_rows(y, y.narrow(0, 1, 2) + i[1], 1);
         y = with_rows(y, y.narrow(0, 0, 2) * i[1], 0);
         return y * y[1];
       }},
      {"a view added to an overlapping one",
       [](const Inputs& i) {
         Tensor y = i[0] * 1, a = y.narrow(0, 0, 2), b = y.narrow(0, 1, 2);
         b.mul_(a);
         return y.exp();
       },
       [](const Inputs& i) {
         Tensor b = i[0].narrow(0, 1, 2) * i[0].narrow(0, 0, 2);
         return with_rows(i[0], b, 1).exp();
       }},
      {"row copied from another row",
       [](const Inputs& i) {
         Tensor y = i[0] * i[1];
         y[0].copy_(y[2]);
         return y * y;
       },
       [](const Inputs& i) {
         Tensor y = i[0] * i[1];
         y = with_rows(y, y[2].view({1, 4}), 0);
         return y * y;
       }},
      {"transposed view of a view",
       [](const Inputs& i) {
         Tensor y = i[0] * 1;
         y.t().narrow(0, 1, 2).t().tanh_();
         return y * i[1];
       },
       [](const Inputs& i) {
         Tensor y = as_strided_scatter(i[0], i[0].narrow(1, 1, 2).tanh(), {3, 2}, {4, 1}, 1);
         return y * i[1];
       }},
      {"diagonal",
       [](const Inputs& i) {
         Tensor y = i[0] * i[1];
         y.diagonal().mul_(i[2]);
         return y.tanh();
       },
       [](const Inputs& i) {
         Tensor y = i[0] * i[1];
         return as_strided_scatter(y, y.diagonal() * i[2], {3}, {5}, 0).tanh();
       }},
      {"scalar broadcast into columns",
       [](const Inputs& i) {
         Tensor y = i[0] * i[1];
         y.narrow(1, 0, 2).mul_(i[2]);
         return y;
       },
       [](const Inputs& i) {
         Tensor y = i[0] * i[1];
         return as_strided_scatter(y, y.narrow(1, 0, 2) * i[2], {3, 2}, {4, 1}, 0);
       }},
      {"fill_ of a row",
       [](const Inputs& i) {
         Tensor y = i[0] * i[1];
         y[1].fill_(2);
         return y * i[0];
       },
       [](const Inputs& i) {
         Tensor y = with_rows(i[0] * i[1], full({1, 4}, 2, DType::f64), 1);
         return y * i[0];
       }},
      {"zero_ and start again",
       [](const Inputs& i) {
         Tensor y = i[0] * i[1];
         y.zero_();
         return y.add_(i[1]).mul_(i[2]);
       },
       [](const Inputs& i) {
         return (zeros({3, 4}, DType::f64) + i[1]) * i[2];
       }},
      {"write through an expanded read",
       [](const Inputs& i) {
         Tensor y = i[0] * 1;
         y.add_(y[0].expand({3, 4}));
         return y.exp();
       },
       [](const Inputs& i) { return (i[0] + i[0][0]).exp(); }},
      {"an operand that is a view of the target",
       [](const Inputs& i) {
         Tensor y = i[0] * 1, v = y.view({3, 4});
         y.add_(v);
         return y * v * i[1];
       },
       [](const Inputs& i) { return i[0] * i[0] * i[1] * 4; }},
      {"a target and an operand that are views of one base",
       [](const Inputs& i) {
         Tensor y = i[0] * i[1], a = y.view({3, 4}), b = y.view({3, 4});
         a.sub_(b.narrow(1, 0, 1));
         return a * b * y;
       },
       [](const Inputs& i) {
         Tensor y = i[0] * i[1], z = y - y.narrow(1, 0, 1);
         return z * z * z;
       }},
      {"the same view written twice",
       [](const Inputs& i) {
         Tensor y = i[0] * 1, v = y[0];
         v.mul_(i[1]);
         v.mul_(i[1]);
         v.add_(v);
         return y;
       },
       [](const Inputs& i) {
         return with_rows(i[0], (i[0][0] * i[1] * i[1] * 2).view({1, 4}), 0);
       }},
  };
  return all;
}

struct Result {
  Tensor value;
  Inputs first, second;
};
Result differentiate(const std::function<Tensor(const Inputs&)>& f) {
  Inputs in = {leaf({3, 4}, 11), leaf({4}, 12), leaf({}, 13)};
  Tensor y = f(in);
  Tensor loss = (y * sample(y.sizes(), 14)).sum();
  Result r{y.detach(), grad({loss}, in, {}, {.create_graph = true, .allow_unused = true}), {}};
  Tensor again;
  for (const Tensor& g : r.first) {
    if (!g.defined() || !g.requires_grad()) continue;
    Tensor part = (g * g * sample(g.sizes(), 15)).sum();
    again = again.defined() ? again + part : part;
  }
  if (again.defined()) r.second = grad({again}, in, {}, {.allow_unused = true});
  for (Tensor& g : r.first)
    if (g.defined()) g = g.detach();
  return r;
}

TEST(Gradients, EqualToOutOfPlace) {
  Alive before;
  for (const Pair& p : pairs()) {
    SCOPED_TRACE(p.name);
    Result a = differentiate(p.in_place), b = differentiate(p.out_of_place);
    expect_close(a.value, b.value, "value");
    for (size_t i = 0; i < 3; ++i) {
      // A gradient that is zero may be missing on one side.
      auto or_zero = [&](const Tensor& g) {
        return g.defined() ? g : zeros(i == 0 ? Shape{3, 4} : i == 1 ? Shape{4} : Shape{}, DType::f64);
      };
      expect_close(or_zero(a.first[i]), or_zero(b.first[i]), "gradient " + std::to_string(i));
      if (a.second.empty() || b.second.empty()) continue;
      expect_close(or_zero(a.second[i]), or_zero(b.second[i]), "second gradient " + std::to_string(i));
    }
    EXPECT_EQ(a.second.empty(), b.second.empty());
  }
  EXPECT_EQ(Alive(), before);
}

// Writes to rows, columns and blocks of y, and reads of views made before them.
Tensor write_regions(Tensor y, const Inputs& in) {
  Tensor column = y.select(1, 1), block = y.narrow(0, 1, 2).narrow(1, 1, 2);
  y[0].mul_(in[1]);
  column.add_(in[2]);
  block.mul_(block);
  y.diagonal().copy_(in[1].narrow(0, 0, 3));
  return y.exp() * column.view({3, 1}) * block.sum();
}

TEST(Gradients, DoNotDependOnTheBasesMemoryOrder) {
  std::vector<double> room(100, 0.5);
  auto columns_first = [](const Inputs& i) { return write_regions(i[0].t().clone(MemoryFormat::contiguous).t(), i); };
  auto base_columns_first = [](const Inputs& i) {
    Tensor y = (i[0].t().contiguous().t() * 1).clone();
    EXPECT_EQ(y.strides(), (Shape{1, 3})) << "the order that is tested here";
    return write_regions(y, i);
  };
  auto with_gaps = [&](const Inputs& i) {
    Tensor y = from_blob(room.data(), {3, 4}, DType::f64, {20, 3});
    return write_regions(y.copy_(i[0]), i);
  };
  auto row_major = [](const Inputs& i) { return write_regions(i[0] * 1, i); };
  Result expected = differentiate(row_major);
  std::vector<std::pair<const char*, std::function<Tensor(const Inputs&)>>> orders = {
      {"view of columns", columns_first}, {"columns", base_columns_first}, {"gaps", with_gaps}};
  for (const auto& [name, f] : orders) {
    SCOPED_TRACE(name);
    Result found = differentiate(f);
    expect_close(found.value, expected.value, "value");
    for (size_t i = 0; i < 3; ++i) {
      expect_close(found.first[i], expected.first[i], "gradient " + std::to_string(i));
      expect_close(found.second[i], expected.second[i], "second gradient " + std::to_string(i));
    }
  }
}

TEST(Gradients, OfAChannelsLastBase) {
  auto loss = [](MemoryFormat format) {
    Tensor x = leaf({2, 3, 4, 5}), y = x.contiguous(format) * 1;
    EXPECT_TRUE(y.is_contiguous(format));
    y.narrow(1, 0, 2).mul_(3);
    y.select(1, 2).copy_(y.select(1, 0) * 2);
    (y * sample({2, 3, 4, 5}, 3)).sum().backward();
    return x.grad();
  };
  expect_close(loss(MemoryFormat::channels_last), loss(MemoryFormat::contiguous));
}

TEST(Gradients, OfAsStridedFollowTheMemoryOrder) {
  Tensor g = sample({2, 4}, 5);
  auto gradient = [&](const std::function<Tensor(const Tensor&)>& layout,
                      const std::function<Tensor(const Tensor&)>& pick) {
    Tensor x = leaf({4, 3});
    (pick(layout(x)) * g).sum().backward();
    return x.grad();
  };
  // Two columns: consecutive elements where columns come first.
  auto columns = [](const Tensor& x) { return x.narrow(1, 1, 2).t(); };
  Tensor expected = gradient([](const Tensor& x) { return x * 1; }, columns);
  auto strided = [](const Tensor& x) { return x.as_strided({2, 4}, {4, 1}, 4); };
  expect_close(gradient([](const Tensor& x) { return x.t().contiguous().t(); }, strided), expected, "columns first");
  // An expanded tensor has each element of memory several times; all of them together get its gradient.
  Tensor row = leaf({3});
  (row.expand({4, 3}).as_strided({3}, {1}) * g.view({8}).narrow(0, 0, 3)).sum().backward();
  expect_close(row.grad(), g.view({8}).narrow(0, 0, 3), "expanded");
}

TEST(Gradients, OfAnIntermediateStaysTiedToItsValue) {
  Tensor x = leaf({3});
  Tensor y = x * 2;
  Tensor z = y * 1;
  y.add_(1);  // z was made from the old y
  z.sum().backward();
  EXPECT_VALUES(x.grad(), 2, 2, 2);
}

TEST(Gradients, DetachedStaysConstant) {
  Tensor x = leaf({3}), w = leaf({3}, 7);
  Tensor y = x * 2, d = y.detach();
  y.mul_(w);
  EXPECT_FALSE(d.requires_grad());
  EXPECT_EQ(values(d), values(y)) << "the same bytes";
}

TEST(Gradients, ViewRefreshMakesNoNodeWithoutARecordedWrite) {
  Tensor x = leaf({4}), y = x * 2, v = y.view({2, 2});
  NodePtr before = v.grad_fn();
  no_grad([&] { y.add_(1); });
  EXPECT_EQ(v.grad_fn(), before);
  y.mul_(2);
  EXPECT_NE(v.grad_fn(), before);
  v.sum().backward();
  EXPECT_VALUES(x.grad(), 4, 4, 4, 4);
}

}  // namespace
}  // namespace deft
