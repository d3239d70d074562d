#include "io/plan_file.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "base/check.h"
#include "core/grad_mode.h"
#include "graph/memory_plan.h"
#include "graph/symbolic.h"
#include "graph/verify_foreign.h"
#include "io/checksum.h"
#include "io/safetensors.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "runtime/backend.h"
#include "runtime/config.h"
#include "runtime/cpu_info.h"
#include "runtime/cpu_isa.h"

namespace deft::io {

namespace {

using graph::BufferKind;
using graph::Graph;
using graph::ValueId;

constexpr const char* kPlanFormat = "plan";
constexpr int64_t kFormatVersion = 1;
constexpr const char *kPlanKey = "deft.plan", *kPlanVersionKey = "deft.version", *kMachineKey = "deft.machine",
                     *kNameKey = "deft.name", *kCountKey = "deft.plans", *kTemplatesKey = "deft.templates",
                     *kRangesKey = "deft.ranges", *kPlanCheckKey = "deft.crc32";
constexpr int64_t kMostPlans = 1000;

std::string key(const char* what, size_t plan) { return fmt::format("{}.{}", what, plan); }

// What kernels and passes were chosen for: the CPU's level of instructions, and the GPUs that values lie on.
std::string machine_of(const std::vector<Graph>& graphs) {
  std::string text = cpu_info().architecture + " " + isa_level_name();
  std::set<std::string> gpus;
  for (const Graph& g : graphs)
    for (const graph::Value& v : g.values)
      if (!v.meta.device.is_cpu())
        gpus.insert(fmt::format("{} ({})", require_backend(v.meta.device, "plan").properties(v.meta.device.index).name,
                                to_string(v.meta.device)));
  for (const std::string& gpu : gpus) text += ", " + gpu;
  return text;
}

// --- Writing

// Without what no kernel, input or result has to do with: views run nothing, and folded weights leave the old ones
// behind.
Graph without_unused(const Graph& g) {
  Graph out;
  std::vector<ValueId> values(g.values.size(), graph::kNone);
  std::vector<graph::BufferId> buffers(g.buffers.size(), graph::kNone);
  auto kept = [&](ValueId id) {
    if (id == graph::kNone || values[static_cast<size_t>(id)] != graph::kNone)
      return id == graph::kNone ? id : values[static_cast<size_t>(id)];
    const graph::Value& v = g.value(id);
    graph::BufferId& b = buffers[static_cast<size_t>(v.buffer)];
    if (b == graph::kNone) {
      b = static_cast<graph::BufferId>(out.buffers.size());
      out.buffers.push_back(g.buffers[static_cast<size_t>(v.buffer)]);
    }
    return values[static_cast<size_t>(id)] = out.add_value(v.meta, b, v.offset);
  };
  auto keep = [&](std::vector<ValueId> ids) {
    for (ValueId& id : ids) id = kept(id);
    return ids;
  };
  out.inputs = keep(g.inputs);
  for (const graph::Instruction& x : g.instructions) {
    if (x.action == graph::Action::view) continue;
    out.instructions.push_back(x);
    out.instructions.back().inputs = keep(x.inputs);
    out.instructions.back().outputs = keep(x.outputs);
    out.instructions.back().site = {};
    out.instructions.back().effects.clear();
    graph::note_effects(out.instructions.back());
  }
  out.outputs = keep(g.outputs);
  return out;
}

void check_readable(const Graph& g) {
  try {
    graph::verify_foreign(g);
  } catch (const Error& e) {
    DEFT_FAIL(ValueError, "save_plan: the plan could not be read back: {}", e.what());
  }
}

std::vector<Graph> graphs_to_save(const Compiled& compiled, const std::vector<const graph::Template*>& templates) {
  std::vector<Graph> graphs;
  for (const Graph* each : compiled.graphs()) {
    std::vector<Meta> inputs;
    for (ValueId id : each->inputs) inputs.push_back(each->value(id).meta);
    std::string why;
    if (std::any_of(templates.begin(), templates.end(), [&](auto* t) { return t->instantiate(inputs, why); })) continue;
    for (const graph::Instruction& x : each->instructions)
      DEFT_CHECK(x.action != graph::Action::call, ValueError,
                 "save_plan: the plan calls {}, which no file can hold; save inference only", x.outside->name);
    Graph g = without_unused(*each);
    DEFT_CHECK(graph::trim_inputs(g), ValueError, "save_plan: the function reads memory around an input; clone() it");
    check_readable(g);
    graphs.push_back(std::move(g));
  }
  DEFT_CHECK(!graphs.empty() || !templates.empty(), ValueError,
             "save_plan: there is no plan, or only for gradients, or of weights that were written since; call the "
             "compiled function once more before");
  return graphs;
}

// As captured: the numbers of its rules are counted in all values. Without the lines of the program.
Graph template_graph(const graph::Template& t) {
  Graph g = t.graph();
  for (graph::Instruction& x : g.instructions) x.site = {};
  check_readable(g);
  return g;
}

// "0.1 2 64": dimension 1 of input 0 has sizes from 2 to 64.
std::string text_of(const std::vector<graph::DimRange>& ranges) {
  std::string text;
  for (const auto& [dim, low, high] : ranges) text += fmt::format("{}.{} {} {}\n", dim.input, dim.dim, low, high);
  return text;
}

// All memory of a constant, once for all plans; gives the number of its tensor.
class Constants {
 public:
  size_t add(const Tensor& t) {
    const Storage* s = t.impl()->storage;
    auto at = static_cast<size_t>(std::find(storages_.begin(), storages_.end(), s) - storages_.begin());
    if (at < storages_.size()) return at;
    storages_.push_back(s);
    auto bytes = static_cast<int64_t>(s->nbytes);
    graph::Value all{Meta::dense({bytes}, DType::u8, t.device()), 0, 0};
    tensors.push_back({fmt::format("constant.{}", at), graph::on_memory_of(t, all)});
    return at;
  }
  NamedTensors tensors;

