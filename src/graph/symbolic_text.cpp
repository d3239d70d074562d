// The rules of a template as text:
//   symbol 0.0 2.1     dimension 0 of input 0 and dimension 1 of input 2
//   term 17 0 12 0 1   number 17 of the graph is 0 + 12 * (symbol 0) * (symbol 1)
//   filled 3           constant buffer 3 is filled anew
#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/check.h"
#include "graph/symbolic.h"

namespace deft::graph {

namespace {

constexpr int64_t kMostOfTerms = int64_t{1} << 62;

// The numbers behind a line's first word. LoadError with the line.
class RuleReader {
 public:
  explicit RuleReader(const std::string& text) : in_(text) {}
  bool next() {
    std::string line;
    if (!std::getline(in_, line)) return false;
    ++number_;
    words_ = std::istringstream(line);
    kind_.clear();
    words_ >> kind_;
    return true;
  }
  const std::string& kind() const { return kind_; }
  bool more() { return !(words_ >> std::ws).eof(); }
  int64_t integer(int64_t least, int64_t most) {
    std::string word;
    words_ >> word;
    return integer(word, least, most);
  }
  InputDim dim(const Graph& g) {
    std::string word;
    words_ >> word;
    const size_t dot = std::min(word.find('.'), word.size());
    const auto inputs = static_cast<int64_t>(g.inputs.size());
    const auto input = static_cast<size_t>(integer(word.substr(0, dot), 0, inputs - 1));
    const int rank = g.value(g.inputs[input]).meta.rank();
    return {input, static_cast<int>(integer(word.substr(std::min(dot + 1, word.size())), 0, rank - 1))};
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw LoadError("rules", "text", fmt::format("line {}", number_), 0, what);
  }

 private:
  int64_t integer(const std::string& word, int64_t least, int64_t most) const {
    int64_t n = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (error != std::errc() || end != word.data() + word.size() || n < least || n > most)
      fail(fmt::format("found '{}', expected a number from {} to {}", word, least, most));
    return n;
  }

  std::istringstream in_, words_;
  std::string kind_;
  uint64_t number_ = 0;
};

// Files hold constants as bytes; what is filled anew has the type of its values.
void give_types(Graph& g, const std::vector<BufferId>& filled) {
  for (BufferId id : filled) {
    Buffer& b = g.buffers[index(id)];
    auto v = std::find_if(g.values.begin(), g.values.end(), [&](const Value& each) { return each.buffer == id; });
    if (v == g.values.end() || b.kind != BufferKind::constant) continue;
    const auto count = static_cast<int64_t>(b.bytes / size_of(v->meta.dtype));
    b.constant = on_memory_of(b.constant, {Meta::dense({count}, v->meta.dtype, v->meta.device), id, 0});
  }
}

}  // namespace

std::string Template::rules() const {
  std::string text;
  for (const auto& dims : symbols_) {
    text += "symbol";
    for (const InputDim& d : dims) text += fmt::format(" {}.{}", d.input, d.dim);
    text += "\n";
  }
  for (const Term& t : terms_)
    text += fmt::format("term {} {} {} {}\n", t.number, t.base, t.factor, fmt::join(t.symbols, " "));
  for (BufferId id : filled_) text += fmt::format("filled {}\n", id);
  return text;
}

Template Template::of_rules(Graph graph, const std::string& rules, std::function<void(const Graph&)> check) {
  Template t(std::move(graph));
  const Graph& g = t.captures_[0];
  RuleReader in(rules);
  if (t.is_over()) in.fail(t.fault());
  while (in.next()) {
    if (in.kind() == "symbol") {
      t.symbols_.emplace_back();
      do t.symbols_.back().push_back(in.dim(g));
      while (in.more());
    } else if (in.kind() == "term") {
      Term term{static_cast<size_t>(in.integer(0, kMostOfTerms)),
                in.integer(-kLimit, kLimit),
                in.integer(-kLimit, kLimit),
                {}};
      do term.symbols.push_back(static_cast<size_t>(in.integer(0, static_cast<int64_t>(t.symbols_.size()) - 1)));
      while (in.more());
      t.terms_.push_back(std::move(term));
    } else if (in.kind() == "filled") {
      t.filled_.push_back(static_cast<BufferId>(in.integer(0, static_cast<int64_t>(g.buffers.size()) - 1)));
    } else {
      in.fail(fmt::format("found '{}', expected symbol, term or filled", in.kind()));
    }
  }
  give_types(t.captures_[0], t.filled_);
  if (std::string fault = t.fault_of_rules(); !fault.empty()) in.fail(fault);
  t.foretold_.assign(t.symbols_.size(), true);
  t.fault_.clear();
  t.confirmed_ = true;
  t.check_ = std::move(check);
  return t;
}

}  // namespace deft::graph
