#include <map>

#include "ops/creation.h"
#include "ops/matmul.h"
#include "ops/sample.h"

namespace deft {

namespace {

// Every index of every label in turn. `terms` have no "..."; sizes of 1 repeat.
Tensor naive_einsum(const std::vector<std::string>& terms, const std::string& output, const Tensors& t) {
  std::map<char, int64_t> size;
  for (size_t o = 0; o < terms.size(); ++o)
    for (size_t i = 0; i < terms[o].size(); ++i) {
      int64_t n = t[o].sizes()[static_cast<int>(i)];
      auto [at, added] = size.emplace(terms[o][i], n);
      if (!added && at->second == 1) at->second = n;
    }
  auto offset = [](const std::string& labels, const Shape& sizes, std::map<char, int64_t>& at) {
    int64_t flat = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      int64_t n = sizes[static_cast<int>(i)];
      flat = flat * n + (n == 1 ? 0 : at[labels[i]]);
    }
    return flat;
  };
  Shape sizes;
  for (char c : output) sizes.push_back(size[c]);
  Tensor y = zeros(sizes, DType::f64);
  int64_t total = 1;
  for (auto& [label, n] : size) total *= n;
  std::map<char, int64_t> at;
  for (int64_t i = 0; i < total; ++i) {
    int64_t rest = i;
    for (auto& [label, n] : size) {
      at[label] = rest % n;
      rest /= n;
    }
    double product = 1;
    for (size_t o = 0; o < terms.size(); ++o) product *= t[o].data<double>()[offset(terms[o], t[o].sizes(), at)];
    y.data<double>()[offset(output, sizes, at)] += product;
  }
  return y;
}

// `spelled` is the equation with "..." written out in letters.
Sample einsum_sample(std::string equation, std::vector<Shape> shapes, std::string spelled = "") {
  if (spelled.empty()) spelled = equation;
  std::erase(spelled, ' ');
  std::vector<std::string> terms(1);
  size_t arrow = spelled.find("->");
  for (char c : spelled.substr(0, arrow)) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  }
  std::string output = spelled.substr(arrow + 2);
  Sample s;
  s.note = equation;
  for (char& c : s.note)
    if (c == '.') c = '_';
  s.torch = "torch.einsum('" + equation + "'";
  for (size_t i = 0; i < shapes.size(); ++i) {
    s.args.push_back(real(shapes[i]));
    s.torch += std::string(", ") + static_cast<char>('a' + i);
  }
  s.torch += ")";
  s.call = [equation](const Tensors& t) -> Tensors { return {einsum(equation, t)}; };
  s.expect = [terms, output](const Tensors& t) -> Tensors { return {naive_einsum(terms, output, t)}; };
  return s;
}

BadSample bad_einsum(std::string note, std::string equation, std::vector<Arg> args, std::string error,
                     std::string text) {
  return {note, args, [equation](const Tensors& t) -> Tensors { return {einsum(equation, t)}; }, error, text};
}

}  // namespace

