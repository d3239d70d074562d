#include "graph/verify_foreign.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "core/grad_mode.h"
#include "graph/capture.h"
#include "graph/executable.h"
#include "graph/passes.h"
#include "ops/all_ops.h"
#include "ops/param_fields.h"

// What plan files as a whole must refuse is in tests/io/plan_file_test.cpp.
namespace deft {
namespace {

using Tensors = std::vector<Tensor>;

struct Text {
  std::string text;
  Tensors constants;
  graph::Graph parsed(const std::string& from = "", const std::string& to = "") const {
    std::string other = text;
    size_t at = other.find(from);
    EXPECT_NE(at, other.npos) << from << " is not in\n" << text;
    if (at != other.npos) other.replace(at, from.size(), to);
    return graph::parse_foreign(other, constants, 1000);
  }
};
Text text_of(const graph::Graph& g) {
  Text t{graph::to_text(g), {}};
  for (const graph::Buffer& b : g.buffers)
    if (b.kind == graph::BufferKind::constant) t.constants.push_back(b.constant);
  return t;
}

TEST(VerifyForeign, Rows) {
  NoGradGuard no_grad;
  Tensor b = randn({8}), x = randn({6, 8});
  graph::Notes notes;
  graph::Graph g =
      graph::capture([&](const Tensors& in) { return Tensors{softmax(in[0] * 2 + b, -1) + b}; }, {x}).graph;
  graph::fuse_elementwise(g, notes);
  graph::fuse_rows(g, notes, false);
  Text t = text_of(g);
  graph::Executable made(g), read(t.parsed());
  EXPECT_EQ((made.run({x})[0] - read.run({x})[0]).abs().amax().item(), 0);
  const char* cases[][2] = {{"{0 false [8]", "{7 false [8]"},
                            {"{0 false [8]", "{-1 false [8]"},
                            {"{0 false [8]", "{0 true [8]"},
                            {"{0 false [8]", "{0 false [9]"},
                            {"{0 false [8]", "{0 false [4,8]"},
                            {"| softmax 1 1 f32", "| softmax 2 1 f32"},
                            {"| softmax 1 1 f32", "| softmax 1 0 f32"},
                            {"| softmax 1 1 f32", "| softmax 1 1 f64"},
                            {"| softmax 1 1 f32", "| embedding_backward 1 1 f32"},
                            {"| softmax 1 1 f32", "| fused_rows 1 1 f32"},
                            {"| softmax 1 1 f32", "| -"},
                            {"| softmax 1 1 f32 : 1", "| softmax 1 1 f32 : 2"},
                            {"like 0; 0 1 8", "like 0; 0 1 5"},
                            {"like 0; 0 1 8", "like 1; 0 1 8"},
                            {" | add 2 1 f32", " | add 2 1 f32 | add 2 1 f32"},
                            {" | add 2 1 f32", " | add 9 1 f32"}};
  for (const auto& c : cases) EXPECT_THROW(t.parsed(c[0], c[1]), Error) << c[0] << " -> " << c[1];
}

TEST(VerifyForeign, Attention) {
  NoGradGuard no_grad;
  Tensor q = randn({2, 3, 4, 8}), mask = ones({4, 4}, {DType::boolean});
  graph::Graph g =
      graph::capture(
          [](const Tensors& in) { return Tensors{scaled_dot_product_attention(in[0], in[1], in[2], in[3])}; },
          {q, randn({2, 3, 4, 8}), randn({2, 3, 4, 8}), mask})
          .graph;
  Text t = text_of(g);
  graph::Executable(t.parsed()).run({q, q, q, mask});
  // Fewer keys than values, another width, a mask that does not reach: the op leaves these to the function around it.
  EXPECT_THROW(t.parsed("value 1 b1+0 f32 2,3,4,8 96,32,8,1", "value 1 b1+0 f32 2,3,3,8 96,32,8,1"), Error) << t.text;
  EXPECT_THROW(t.parsed("value 1 b1+0 f32 2,3,4,8 96,32,8,1", "value 1 b1+0 f32 2,3,4,7 96,32,8,1"), Error);
  EXPECT_THROW(t.parsed("value 2 b2+0 f32 2,3,4,8 96,32,8,1", "value 2 b2+0 f32 4 1"), Error);
  EXPECT_THROW(t.parsed("value 3 b3+0 bool 4,4 4,1", "value 3 b3+0 bool 4,3 4,1"), Error);
}

TEST(VerifyForeign, ResultsThatLieInInputs) {
  NoGradGuard no_grad;
  Tensor index = zeros({4}, {DType::i64}), table = ones({8, 2});
  graph::Graph g =
      graph::capture([&](const Tensors& in) { return Tensors{embedding(in[0] + 0, table).exp()}; }, {index}).graph;
  Text t = text_of(g);
  graph::Executable(t.parsed()).run({index});
  // The lookup would overwrite its checked index while it reads it.
  std::string text = t.text;
  size_t sum = text.find(" = add("), line = text.rfind('\n', sum) + 1;
  std::string id = text.substr(line + 1, sum - line - 1);
  size_t value = text.find("value " + id + " b"), buffer = text.find('b', value + 6);
  std::string of_index = text.substr(buffer, text.find('+', buffer) - buffer);
  size_t lookup = text.find(" = embedding("), start = text.rfind('\n', lookup) + 1;
  std::string made = "value " + text.substr(start + 1, lookup - start - 1) + " b";
  size_t place = text.find(made) + made.size() - 1;
  t.text.replace(place, text.find('+', place) - place, of_index);
  EXPECT_THROW(t.parsed(), Error) << t.text;
}

// A write may read other parts of its buffer: that is what is left where a copy went.
TEST(VerifyForeign, WritesNextToWhatTheyRead) {
  NoGradGuard no_grad;
  Tensor x = randn({3, 8});
  auto f = [](const Tensors& in) {
    Tensor z = in[0] * 2;
    z.narrow(1, 4, 4).add_(z.narrow(1, 0, 4).clone());
    return Tensors{z};
  };
  graph::Graph g = graph::capture(f, {x}).graph;
  graph::Notes notes;
  graph::fuse_elementwise(g, notes);
  ASSERT_FALSE(notes.done.empty());
  Text t = text_of(g);
  graph::Executable read(t.parsed());
  EXPECT_EQ((read.run({x})[0] - f({x})[0]).abs().amax().item(), 0);
  size_t at = t.text.find("+16 f32 3,4 8,1");
  ASSERT_NE(at, std::string::npos) << t.text;
  EXPECT_THROW(t.parsed("+16 f32 3,4 8,1", "+8 f32 3,4 8,1"), Error) << t.text;
}

// Each number of each op whose kernels multiply sizes, steps and borders: no product of those within the limit
// overflows, and what is beyond it is refused before any rule looks at it.
TEST(VerifyForeign, WindowsAndBordersHaveALimit) {
  NoGradGuard no_grad;
  constexpr int64_t kMost = int64_t{1} << 20;
  auto says = [](const graph::Graph& g) -> std::string {
    try {
      graph::verify_foreign(g);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  Tensor x = ones({1, 2, 6, 6}), w = ones({2, 2, 3, 3});
  const std::vector<std::function<Tensor(const Tensor&)>> calls = {
      [&](const Tensor& in) { return conv2d(in, w); },
      [&](const Tensor& in) { return conv_transpose2d(in, w); },
      [](const Tensor& in) { return max_pool2d(in, {2}); },
      [](const Tensor& in) { return avg_pool2d(in, {2}); },
      [](const Tensor& in) {
        return interpolate(in, {9, 9});
      },
      [](const Tensor& in) {
        return pad(in, {1, 1, 1, 1});
      },
      [](const Tensor& in) { return unfold(in, {2}); },
      [](const Tensor& in) {
        return fold(unfold(in, {2}), {6, 6}, {2});
      }};
  for (const auto& call : calls) {
    const graph::Graph good = graph::capture([&](const Tensors& in) { return Tensors{call(in[0])}; }, {x}).graph;
    EXPECT_EQ(says(good), "");
    const graph::Instruction& last = good.instructions.back();
    for (const ParamField& f : param_fields(*last.def)) {
      if (f.kind != FieldKind::integer && f.kind != FieldKind::shape) continue;
      const ParamField number{FieldKind::integer, f.offset + (f.kind == FieldKind::shape ? 8 : 0),
                              f.kind == FieldKind::shape ? 8 : f.bytes};
      for (int64_t beyond : {kMost + 1, -kMost - 1}) {
        graph::Graph g = good;
        write_integer(number, g.instructions.back().params.data(), beyond);
        EXPECT_NE(says(g).find(fmt::format("the parameter {} is too large", beyond)), std::string::npos)
            << last.def->info.name << " at byte " << number.offset << ": " << says(g);
      }
      for (int64_t within : {kMost, -kMost}) {
        graph::Graph g = good;
        write_integer(number, g.instructions.back().params.data(), within);
        EXPECT_EQ(says(g).find("is too large"), std::string::npos) << last.def->info.name << ": " << says(g);
      }
    }
  }
}

TEST(VerifyForeign, GradientsOfWeights) {
  NoGradGuard no_grad;
  ConvBackwardWeight::Params p;
  p.geometry.spatial = 2;
  p.kernel = {3, 3, 1};
  auto f = [&](const Tensors& in) { return Tensors{call<ConvBackwardWeight>(Site::current(), p, in[0], in[1])}; };
  graph::Graph g = graph::capture(f, {randn({1, 2, 5, 5}), randn({1, 4, 3, 3})}).graph;
  EXPECT_THROW(text_of(g).parsed(), Error);
}

}  // namespace
}  // namespace deft
