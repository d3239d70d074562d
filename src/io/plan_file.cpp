#include "io/plan_file.h"

#include <algorithm>
#include <charconv>
#include <set>

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
                     *kNameKey = "deft.name", *kCountKey = "deft.plans", *kPlanCheckKey = "deft.crc32";
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

std::vector<Graph> graphs_to_save(const Compiled& compiled) {
  std::vector<Graph> graphs;
  for (const Graph* each : compiled.graphs()) {
    for (const graph::Instruction& x : each->instructions)
      DEFT_CHECK(x.action != graph::Action::call, ValueError,
                 "save_plan: the plan calls {}, which no file can hold; save inference only", x.outside->name);
    Graph g = without_unused(*each);
    DEFT_CHECK(graph::trim_inputs(g), ValueError, "save_plan: the function reads memory around an input; clone() it");
    try {
      graph::verify_foreign(g);
    } catch (const Error& e) {
      DEFT_FAIL(ValueError, "save_plan: the plan could not be read back: {}", e.what());
    }
    graphs.push_back(std::move(g));
  }
  DEFT_CHECK(!graphs.empty(), ValueError,
             "save_plan: there is no plan, or only for gradients, or of weights that were written since; call the "
             "compiled function once more before");
  return graphs;
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

  std::vector<Graph> read() {
    check_whole();
    int64_t count = number(kCountKey);
    if (count < 1 || count > kMostPlans) fail(kCountKey, fmt::format("is {}, expected 1 to {}", count, kMostPlans));
    std::vector<Graph> graphs;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) graphs.push_back(read_graph(i));
    if (std::string here = machine_of(graphs); here != entry(kMachineKey)) foreign("machine", entry(kMachineKey), here);
    return graphs;
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
  std::vector<Tensor> constants(size_t plan) const {
    std::string field = key("constants", plan);
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

  Graph read_graph(size_t plan) const {
    std::string field = key("graph", plan);
    try {
      Graph g = graph::parse_foreign(entry(field), constants(plan), options_.limits.plan_entries);
      check_memory(g, field);
      move_constants(g);
      return g;
    } catch (const LoadError& e) {
      if (e.format == kPlanFormat) throw;
      fail(field, e.what());
    } catch (const UnsupportedError&) {
      throw;
    } catch (const Error& e) {
      fail(field, e.what());
    }
  }
  void check_memory(const Graph& g, const std::string& field) const {
    uint64_t most = options_.limits.plan_bytes, outside = 0;
    for (const graph::Buffer& b : g.buffers) {
      if (b.bytes > most) fail(field, fmt::format("a buffer of {} bytes; the limit is {}", b.bytes, most));
      if (b.kind == BufferKind::input) outside += b.bytes;
    }
    for (ValueId id : g.outputs) outside += g.buffer_of(id).bytes;
    uint64_t needed = outside + static_cast<uint64_t>(graph::plan_memory(g).bytes);
    if (needed > most) fail(field, fmt::format("needs {} bytes; the limit is {}", needed, most));
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
  std::vector<Graph> graphs = reader.read();
  if (info) info->name = reader.plan_name();
  return Compiled::of_graphs(std::move(graphs));
}

}  // namespace

void save_plan(const Compiled& compiled, const std::string& path, const PlanInfo& info) {
  NoGradGuard no_grad;
  std::vector<Graph> graphs = graphs_to_save(compiled);
  Metadata metadata{{kPlanKey, std::to_string(kFormatVersion)},
                    {kPlanVersionKey, kVersion},
                    {kMachineKey, machine_of(graphs)},
                    {kNameKey, info.name},
                    {kCountKey, std::to_string(graphs.size())}};
  Constants constants;
  for (size_t i = 0; i < graphs.size(); ++i) {
    std::string list;
    for (const graph::Buffer& b : graphs[i].buffers)
      if (b.kind == BufferKind::constant)
        list += fmt::format("{}{}", list.empty() ? "" : ",", constants.add(b.constant));
    metadata[key("graph", i)] = graph::to_text(graphs[i]);
    metadata[key("constants", i)] = list;
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