OpSamples Einsum::samples() {
  OpSamples s{.op = "einsum", .dtypes = kNumbers, .growth = 64, .scale = 32, .may_alias = true};
  s.good = {
      einsum_sample("ij,jk->ik", {{3, 4}, {4, 5}}),
      einsum_sample("ij,jk->ki", {{3, 4}, {4, 5}}),
      einsum_sample("ij,kj->ik", {{3, 4}, {5, 4}}),
      einsum_sample("ij , jk -> ik", {{2, 3}, {3, 2}}),
      einsum_sample("bij,bjk->bik", {{2, 3, 4}, {2, 4, 2}}),
      einsum_sample("bij,bjk->ik", {{2, 3, 4}, {2, 4, 2}}),
      einsum_sample("bhid,bhjd->bhij", {{2, 2, 3, 2}, {2, 2, 2, 2}}),
      einsum_sample("bhij,bjhd->bihd", {{2, 2, 3, 2}, {2, 2, 2, 2}}),
      einsum_sample("i,i->", {{5}, {5}}),
      einsum_sample("i,i->i", {{5}, {5}}),
      einsum_sample("i,j->ij", {{3}, {4}}),
      einsum_sample("i,j->ji", {{3}, {4}}),
      einsum_sample("i,j->", {{3}, {4}}),
      einsum_sample("i,j->j", {{3}, {4}}),
      einsum_sample("bi,bi->b", {{3, 4}, {3, 4}}),
      einsum_sample("ij->ji", {{3, 4}}),
      einsum_sample("ij->i", {{3, 4}}),
      einsum_sample("ij->", {{3, 4}}),
      einsum_sample("ii->i", {{4, 4}}),
      einsum_sample("ii->", {{4, 4}}),
      einsum_sample("iji->j", {{3, 2, 3}}),
      einsum_sample("iii->i", {{3, 3, 3}}),
      einsum_sample("ii,ij->j", {{3, 3}, {3, 2}}),
      einsum_sample("ij,jk", {{2, 3}, {3, 4}}, "ij,jk->ik"),
      einsum_sample("ba", {{2, 3}}, "ba->ab"),
      einsum_sample("bA", {{2, 3}}, "bA->Ab"),
      einsum_sample("ii", {{3, 3}}, "ii->"),
      einsum_sample("ij,jk,kl->il", {{2, 3}, {3, 4}, {4, 2}}),
      einsum_sample("ij,kj,lj->ikl", {{2, 3}, {3, 3}, {2, 3}}),
      einsum_sample("bn,anm,bm->ba", {{2, 3}, {4, 3, 2}, {2, 2}}),
      einsum_sample("i,i,i,i->i", {{3}, {3}, {3}, {3}}),
      einsum_sample("...ij,...jk->...ik", {{2, 2, 3}, {2, 3, 2}}, "aij,ajk->aik"),
      einsum_sample("...ij,jk->...ik", {{2, 2, 2, 3}, {3, 2}}, "abij,jk->abik"),
      einsum_sample("...i,...i->...", {{2, 3, 4}, {3, 4}}, "abi,bi->ab"),
      einsum_sample("...,...->...", {{2, 1, 3}, {4, 1}}, "abc,bc->abc"),
      einsum_sample("i...->...i", {{2, 3, 4}}, "iab->abi"),
      einsum_sample("i...j->ij", {{2, 3, 2}}, "iaj->ij"),
      einsum_sample("...ij", {{2, 2, 3}}, "aij->aij"),
      einsum_sample("...ii->...i", {{2, 3, 3}}, "aii->ai"),
      einsum_sample("ij,jk->ijk", {{1, 3}, {3, 2}}),
      einsum_sample("ij,ij->j", {{1, 3}, {4, 3}}),
      einsum_sample("ij,ij->ij", {{2, 1}, {1, 3}}),
      einsum_sample("ij,jk->ik", {{3, 0}, {0, 4}}),
      einsum_sample("bij,bjk->bik", {{0, 3, 4}, {0, 4, 2}}),
      einsum_sample(",ij->ij", {{}, {2, 3}}),
      einsum_sample("->", {{}}),
  };
  s.bad = {
      bad_einsum("label size", "ij,jk->ik", {real({3, 4}), real({5, 6})}, "ShapeError",
                 "einsum: label 'j' has size 4 in operand 0 and size 5 in operand 1"),
      bad_einsum("repeated label size", "ii->i", {real({3, 4})}, "ShapeError", "label 'i' is repeated in operand 0"),
      bad_einsum("unknown output label", "ij->ik", {real({3, 4})}, "ValueError",
                 "label 'k' of the result occurs in no operand"),
      bad_einsum("output label twice", "ij->ii", {real({3, 4})}, "ValueError", "label 'i' occurs twice in the result"),
      bad_einsum("too few labels", "i->i", {real({3, 4})}, "ShapeError", "operand 0 of shape [3, 4] has 2 dimensions"),
      bad_einsum("too many labels", "ijk->i", {real({3, 4})}, "ShapeError", "names 3 labels"),
      bad_einsum("too many labels with dots", "...ijk->i", {real({3, 4})}, "ShapeError", "names 3 labels"),
      bad_einsum("operand count", "ij,jk->ik", {real({3, 4})}, "ValueError", "describes 2 operands, but 1 are given"),
      bad_einsum("no operands", "->", {}, "ValueError", "at least one operand"),
      bad_einsum("character", "i1->i", {real({3, 4})}, "ValueError", "'1' in \"i1->i\" is not a label"),
      bad_einsum("dots", "..ij->ij", {real({3, 4})}, "ValueError", "one \"...\" per operand"),
      bad_einsum("dots twice", "...i...->i", {real({3, 4})}, "ValueError", "one \"...\" per operand"),
      bad_einsum("dots in output only", "ij->...", {real({3, 4})}, "ValueError", "no operand does"),
      bad_einsum("second arrow", "ij->i->j", {real({3, 4})}, "ValueError", "is not a label"),
      bad_einsum("dots sizes", "...i,...i->...", {real({2, 3}), real({4, 3})}, "ShapeError",
                 "label '...' has size 2 in operand 0"),
      bad_einsum("dtypes", "i,i->i", {real({3}), index_arg({3}, 3)}, "DTypeError", "einsum: operand 1 is i64"),
      bad_einsum("bool", "i,i->i", {boolean_arg({3}), boolean_arg({3})}, "DTypeError", "einsum: does not take bool"),
      bad_einsum("undefined", "i,i->i", {real({3}), missing_arg()}, "ValueError", "undefined tensor"),
  };
  return s;
}

