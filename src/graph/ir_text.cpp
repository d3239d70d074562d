// The text form of a graph, line by line:
//   buffer 3 temporary 256
//   value 5 b3+0 f32 [4, 16] [16, 1]
//   %5 = add(%2, %4) at net.cpp:12
//   %5 write mul(%5, %1)
//   %6 view permute(%5) {[1,0]}
//   call sgd.step(%7, %8) writes 1
//   inputs %0      outputs %6
#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/check.h"
#include "core/describe.h"
#include "graph/ir.h"
#include "graph/params_text.h"
#include "graph/verify_foreign.h"
#include "ops/op_table.h"
#include "runtime/device.h"

namespace deft::graph {

namespace {

constexpr const char* kKinds[] = {"input", "constant", "temporary"};
constexpr const char* kActions[] = {"=", "write", "view"};

std::string list(const std::vector<ValueId>& ids) {
  std::string text;
  for (ValueId id : ids) text += (text.empty() ? "" : ", ") + (id == kNone ? "-" : fmt::format("%{}", id));
  return text;
}
std::string numbers(const Shape& s) {
  std::string text;
  for (int64_t n : s) text += fmt::format("{}{}", text.empty() ? "" : ",", n);
  return text.empty() ? "." : text;
}

// Reads what the functions above write. Errors carry the number of the line.
class Reader {
 public:
  Reader(const std::string& text, const std::vector<Tensor>& constants, uint64_t most = UINT64_MAX)
      : in_(text), constants_(constants), most_(most) {}

  Graph read() {
    std::string line;
    while (std::getline(in_, line)) {
      ++number_;
      if (!line.empty()) read_line_or_name_it(line);
      begin_ += line.size() + 1;
    }
    require(used_ == constants_.size(), fmt::format("{} constants were given, {} are named", constants_.size(), used_));
    return std::move(graph_);
  }

 private:
  void require(bool good, const std::string& what) const {
    if (!good) throw LoadError("graph", "text", fmt::format("line {}", number_), begin_, what);
  }
  int64_t integer(const std::string& word) const {
    int64_t n = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    require(error == std::errc() && end == word.data() + word.size(),
            fmt::format("found '{}', expected a number", word));
    return n;
  }
  ValueId value(const std::string& word) const {
    if (word == "-") return kNone;
    require(word.starts_with('%'), fmt::format("found '{}', expected a value", word));
    int64_t n = integer(word.substr(1));
    require(n >= 0 && n < static_cast<int64_t>(graph_.values.size()), fmt::format("there is no value {}", word));
    return static_cast<ValueId>(n);
  }
  std::vector<ValueId> values(const std::string& text) const {
    std::vector<ValueId> ids;
    std::istringstream in(text);
    for (std::string word; std::getline(in, word, ',');) {
      word.erase(0, word.find_first_not_of(' '));
      if (!word.empty()) ids.push_back(value(word));
    }
    return ids;
  }
  Shape shape(const std::string& word) const {
    Shape s;
    if (word == ".") return s;
    std::istringstream in(word);
    for (std::string part; std::getline(in, part, ',');) {
      require(s.size() < kMaxDims, "too many dimensions");
      s.push_back(integer(part));
    }
    return s;
  }

