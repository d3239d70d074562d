// einsum and tensordot: operands with labelled dimensions, contracted two at a time by one batched matmul each.
#include <algorithm>

#include "base/check.h"
#include "core/describe.h"
#include "ops/binary.h"
#include "ops/matmul.h"
#include "ops/matmul_common.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

namespace {

// Labels are numbers: letters first (in ASCII order), then the dimensions behind "...".
using Labels = std::vector<int>;
constexpr int kLetters = 52;
static_assert(kLetters + kMaxDims <= 64, "label sets are 64-bit words");

uint64_t bit(int label) { return uint64_t{1} << label; }
uint64_t set_of(const Labels& labels) {
  uint64_t set = 0;
  for (int l : labels) set |= bit(l);
  return set;
}
int letter_number(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1; }
std::string label_text(int label) {
  if (label >= kLetters) return "...";
  return std::string(1, static_cast<char>(label < 26 ? 'A' + label : 'a' + label - 26));
}

// A tensor whose dimension i has labels[i]; no label occurs twice.
struct Labelled {
  Tensor tensor;
  Labels labels;
  int64_t size(int label) const {
    auto at = std::find(labels.begin(), labels.end(), label) - labels.begin();
    return tensor.sizes()[static_cast<int>(at)];
  }
};

void sum_away(Labelled& x, uint64_t gone) {
  if (!(set_of(x.labels) & gone)) return;
  std::vector<int64_t> dims;
  Labels rest;
  for (size_t i = 0; i < x.labels.size(); ++i) {
    if (gone & bit(x.labels[i]))
      dims.push_back(static_cast<int64_t>(i));
    else
      rest.push_back(x.labels[i]);
  }
  DType dtype = x.tensor.dtype();
  x.tensor = x.tensor.sum(dims).to(dtype);  // sums of integers are i64
  x.labels = rest;
}

// Drops dims of size 1 that `other` has in another size: they broadcast.
void drop_broadcast(Labelled& x, const Labelled& other) {
  uint64_t theirs = set_of(other.labels);
  for (size_t i = x.labels.size(); i-- > 0;) {
    if (x.tensor.sizes()[static_cast<int>(i)] != 1 || !(theirs & bit(x.labels[i])) || other.size(x.labels[i]) == 1)
      continue;
    x.tensor = x.tensor.squeeze(static_cast<int64_t>(i));
    x.labels.erase(x.labels.begin() + static_cast<int64_t>(i));
  }
}

Tensor reorder(const Labelled& x, const Labels& order) {
  std::vector<int64_t> dims;
  bool same = true;
  for (int label : order) {
    auto at = std::find(x.labels.begin(), x.labels.end(), label) - x.labels.begin();
    same = same && at == static_cast<int64_t>(dims.size());
    dims.push_back(at);
  }
  return same ? x.tensor : x.tensor.permute(dims);
}

Labels filter(const Labels& labels, uint64_t set) {
  Labels r;
  for (int l : labels)
    if (set & bit(l)) r.push_back(l);
  return r;
}
Labels join(std::initializer_list<Labels> parts) {
  Labels r;
  for (const Labels& p : parts) r.insert(r.end(), p.begin(), p.end());
  return r;
}
int64_t count_of(const Labelled& x, const Labels& labels) {
  int64_t n = 1;
  for (int l : labels) n *= x.size(l);
  return n;
}

// Without a common sum: an elementwise product with the dims of one stretched over the other.
Tensor broadcast_product(const Labelled& a, const Labelled& b, const Labels& batch, const Labels& left,
                         const Labels& right) {
  Tensor x = reorder(a, join({batch, left})), y = reorder(b, join({batch, right}));
  for (size_t i = 0; i < right.size(); ++i) x = x.unsqueeze(-1);
  for (size_t i = 0; i < left.size(); ++i) y = y.unsqueeze(static_cast<int64_t>(batch.size()));
  return mul(x, y);
}

Labelled contract(Labelled a, Labelled b, uint64_t keep) {
  drop_broadcast(a, b);
  drop_broadcast(b, a);
  uint64_t in_a = set_of(a.labels), in_b = set_of(b.labels);
  sum_away(a, in_a & ~in_b & ~keep);
  sum_away(b, in_b & ~in_a & ~keep);
  Labels batch = filter(a.labels, in_b & keep), inner = filter(a.labels, in_b & ~keep);
  Labels left = filter(a.labels, ~in_b), right = filter(b.labels, ~in_a);
  Labels result = join({batch, left, right});
  if (inner.empty()) return {broadcast_product(a, b, batch, left, right), result};
  Shape sizes;
  for (int l : batch) sizes.push_back(a.size(l));
  for (int l : left) sizes.push_back(a.size(l));
  for (int l : right) sizes.push_back(b.size(l));
  int64_t n = count_of(a, batch), m = count_of(a, left), k = count_of(a, inner), cols = count_of(b, right);
  Tensor x = reorder(a, join({batch, left, inner})), y = reorder(b, join({batch, inner, right}));
  if (batch.empty()) return {matmul(x.reshape({m, k}), y.reshape({k, cols})).reshape(sizes), result};
  return {matmul(x.reshape({n, m, k}), y.reshape({n, k, cols})).reshape(sizes), result};
}

Tensor contract_all(std::vector<Labelled> operands, const Labels& output) {
  uint64_t wanted = set_of(output);
  Labelled left = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    uint64_t keep = wanted;
    for (size_t j = i + 1; j < operands.size(); ++j) keep |= set_of(operands[j].labels);
    left = contract(std::move(left), operands[i], keep);
  }
  sum_away(left, ~wanted);
  return reorder(left, output);
}