OpSamples Tensordot::samples() {
  OpSamples s{.op = "tensordot", .dtypes = kNumbers, .growth = 64, .scale = 4};
  auto count_sample = [&](std::string note, Shape a, Shape b, int64_t dims, std::vector<std::string> terms,
                          std::string output) {
    s.good.push_back({note,
                      {real(a), real(b)},
                      [dims](const Tensors& t) -> Tensors { return {tensordot(t[0], t[1], dims)}; },
                      [=](const Tensors& t) -> Tensors { return {naive_einsum(terms, output, t)}; },
                      "torch.tensordot(a, b, dims=" + std::to_string(dims) + ")"});
  };
  auto list_sample = [&](std::string note, Shape a, Shape b, std::vector<int64_t> da, std::vector<int64_t> db,
                         std::vector<std::string> terms, std::string output, std::string torch) {
    s.good.push_back({note,
                      {real(a), real(b)},
                      [=](const Tensors& t) -> Tensors { return {tensordot(t[0], t[1], IntList(da), IntList(db))}; },
                      [=](const Tensors& t) -> Tensors { return {naive_einsum(terms, output, t)}; },
                      "torch.tensordot(a, b, dims=(" + torch + "))"});
  };
  count_sample("dims=1", {3, 4}, {4, 5}, 1, {"ij", "jk"}, "ik");
  count_sample("dims=2", {2, 3, 4}, {3, 4, 5}, 2, {"ijk", "jkl"}, "il");
  count_sample("dims=0", {2, 3}, {4}, 0, {"ij", "k"}, "ijk");
  count_sample("all", {3, 2}, {3, 2}, 2, {"ij", "ij"}, "");
  count_sample("0d", {}, {3}, 0, {"", "i"}, "i");
  count_sample("size 0", {2, 0}, {0, 3}, 1, {"ij", "jk"}, "ik");
  list_sample("first", {3, 4}, {3, 2}, {0}, {0}, {"ij", "ik"}, "jk", "[0], [0]");
  list_sample("last of both", {3, 4}, {2, 4}, {-1}, {-1}, {"ij", "kj"}, "ik", "[-1], [-1]");
  list_sample("two crossed", {3, 4, 2}, {4, 3, 2}, {0, 1}, {1, 0}, {"ijk", "jil"}, "kl", "[0, 1], [1, 0]");
  list_sample("none", {2}, {3}, {}, {}, {"i", "j"}, "ij", "[], []");
  list_sample("broadcast", {3, 1}, {4, 2}, {1}, {0}, {"ij", "jk"}, "ik", "[1], [0]");
  auto bad = [&](std::string note, Arg a, Arg b, std::vector<int64_t> da, std::vector<int64_t> db, std::string error,
                 std::string text) {
    s.bad.push_back({note,
                     {a, b},
                     [=](const Tensors& t) -> Tensors { return {tensordot(t[0], t[1], IntList(da), IntList(db))}; },
                     error,
                     text});
  };
  bad("sizes", real({3, 4}), real({5, 2}), {1}, {0}, "ShapeError",
      "tensordot: dimension 1 of shape [3, 4] and dimension 0 of shape [5, 2]");
  bad("counts", real({3, 4}), real({4, 2}), {1}, {0, 1}, "ValueError", "1 dimensions of the first operand against 2");
  bad("range", real({3, 4}), real({4, 2}), {2}, {0}, "IndexError", "tensordot: dimension 2 is out of range");
  bad("twice", real({3, 3}), real({3, 3}), {0, 0}, {0, 1}, "ValueError", "is named twice");
  bad("twice right", real({3, 3}), real({3, 3}), {0, 1}, {0, 0}, "ValueError", "is named twice");
  bad("0d", real({}), real({3}), {0}, {0}, "IndexError", "a 0-d tensor has no dimensions");
  bad("dtypes", real({3}), index_arg({3}, 2), {0}, {0}, "DTypeError", "tensordot: operands are");
  bad("undefined", real({3}), missing_arg(), {0}, {0}, "ValueError", "undefined tensor");
  s.bad.push_back({"too many",
                   {real({3}), real({3})},
                   [](const Tensors& t) -> Tensors { return {tensordot(t[0], t[1], 2)}; },
                   "ValueError",
                   "2 dimensions cannot be summed over"});
  return s;
}

}  // namespace deft