 private:
  std::vector<const Storage*> storages_;
};

// --- Reading

class PlanReader {
 public:
  PlanReader(SafetensorsFile file, const std::string& name, const LoadOptions& options)
      : file_(std::move(file)), name_(name), options_(options) {}

  // `templates` receives those of the file.
  std::vector<Graph> read(std::vector<graph::Template>& templates) {
    check_whole();
    const size_t symbolic = file_.metadata.contains(kTemplatesKey) ? counted(kTemplatesKey, 1) : 0;
    for (size_t i = 0; i < symbolic; ++i) templates.push_back(read_template(i));
    const bool may_be_empty = file_.metadata.contains(kTemplatesKey);
    const size_t count = counted(kCountKey, may_be_empty ? 0 : 1);
    std::vector<Graph> graphs;
    for (size_t i = 0; i < count; ++i) graphs.push_back(read_graph("graph", "constants", i));
    std::vector<Graph> all = graphs;
    for (const graph::Template& t : templates) all.push_back(t.graph());
    if (std::string here = machine_of(all); here != entry(kMachineKey)) foreign("machine", entry(kMachineKey), here);
    return graphs;
  }
  std::vector<graph::DimRange> ranges() const {
    std::vector<graph::DimRange> all;
    if (!file_.metadata.contains(kRangesKey)) return all;
    std::istringstream lines(entry(kRangesKey));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream in(line);
      graph::DimRange r;
      char dot = 0;
      in >> r.dim.input >> dot >> r.dim.dim >> r.low >> r.high;
      if (!in || dot != '.' || r.dim.dim < 0)
        fail(kRangesKey, fmt::format("found '{}', expected 'input.dim low high'", line));
      all.push_back(r);
    }
    return all;
  }
  std::string plan_name() const { return entry(kNameKey); }

 private:
  [[noreturn]] void fail(const std::string& field, const std::string& found) const {
    throw LoadError(kPlanFormat, name_, fmt::format("metadata '{}'", field), 8, found);
  }
  [[noreturn]] void foreign(const char* what, const std::string& found, const std::string& here) const {
    throw UnsupportedError(fmt::format("plan: {}: was made for the {} '{}', this is '{}'; compile it again here", name_,
                                       what, found, here));
  }
  const std::string& entry(const std::string& name) const {
    auto found = file_.metadata.find(name);
    if (found == file_.metadata.end()) fail(name, "is missing: this is no plan of Deft");
    return found->second;
  }
  int64_t number(const std::string& name) const {
    const std::string& text = entry(name);
    int64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail(name, fmt::format("'{}' is no number", text));
    return value;
  }