// --- the equation ----------------------------------------------------------------------------------------------

struct Term {
  Labels labels;
  int dots_at = -1;  // labels before "..."
};

Term parse_term(std::string_view text, std::string_view equation) {
  Term t;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      DEFT_CHECK(text.substr(i, 3) == "..." && t.dots_at < 0, ValueError,
                 "einsum: '.' is only allowed as one \"...\" per operand, found \"{}\" in \"{}\"", text, equation);
      t.dots_at = static_cast<int>(t.labels.size());
      i += 2;
      continue;
    }
    int label = letter_number(text[i]);
    DEFT_CHECK(label >= 0, ValueError, "einsum: '{}' in \"{}\" is not a label; use letters a-z and A-Z", text[i],
               equation);
    t.labels.push_back(label);
  }
  return t;
}

// "..." as labels of its own: `dims` of the `all` dims it stands for at most, aligned at the end.
Labels with_dots(const Term& t, int dims, int all) {
  Labels r(t.labels.begin(), t.labels.begin() + std::max(t.dots_at, 0));
  for (int i = all - dims; t.dots_at >= 0 && i < all; ++i) r.push_back(kLetters + i);
  r.insert(r.end(), t.labels.begin() + std::max(t.dots_at, 0), t.labels.end());
  return r;
}

// Repeated labels become diagonals.
Labelled take_diagonals(Tensor x, Labels labels, size_t index) {
  for (size_t i = 0; i < labels.size(); ++i) {
    auto again = std::find(labels.begin() + static_cast<int64_t>(i) + 1, labels.end(), labels[i]);
    if (again == labels.end()) continue;
    int64_t first = static_cast<int64_t>(i), second = again - labels.begin();
    int64_t a = x.sizes()[static_cast<int>(first)], b = x.sizes()[static_cast<int>(second)];
    int label = labels[i];
    DEFT_CHECK(a == b, ShapeError,
               "einsum: label '{}' is repeated in operand {} of shape {} with sizes {} and {}; they must be equal",
               label_text(label), index, to_string(x.sizes()), a, b);
    x = x.diagonal(0, first, second);
    labels.erase(again);
    labels.erase(labels.begin() + first);
    labels.push_back(label);
    --i;
  }
  return {x, labels};
}

