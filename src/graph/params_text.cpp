#include "graph/params_text.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/elementwise_chain.h"
#include "ops/fused_rows.h"
#include "ops/op_table.h"
#include "ops/param_fields.h"

namespace deft::graph {

namespace {

using Chain = ElementwiseChain;

double real_at(const std::byte* at) {
  double v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
uint64_t natural_at(const std::byte* at) {
  uint64_t v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

std::string field_text(const ParamField& f, const std::byte* params) {
  const std::byte* at = params + f.offset;
  switch (f.kind) {
    case FieldKind::real:
      return fmt::format("{:a}", real_at(at));
    case FieldKind::boolean:
      return *at == std::byte{0} ? "false" : "true";
    case FieldKind::pointer:
      return "-";
    case FieldKind::choice:
      return fmt::format("{}", static_cast<unsigned>(*at));
    case FieldKind::draw:
      return fmt::format("{}", natural_at(at));
    case FieldKind::shape: {
      Shape shape;
      std::memcpy(static_cast<void*>(&shape), at, sizeof shape);
      std::string text = to_string(shape);
      std::erase(text, ' ');
      return text;
    }
    default:
      return fmt::format("{}", read_integer(f, params));
  }
}

std::string fields_text(const OpDef& def, const std::byte* params) {
  std::string text;
  for (const ParamField& f : param_fields(def)) text += (text.empty() ? "" : " ") + field_text(f, params);
  return text;
}

std::string chain_text(const Chain::Params& p) {
  std::string text = fmt::format("like {};", p.like);
  for (int i = 0; i < p.inputs; ++i) text += fmt::format(" {}", p.period[i]);
  for (int s = 0; s < p.steps; ++s) {
    const Chain::Step& step = p.step[s];
    const OpDef* def = op_at(step.op < 0 ? ~step.op : step.op);
    text += fmt::format("; {}{} {}", step.op < 0 ? "~" : "", def ? def->info.name : "?", name_of(step.stored));
    for (int i = 0; i < step.inputs; ++i)
      text += step.in[i] < Chain::kInputs ? fmt::format(" i{}", step.in[i])
                                          : fmt::format(" s{}", step.in[i] - Chain::kInputs);
    if (!def || def->params_bytes == 0) continue;
    text += " : " + fields_text(*def, reinterpret_cast<const std::byte*>(step.params));
  }
  return text;
}

std::string rows_text(const FusedRows::Params& p) {
  std::string sizes = to_string(p.row);
  std::erase(sizes, ' ');
  std::string text = fmt::format("{} {} {}", p.like, p.keeps_rows, sizes);
  for (const FusedRows::Part& part : p.part) {
    const OpDef* def = op_at(part.op);
    text +=
        def ? fmt::format(" | {} {} {} {}", def->info.name, part.inputs, part.from_last, name_of(part.made)) : " | -";
    if (!def || def->params_bytes == 0) continue;
    const auto* bytes = reinterpret_cast<const std::byte*>(part.params.data());
    text += " : " + params_text(*def, {bytes, bytes + def->params_bytes});
  }
  return text;
}

std::string hex(const std::vector<std::byte>& bytes) {
  std::string text = "x";
  for (std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

// --- Reading

// Takes the text up to `end`, and `end`.
std::string_view take(std::string_view& text, char end) {
  size_t at = text.find(end);
  std::string_view part = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + 1);
  return part;
}
std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}
std::string_view next_word(std::string_view& text) {
  text = trimmed(text);
  return take(text, ' ');
}

template <class T>
T number(std::string_view word, const char* what) {
  T v{};
  std::from_chars_result end{};
  if constexpr (std::is_same_v<T, double>) {
    std::string_view rest = word;
    bool negative = rest.starts_with('-');
    if (negative) rest.remove_prefix(1);
    if (rest == "inf" || rest == "nan") {
      v = rest == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
      return negative ? -v : v;
    }
    DEFT_CHECK(rest.starts_with("0x"), ValueError, "found '{}', expected {}", word, what);
    rest.remove_prefix(2);
    end = std::from_chars(rest.data(), rest.data() + rest.size(), v, std::chars_format::hex);
    v = negative ? -v : v;
  } else {
    end = std::from_chars(word.data(), word.data() + word.size(), v);
  }
  DEFT_CHECK(end.ec == std::errc() && end.ptr == word.data() + word.size(), ValueError, "found '{}', expected {}", word,
             what);
  return v;
}

Shape parse_shape(std::string_view word) {
  DEFT_CHECK(word.size() >= 2 && word.front() == '[' && word.back() == ']', ValueError, "found '{}', expected a shape",
             word);
  word = word.substr(1, word.size() - 2);
  Shape shape;
  while (!word.empty()) shape.push_back(number<int64_t>(take(word, ','), "a size"));
  return shape;
}

void parse_field(const ParamField& f, std::string_view word, std::byte* params) {
  std::byte* at = params + f.offset;
  switch (f.kind) {
    case FieldKind::real: {
      auto v = number<double>(word, "a number");
      std::memcpy(at, &v, sizeof v);
      break;
    }
    case FieldKind::boolean:
      DEFT_CHECK(word == "true" || word == "false", ValueError, "found '{}', expected true or false", word);
      *at = std::byte{word == "true"};
      break;
    case FieldKind::pointer:
      DEFT_CHECK(word == "-", ValueError, "found '{}', expected -", word);
      break;
    case FieldKind::choice:
      *at = std::byte{number<uint8_t>(word, "a choice")};
      break;
    case FieldKind::draw: {
      auto v = number<uint64_t>(word, "a whole number");
      std::memcpy(at, &v, sizeof v);
      break;
    }
    case FieldKind::shape: {
      Shape shape = parse_shape(word);
      std::memcpy(at, &shape, sizeof shape);
      break;
    }
    default: {
      auto v = number<int64_t>(word, "a whole number");
      write_integer(f, params, v);
      DEFT_CHECK(read_integer(f, params) == v, ValueError, "{} has no room in {} bytes", v, f.bytes);
    }
  }
  DEFT_CHECK(is_valid(f, params), ValueError, "'{}' is no value of its field", word);
}

void parse_fields(const OpDef& def, std::string_view text, std::byte* params) {
  for (const ParamField& f : param_fields(def)) {
    std::string_view word = next_word(text);
    DEFT_CHECK(!word.empty(), ValueError, "parameters of {} are missing", def.info.name);
    parse_field(f, word, params);
  }
  DEFT_CHECK(trimmed(text).empty(), ValueError, "{} has no parameter '{}'", def.info.name, trimmed(text));
}

DType parse_dtype(std::string_view word) {
  for (int t = 0; t < kDTypeCount; ++t)
    if (name_of(static_cast<DType>(t)) == word) return static_cast<DType>(t);
  DEFT_FAIL(ValueError, "found '{}', expected a type", word);
}

Chain::Step parse_step(std::string_view text, const Chain::Params& p) {
  Chain::Step step{};
  std::string_view head = take(text, ':'), name = next_word(head);
  bool gradient = name.starts_with('~');
  if (gradient) name.remove_prefix(1);
  const OpDef* def = find_op(name);
  DEFT_CHECK(def && def->elementwise && def->params_bytes <= Chain::kParamBytes, ValueError,
             "'{}' is no elementwise op of a chain", name);
  step.op = gradient ? ~op_index(*def) : op_index(*def);
  step.stored = parse_dtype(next_word(head));
  while (!(head = trimmed(head)).empty()) {
    std::string_view word = next_word(head);
    bool input = word.starts_with('i');
    DEFT_CHECK(input || word.starts_with('s'), ValueError, "found '{}', expected an input or a step", word);
    auto from = number<uint8_t>(word.substr(1), "its number");
    DEFT_CHECK(from < (input ? p.inputs : p.steps), ValueError, "'{}' is not there yet", word);
    DEFT_CHECK(step.inputs < Chain::kOperands, ValueError, "a step has more than {} inputs", Chain::kOperands);
    step.in[step.inputs++] = static_cast<uint8_t>(from + (input ? 0 : Chain::kInputs));
  }
  int wanted = gradient ? 3 : def->info.inputs;
  DEFT_CHECK(step.inputs == wanted, ValueError, "a step of {} has {} inputs, expected {}", name, step.inputs, wanted);
  if (def->params_bytes) parse_fields(*def, text, reinterpret_cast<std::byte*>(step.params));
  return step;
}

Chain::Params parse_chain(std::string_view text) {
  Chain::Params p;
  std::string_view like = take(text, ';'), periods = take(text, ';');
  DEFT_CHECK(next_word(like) == "like", ValueError, "a chain begins with 'like'");
  p.like = number<int32_t>(trimmed(like), "an input");
  while (!(periods = trimmed(periods)).empty()) {
    DEFT_CHECK(p.inputs < Chain::kInputs, ValueError, "a chain has more than {} inputs", Chain::kInputs);
    p.period[p.inputs++] = number<int64_t>(next_word(periods), "a period");
  }
  while (!text.empty()) {
    DEFT_CHECK(p.steps < Chain::kSteps, ValueError, "a chain has more than {} steps", Chain::kSteps);
    p.step[p.steps] = parse_step(take(text, ';'), p);
    ++p.steps;
  }
  DEFT_CHECK(p.steps > 0 && p.like >= 0 && p.like < p.inputs, ValueError, "a chain without steps or without its like");
  return p;
}

FusedRows::Part parse_part(std::string_view text) {
  FusedRows::Part part;
  std::string_view head = take(text, ':'), name = next_word(head);
  if (name == "-") return part;
  const OpDef* def = find_op(name);
  DEFT_CHECK(def && def->params_bytes <= FusedRows::kPartBytes && def != &op_def<FusedRows>, ValueError,
             "'{}' is no part of fused_rows", name);
  part.op = op_index(*def);
  part.inputs = number<uint8_t>(next_word(head), "a number of inputs");
  part.from_last = number<uint32_t>(next_word(head), "bits");
  part.made = parse_dtype(next_word(head));
  DEFT_CHECK(trimmed(head).empty(), ValueError, "found '{}' after a part", trimmed(head));
  std::vector<std::byte> params = parse_params(*def, text);
  if (!params.empty()) std::memcpy(part.params.data(), params.data(), params.size());
  return part;
}

FusedRows::Params parse_rows(std::string_view text) {
  FusedRows::Params p;
  std::string_view head = take(text, '|');
  p.like = number<int32_t>(next_word(head), "an input");
  std::string_view keeps = next_word(head);
  DEFT_CHECK(keeps == "true" || keeps == "false", ValueError, "found '{}', expected true or false", keeps);
  p.keeps_rows = keeps == "true";
  p.row = parse_shape(trimmed(head));
  for (FusedRows::Part& part : p.part) part = parse_part(take(text, '|'));
  DEFT_CHECK(text.empty(), ValueError, "fused_rows has more than {} parts", p.part.size());
  return p;
}

std::vector<std::byte> parse_hex(std::string_view text, size_t bytes) {
  DEFT_CHECK(text.size() == 1 + 2 * bytes && text[0] == 'x', ValueError, "found '{}', expected {} bytes", text, bytes);
  std::vector<std::byte> out;
  for (size_t i = 1; i < text.size(); i += 2) {
    unsigned n = 0;
    auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, n, 16);
    DEFT_CHECK(error == std::errc() && end == text.data() + i + 2, ValueError, "'{}' is not hexadecimal", text);
    out.push_back(static_cast<std::byte>(n));
  }
  return out;
}

template <class Params>
std::vector<std::byte> bytes_of(const Params& p) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&p);
  return {bytes, bytes + sizeof p};
}
template <class Params>
Params from_bytes(const std::vector<std::byte>& bytes) {
  Params p;
  std::memcpy(static_cast<void*>(&p), bytes.data(), sizeof p);
  return p;
}

}  // namespace

std::string params_text(const OpDef& def, const std::vector<std::byte>& params) {
  if (&def == &op_def<Chain>) return chain_text(from_bytes<Chain::Params>(params));
  if (&def == &op_def<FusedRows>) return rows_text(from_bytes<FusedRows::Params>(params));
  return param_fields(def).empty() ? hex(params) : fields_text(def, params.data());
}

std::vector<std::byte> parse_params(const OpDef& def, std::string_view text) {
  if (def.params_bytes == 0) return {};
  if (&def == &op_def<Chain>) return bytes_of(parse_chain(text));
  if (&def == &op_def<FusedRows>) return bytes_of(parse_rows(text));
  if (param_fields(def).empty()) return parse_hex(trimmed(text), def.params_bytes);
  std::vector<std::byte> params(def.params_bytes);
  parse_fields(def, text, params.data());
  return params;
}

}  // namespace deft::graph