  size_t counted(const char* field, int64_t least) const {
    const int64_t count = number(field);
    if (count < least || count > kMostPlans)
      fail(field, fmt::format("is {}, expected {} to {}", count, least, kMostPlans));
    return static_cast<size_t>(count);
  }

  // Damage first: a damaged version is no other version.
  void check_whole() const {
    int64_t format = number(kPlanKey);
    std::string found = checksum(file_.metadata, file_.tensors, kPlanCheckKey);
    if (found != entry(kPlanCheckKey))
      fail(kPlanCheckKey, fmt::format("is {} where the file's is {}: it was damaged after it was written",
                                      entry(kPlanCheckKey), found));
    if (format != kFormatVersion || entry(kPlanVersionKey) != kVersion)
      foreign("version", fmt::format("{}, format {}", entry(kPlanVersionKey), format),
              fmt::format("{}, format {}", kVersion, kFormatVersion));
    // Of the CPU; what GPUs there are is known when the graphs are.
    std::string cpu = machine_of({}), made = entry(kMachineKey);
    if (made.substr(0, made.find(',')) != cpu) foreign("machine", made, cpu);
  }

  Tensor constant(const std::string& field, std::string_view number_text) const {
    size_t at = 0;
    auto [end, error] = std::from_chars(number_text.data(), number_text.data() + number_text.size(), at);
    bool good = error == std::errc() && end == number_text.data() + number_text.size();
    std::string wanted = fmt::format("constant.{}", number_text);
    auto found = std::find_if(file_.tensors.begin(), file_.tensors.end(), [&](auto& t) { return t.name == wanted; });
    if (!good || found == file_.tensors.end()) fail(field, fmt::format("there is no tensor '{}'", wanted));
    const Tensor& t = found->tensor;
    if (t.dtype() != DType::u8 || t.dim() != 1) fail(field, fmt::format("'{}' is not a list of bytes", wanted));
    const Storage& s = *t.impl()->storage;
    bool whole = s.data == t.data_ptr() && s.nbytes == static_cast<size_t>(t.numel());
    return whole ? t : t.clone();
  }
  std::vector<Tensor> constants(const std::string& field) const {
    std::string_view rest = entry(field);
    std::vector<Tensor> list;
    while (!rest.empty()) {
      size_t comma = std::min(rest.find(','), rest.size());
      list.push_back(constant(field, rest.substr(0, comma)));
      rest.remove_prefix(std::min(rest.size(), comma + 1));
      if (list.size() > options_.limits.plan_entries) fail(field, "there are too many");
    }
    return list;
  }

  Graph read_graph(const char* text, const char* list, size_t plan) const {
    const std::string field = key(text, plan);
    return checked(field, [&] {
      Graph g = graph::parse_foreign(entry(field), constants(key(list, plan)), options_.limits.plan_entries);
      if (std::string fault = fault_of_memory(g, options_.limits.plan_bytes); !fault.empty()) fail(field, fault);
      move_constants(g);
      return g;
    });
  }
  graph::Template read_template(size_t at) const {
    const std::string field = key("rules", at);
    Graph g = read_graph("template", "template_constants", at);
    return checked(field, [&] {
      return graph::Template::of_rules(std::move(g), entry(field),
                                       [most = options_.limits.plan_bytes](const Graph& made) {
                                         graph::verify_foreign(made);
                                         const std::string fault = fault_of_memory(made, most);
                                         DEFT_CHECK(fault.empty(), ValueError, "plan: {}", fault);
                                       });
    });
  }
  // What f() gives, its errors with the field.
  template <class F>
  std::invoke_result_t<F> checked(const std::string& field, F f) const {
    try {
      return f();
    } catch (const LoadError& e) {
      if (e.format == kPlanFormat) throw;
      fail(field, e.what());
    } catch (const UnsupportedError&) {
      throw;
    } catch (const Error& e) {
      fail(field, e.what());
    }
  }
  static std::string fault_of_memory(const Graph& g, uint64_t most) {
    uint64_t outside = 0;
    for (const graph::Buffer& b : g.buffers) {
      if (b.bytes > most) return fmt::format("a buffer of {} bytes; the limit is {}", b.bytes, most);
      if (b.kind == BufferKind::input) outside += b.bytes;
    }
    for (ValueId id : g.outputs) outside += g.buffer_of(id).bytes;
    uint64_t needed = outside + static_cast<uint64_t>(graph::plan_memory(g).bytes);
    return needed > most ? fmt::format("needs {} bytes; the limit is {}", needed, most) : "";
  }
  static void move_constants(Graph& g) {
    for (const graph::Value& v : g.values) {
      graph::Buffer& b = g.buffers[static_cast<size_t>(v.buffer)];
      if (b.kind == BufferKind::constant && b.constant.device() != v.meta.device)
        b.constant = b.constant.to(v.meta.device);
    }
  }

