#include "io/names.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"

namespace deft::io {

namespace {

constexpr NameRule kResNet[] = {{"module.*", "*"}};

constexpr NameRule kBert[] = {{"module.*", "*"},          {"cls.*", "", true},
                              {"classifier.*", "", true}, {"bert.*", "*"},
                              {"*.gamma", "*.weight"},  // in checkpoints converted from TensorFlow
                              {"*.beta", "*.bias"},       {"embeddings.position_ids", "", true}};

constexpr NameRule kBertHead[] = {{"module.*", "*"},
                                  {"*.gamma", "*.weight"},
                                  {"*.beta", "*.bias"},
                                  {"bert.embeddings.position_ids", "", true},
                                  {"cls.predictions.decoder.bias", "", true},  // cls.predictions.bias again
                                  {"cls.seq_relationship.*", "", true}};       // no such head here

constexpr NameRule kGpt2[] = {{"module.*", "*"},
                              {"transformer.*", "*"},
                              {"h.*.attn.bias", "", true},  // the causal mask
                              {"h.*.attn.masked_bias", "", true},
                              {"lm_head.weight", "", true}};  // wte.weight again

constexpr NameRule kTransformerXl[] = {{"module.*", "*"}, {"transformer.*", "*"}, {"pos_emb.inv_freq", "", true}};

// What the stars of `pattern` stand for in `name`; none if it does not match.
std::optional<std::vector<std::string_view>> match(std::string_view pattern, std::string_view name) {
  size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name ? std::optional(std::vector<std::string_view>{}) : std::nullopt;
  if (!name.starts_with(pattern.substr(0, star))) return {};
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  for (size_t n = 1; n <= name.size(); ++n) {
    auto rest = match(pattern, name.substr(n));
    if (!rest) continue;
    rest->insert(rest->begin(), name.substr(0, n));
    return rest;
  }
  return {};
}

std::string substitute(std::string_view to, const std::vector<std::string_view>& parts) {
  std::string out;
  size_t next = 0;
  for (char c : to) {
    if (c == '*' && next < parts.size())
      out += parts[next++];
    else
      out += c;
  }
  return out;
}

// False if a rule drops it.
bool apply(std::span<const NameRule> rules, NamedTensor& t) {
  for (const NameRule& rule : rules) {
    auto parts = match(rule.from, t.name);
    if (!parts) continue;
    if (rule.drop) return false;
    t.name = substitute(rule.to, *parts);
  }
  return true;
}

}  // namespace

RenamedTensors rename_tensors(const NamedTensors& tensors, std::span<const NameRule> rules) {
  RenamedTensors result;
  std::map<std::string, std::string> old_names;
  for (const NamedTensor& t : tensors) {
    NamedTensor renamed = t;
    if (!apply(rules, renamed)) {
      result.dropped.push_back(t.name);
      continue;
    }
    auto [other, is_new] = old_names.emplace(renamed.name, t.name);
    DEFT_CHECK(is_new, ValueError, "rename: '{}' and '{}' both become '{}'", other->second, t.name, renamed.name);
    result.tensors.push_back(std::move(renamed));
  }
  return result;
}

NameReport compare_names(const NamedTensors& checkpoint, const NamedTensors& model) {
  std::map<std::string_view, const Tensor*> in_model, in_file;
  for (const NamedTensor& t : model) in_model.emplace(t.name, &t.tensor);
  for (const NamedTensor& t : checkpoint) in_file.emplace(t.name, &t.tensor);
  NameReport report;
  for (const NamedTensor& t : model) {
    auto found = in_file.find(t.name);
    if (found == in_file.end())
      report.missing.push_back(t.name);
    else if (found->second->sizes() != t.tensor.sizes())
      report.shapes.push_back(fmt::format("{}: {} in the file, {} in the model", t.name,
                                          to_string(found->second->sizes()), to_string(t.tensor.sizes())));
  }
  for (const NamedTensor& t : checkpoint)
    if (!in_model.contains(t.name)) report.unused.push_back(t.name);
  return report;
}

std::string NameReport::text() const {
  std::string out;
  for (const std::string& n : missing) out += "missing in the file: " + n + "\n";
  for (const std::string& n : unused) out += "not in the model: " + n + "\n";
  for (const std::string& n : shapes) out += "other shape: " + n + "\n";
  return out;
}

std::span<const NameRule> resnet_names() { return kResNet; }
std::span<const NameRule> bert_names() { return kBert; }
std::span<const NameRule> bert_head_names() { return kBertHead; }
std::span<const NameRule> gpt2_names() { return kGpt2; }
std::span<const NameRule> transformer_xl_names() { return kTransformerXl; }

}  // namespace deft::io