  void read_line_or_name_it(const std::string& line) {
    try {
      read_line(line);
    } catch (const LoadError&) {
      throw;
    } catch (const Error& e) {
      require(false, e.what());
    }
    size_t most = std::max({graph_.buffers.size(), graph_.values.size(), graph_.instructions.size()});
    require(most <= most_, fmt::format("there are more than {} of a kind", most_));
  }
  void read_line(const std::string& line) {
    std::istringstream in(line);
    std::string word;
    in >> word;
    std::string rest;
    if (word == "buffer") return read_buffer(in);
    if (word == "value") return read_value(in);
    if (word == "inputs" || word == "outputs") {
      std::getline(in, rest);
      (word == "inputs" ? graph_.inputs : graph_.outputs) = values(rest);
      return;
    }
    require(word != "call", "a graph that calls code outside cannot be read back");
    read_instruction(line);
  }
  void read_buffer(std::istringstream& in) {
    std::string number, kind, bytes, written;
    in >> number >> kind >> bytes >> written;
    require(integer(number) == static_cast<int64_t>(graph_.buffers.size()), "buffers must be in order");
    for (int k = 0; k < 3; ++k) {
      if (kind != kKinds[k]) continue;
      require(integer(bytes) >= 0, "a buffer has less than no bytes");
      Buffer b{static_cast<BufferKind>(k), static_cast<size_t>(integer(bytes)), {}, written == "written"};
      if (b.kind == BufferKind::constant) {
        require(used_ < constants_.size(), "more constants are named than were given");
        b.constant = constants_[used_++];
        require(b.constant.impl()->storage->nbytes == b.bytes, "a constant has the wrong size");
      }
      graph_.buffers.push_back(std::move(b));
      return;
    }
    require(false, fmt::format("found the kind '{}'", kind));
  }
  void read_value(std::istringstream& in) {
    std::string number, place, type, sizes, strides, device, wrapped;
    in >> number >> place >> type >> sizes >> strides >> device >> wrapped;
    require(integer(number) == static_cast<int64_t>(graph_.values.size()), "values must be in order");
    size_t plus = place.find('+');
    require(place.starts_with('b') && plus != place.npos, fmt::format("found the place '{}'", place));
    int64_t buffer = integer(place.substr(1, plus - 1));
    require(buffer >= 0 && buffer < static_cast<int64_t>(graph_.buffers.size()), "there is no such buffer");
    Shape s = shape(sizes), t = shape(strides);
    require(s.size() == t.size(), "sizes and strides differ in number");
    for (int64_t n : s) require(n >= 0, "a size is negative");
    for (int64_t n : t) require(n >= 0, "a stride is negative");
    Meta m = Meta::dense(s, dtype(type), parse_device(device));
    m.set_strides(t);
    m.wrapped_number = wrapped == "number";
    graph_.add_value(m, static_cast<BufferId>(buffer), integer(place.substr(plus + 1)));
  }
  DType dtype(const std::string& word) const {
    for (int t = 0; t < kDTypeCount; ++t)
      if (name_of(static_cast<DType>(t)) == word) return static_cast<DType>(t);
    require(false, fmt::format("found the type '{}'", word));
    return DType::f32;
  }
  void read_instruction(const std::string& line) {
    size_t open = line.find('('), close = line.find(')');
    require(open != line.npos && close != line.npos && open < close, "expected an instruction");
    std::string head = line.substr(0, open);
    size_t last = head.rfind(' '), before = last == head.npos ? head.npos : head.rfind(' ', last - 1);
    require(before != head.npos, "expected an instruction");
    std::string action = head.substr(before + 1, last - before - 1), name = head.substr(last + 1);
    Instruction x;
    x.def = find_op(name);
    require(x.def, fmt::format("there is no op '{}'", name));
    bool known = false;
    for (int a = 0; a < 3; ++a)
      if (action == kActions[a]) x.action = static_cast<Action>(a), known = true;
    require(known, fmt::format("found '{}', expected =, write or view", action));
    x.outputs = values(head.substr(0, before));
    x.inputs = values(line.substr(open + 1, close - open - 1));
    require(x.def->info.inputs == kListInput || static_cast<int>(x.inputs.size()) == x.def->info.inputs,
            "the number of inputs is wrong");
    size_t brace = line.find('{', close), end = line.find('}', close);
    bool given = brace != line.npos && end != line.npos && brace < end;
    x.params = parse_params(*x.def, given ? line.substr(brace + 1, end - brace - 1) : "");
    note_effects(x);
    graph_.instructions.push_back(std::move(x));
  }
  std::istringstream in_;
  const std::vector<Tensor>& constants_;
  Graph graph_;
  size_t used_ = 0;
  uint64_t number_ = 0, begin_ = 0, most_;  // the line, and its first byte
};

}  // namespace

std::string to_text(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    const Buffer& b = graph.buffers[i];
    text += fmt::format("buffer {} {} {}{}\n", i, kKinds[static_cast<int>(b.kind)], b.bytes,
                        b.written ? " written"
                        : b.kept  ? " kept"
                                  : "");
  }
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& v = graph.values[i];
    text += fmt::format("value {} b{}+{} {} {} {} {}{}\n", i, v.buffer, v.offset, name_of(v.meta.dtype),
                        numbers(v.meta.sizes), numbers(v.meta.strides), to_string(v.meta.device),
                        v.meta.wrapped_number ? " number" : "");
  }
  text += fmt::format("inputs {}\n", list(graph.inputs));
  for (const Instruction& x : graph.instructions) {
    if (x.action == Action::call) {
      text += fmt::format("call {}({}) writes {}", x.outside->name, list(x.inputs), x.outside->written);
    } else {
      text += fmt::format("{} {} {}({})", list(x.outputs), kActions[static_cast<int>(x.action)], x.def->info.name,
                          list(x.inputs));
    }
    if (!x.params.empty()) text += fmt::format(" {{{}}}", params_text(*x.def, x.params));
    if (x.site.line()) text += " at " + to_string(x.site);
    text += "\n";
  }
  return text + fmt::format("outputs {}\n", list(graph.outputs));
}

Graph parse(const std::string& text, const std::vector<Tensor>& constants) {
  Graph graph = Reader(text, constants).read();
  verify(graph, "parse");
  return graph;
}

Graph parse_foreign(const std::string& text, const std::vector<Tensor>& constants, uint64_t most) {
  Graph graph = Reader(text, constants, most).read();
  verify_foreign(graph);
  return graph;
}

}  // namespace deft::graph