  SafetensorsFile file_;
  const std::string& name_;
  const LoadOptions& options_;
};

Compiled from_file(SafetensorsFile file, const std::string& name, const LoadOptions& options, PlanInfo* info) {
  PlanReader reader(std::move(file), name, options);
  std::vector<graph::Template> templates;
  std::vector<Graph> graphs = reader.read(templates);
  if (info) info->name = reader.plan_name();
  if (info) info->templates = !templates.empty();
  return Compiled::of_graphs(std::move(graphs), std::move(templates), reader.ranges());
}

}  // namespace

void save_plan(const Compiled& compiled, const std::string& path, const PlanInfo& info) {
  NoGradGuard no_grad;
  std::vector<const graph::Template*> templates;
  if (info.templates) templates = compiled.templates();
  std::vector<Graph> graphs = graphs_to_save(compiled, templates), captured;
  for (const graph::Template* t : templates) captured.push_back(template_graph(*t));
  std::vector<Graph> all = graphs;
  all.insert(all.end(), captured.begin(), captured.end());
  Metadata metadata{{kPlanKey, std::to_string(kFormatVersion)},
                    {kPlanVersionKey, kVersion},
                    {kMachineKey, machine_of(all)},
                    {kNameKey, info.name},
                    {kCountKey, std::to_string(graphs.size())}};
  Constants constants;
  auto add = [&](const Graph& g, const char* text, const char* names, size_t at) {
    std::string list;
    for (const graph::Buffer& b : g.buffers)
      if (b.kind == BufferKind::constant)
        list += fmt::format("{}{}", list.empty() ? "" : ",", constants.add(b.constant));
    metadata[key(text, at)] = graph::to_text(g);
    metadata[key(names, at)] = list;
  };
  for (size_t i = 0; i < graphs.size(); ++i) add(graphs[i], "graph", "constants", i);
  for (size_t i = 0; i < captured.size(); ++i) {
    add(captured[i], "template", "template_constants", i);
    metadata[key("rules", i)] = templates[i]->rules();
  }
  if (!templates.empty()) {
    metadata[kTemplatesKey] = std::to_string(templates.size());
    metadata[kRangesKey] = text_of(compiled.ranges());
  }
  metadata[kPlanCheckKey] = checksum(metadata, constants.tensors, kPlanCheckKey);
  save_safetensors(path, constants.tensors, metadata);
}

Compiled load_plan(const std::string& path, const LoadOptions& options, PlanInfo* info) {
  InferenceModeGuard off(false);  // constants have versions, so that packed forms of them may be kept
  NoGradGuard no_grad;
  return from_file(load_safetensors(path, options), path, options, info);
}
Compiled parse_plan(std::span<const std::byte> bytes, const std::string& name, const LoadOptions& options,
                    PlanInfo* info) {
  InferenceModeGuard off(false);
  NoGradGuard no_grad;
  return from_file(parse_safetensors(bytes, name, options), name, options, info);
}

}  // namespace deft::io