void check_sizes(const std::vector<Labelled>& operands) {
  int64_t size[64];
  size_t where[64];
  uint64_t seen = 0;
  for (size_t o = 0; o < operands.size(); ++o)
    for (int l : operands[o].labels) {
      int64_t n = operands[o].size(l);
      if (!(seen & bit(l)) || size[l] == 1) size[l] = n, where[l] = o;
      seen |= bit(l);
      DEFT_CHECK(n == size[l] || n == 1, ShapeError,
                 "einsum: label '{}' has size {} in operand {} and size {} in operand {}", label_text(l), size[l],
                 where[l], n, o);
    }
}

Labels implicit_output(const std::vector<Term>& terms, int dots) {
  int count[kLetters] = {};
  for (const Term& t : terms)
    for (int l : t.labels) ++count[l];
  Labels r;
  for (int i = 0; i < dots; ++i) r.push_back(kLetters + i);
  for (int l = 0; l < kLetters; ++l)
    if (count[l] == 1) r.push_back(l);
  return r;
}

Labels explicit_output(std::string_view text, std::string_view equation, const std::vector<Term>& terms, int dots) {
  Term t = parse_term(text, equation);
  uint64_t known = 0, seen = 0;
  bool any_dots = false;
  for (const Term& in : terms) {
    known |= set_of(in.labels);
    any_dots |= in.dots_at >= 0;
  }
  DEFT_CHECK(t.dots_at < 0 || any_dots, ValueError, "einsum: the result of \"{}\" has \"...\" but no operand does",
             equation);
  for (int l : t.labels) {
    DEFT_CHECK(known & bit(l), ValueError, "einsum: label '{}' of the result occurs in no operand of \"{}\"",
               label_text(l), equation);
    DEFT_CHECK(!(seen & bit(l)), ValueError, "einsum: label '{}' occurs twice in the result of \"{}\"", label_text(l),
               equation);
    seen |= bit(l);
  }
  return with_dots(t, dots, dots);
}

std::vector<Term> parse_terms(std::string_view inputs, std::string_view equation, const std::vector<Tensor>& operands) {
  std::vector<Term> terms;
  for (size_t begin = 0;;) {
    size_t comma = inputs.find(',', begin);
    terms.push_back(parse_term(inputs.substr(begin, comma - begin), equation));
    if (comma == std::string_view::npos) break;
    begin = comma + 1;
  }
  DEFT_CHECK(terms.size() == operands.size(), ValueError, "einsum: \"{}\" describes {} operands, but {} are given",
             equation, terms.size(), operands.size());
  for (size_t i = 0; i < terms.size(); ++i) {
    detail::check_defined(operands[i], "einsum");
    DEFT_CHECK(Einsum::info.dtypes.contains(operands[i].dtype()), DTypeError,
               "einsum: does not take {}; found an operand {}, convert it with to()", name_of(operands[i].dtype()),
               describe(operands[i].meta()));
    DEFT_CHECK(operands[i].dtype() == operands[0].dtype(), DTypeError,
               "einsum: operand {} is {} but operand 0 is {}; convert one of them with to()", i,
               name_of(operands[i].dtype()), name_of(operands[0].dtype()));
    int rank = operands[i].dim(), labels = static_cast<int>(terms[i].labels.size());
    DEFT_CHECK(terms[i].dots_at >= 0 ? rank >= labels : rank == labels, ShapeError,
               "einsum: operand {} of shape {} has {} dimensions, but \"{}\" names {} labels for it", i,
               to_string(operands[i].sizes()), rank, equation, labels);
  }
  return terms;
}

}  // namespace

namespace {

// One operand is only summed and transposed.
std::vector<Tensor> all_lowered(const std::vector<Tensor>& operands) {
  std::vector<Tensor> all = operands;
  for (Tensor& t : all)
    if (all.size() > 1 && t.defined()) t = lowered(t);
  return all;
}

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& given, Site site) {
  SiteScope scope(site);
  DEFT_CHECK(!given.empty(), ValueError, "einsum: needs at least one operand");
  const std::vector<Tensor> operands = all_lowered(given);
  std::string text(equation);
  std::erase(text, ' ');
  size_t arrow = text.find("->");
  std::vector<Term> terms = parse_terms(std::string_view(text).substr(0, arrow), equation, operands);
  int dots = 0;
  for (size_t i = 0; i < terms.size(); ++i)
    if (terms[i].dots_at >= 0) dots = std::max(dots, operands[i].dim() - static_cast<int>(terms[i].labels.size()));
  std::vector<Labelled> labelled;
  for (size_t i = 0; i < terms.size(); ++i) {
    int dims = operands[i].dim() - static_cast<int>(terms[i].labels.size());
    labelled.push_back(take_diagonals(operands[i], with_dots(terms[i], dims, dots), i));
  }
  check_sizes(labelled);
  Labels output = arrow == std::string::npos
                      ? implicit_output(terms, dots)
                      : explicit_output(std::string_view(text).substr(arrow + 2), equation, terms, dots);
  return contract_all(std::move(labelled), output);
}

Tensor tensordot(const Tensor& left, const Tensor& right, IntList dims_a, IntList dims_b, Site site) {
  SiteScope scope(site);
  detail::check_defined(left, "tensordot");
  detail::check_defined(right, "tensordot");
  const Tensor a = lowered(left), b = lowered(right);
  DEFT_CHECK(a.dtype() == b.dtype(), DTypeError, "tensordot: operands are {} and {}; convert one of them with to()",
             name_of(a.dtype()), name_of(b.dtype()));
  DEFT_CHECK(dims_a.size() == dims_b.size(), ValueError,
             "tensordot: {} dimensions of the first operand against {} of the second", dims_a.size(), dims_b.size());
  Labels labels_a, labels_b(static_cast<size_t>(b.dim()), -1), output;
  for (int i = 0; i < a.dim(); ++i) labels_a.push_back(i);
  uint64_t summed = 0;
  for (size_t i = 0; i < dims_a.size(); ++i) {
    int64_t da = normalize_dim(dims_a[i], a.dim(), "tensordot"), db = normalize_dim(dims_b[i], b.dim(), "tensordot");
    DEFT_CHECK(a.dim() > 0 && b.dim() > 0, IndexError, "tensordot: a 0-d tensor has no dimensions to sum over");
    int64_t na = a.sizes()[static_cast<int>(da)], nb = b.sizes()[static_cast<int>(db)];
    DEFT_CHECK(na == nb || na == 1 || nb == 1, ShapeError,
               "tensordot: dimension {} of shape {} and dimension {} of shape {} differ", da, to_string(a.sizes()), db,
               to_string(b.sizes()));
    int& label = labels_b[static_cast<size_t>(db)];
    DEFT_CHECK(!(summed & bit(static_cast<int>(da))) && label < 0, ValueError,
               "tensordot: dimension {} or {} is named twice", da, db);
    label = static_cast<int>(da);
    summed |= bit(label);
  }
  for (int i = 0; i < a.dim(); ++i)
    if (!(summed & bit(i))) output.push_back(i);
  for (int i = 0; i < b.dim(); ++i) {
    int& label = labels_b[static_cast<size_t>(i)];
    if (label < 0) output.push_back(label = kMaxDims + i);
  }
  return contract_all({{a, labels_a}, {b, labels_b}}, output);
}

Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims, Site site) {
  detail::check_defined(a, "tensordot");
  detail::check_defined(b, "tensordot");
  DEFT_CHECK(dims >= 0 && dims <= a.dim() && dims <= b.dim(), ValueError,
             "tensordot: {} dimensions cannot be summed over in shapes {} and {}", dims, to_string(a.sizes()),
             to_string(b.sizes()));
  std::vector<int64_t> last, first;
  for (int64_t i = 0; i < dims; ++i) {
    last.push_back(a.dim() - dims + i);
    first.push_back(i);
  }
  return tensordot(a, b, IntList(last), IntList(first), site);
}

}  // namespace deft
