#include "doctor/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/check.h"
#include "io/atomic_file.h"
#include "io/input_file.h"
#include "io/json_reader.h"
#include "runtime/config.h"
#include "runtime/cpu_info.h"
#include "runtime/parallel.h"

namespace deft {

namespace {

constexpr const char* kKind = "deft plan";
constexpr uint64_t kMostBytes = 1 << 20, kMostDepth = 8;
constexpr uint64_t kMostThreads = 1024, kMostPrefetch = 1 << 16, kMostBatch = 65536, kMostBuckets = 1024;

constexpr std::pair<const char*, PlanGradMode> kGradModes[] = {
    {"grad", PlanGradMode::grad}, {"no_grad", PlanGradMode::no_grad}, {"inference", PlanGradMode::inference}};
constexpr std::pair<const char*, DType> kTypes[] = {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
constexpr std::pair<const char*, DType> kAutocastTypes[] = {
    {"off", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
constexpr std::pair<const char*, MemoryFormat> kLayouts[] = {{"contiguous", MemoryFormat::contiguous},
                                                             {"channels_last", MemoryFormat::channels_last}};

template <class T, size_t n>
const char* word_of(const std::pair<const char*, T> (&words)[n], T value) {
  for (const auto& [word, v] : words)
    if (v == value) return word;
  DEFT_FAIL(ValueError, "a plan cannot hold this value, expected one of {}", words[0].first);
}

// Reads the values of one object, key by key.
class PlanReader {
 public:
  PlanReader(std::string_view text, const io::Source& source) : source_(source), json_(text, source, 0, kMostDepth) {}

  Plan read() {
    uint64_t start = json_.next_offset();
    object("", [&](std::string_view key) { return member(key); });
    json_.end("plan");
    for (const char* key : {"schema", "kind"})
      if (!seen_.contains(key)) source_.fail(field(key), start, "the key is missing, so this is not a plan");
    return plan_;
  }

 private:
  io::Field field(std::string_view key) const { return {"value", key}; }

  template <class F>
  void object(const std::string& prefix, F member) {
    json_.object("plan", [&](std::string_view key, uint64_t at) {
      std::string name = prefix + std::string(key);
      if (!seen_.insert(name).second) source_.fail(field(name), at, "the key is there twice");
      if (!member(key)) source_.fail(field(name), at, "a plan of schema {} has no such key", Plan::kSchema);
    });
  }

  // False for a key that there is not.
  bool member(std::string_view key) {
    if (key == "schema") return schema(), true;
    if (key == "kind") return kind(), true;
    if (key == "version") return plan_.version = json_.string(field(key)), true;
    if (key == "machine") return plan_.machine = json_.string(field(key)), true;
    if (key == "workload") return plan_.workload = json_.string(field(key)), true;
    if (key == "grad_mode") return plan_.grad_mode = word(key, kGradModes), true;
    if (key == "eval") return plan_.eval = json_.boolean(field(key)), true;
    if (key == "workers") return plan_.workers = static_cast<int>(number(key, 0, data::kMaxWorkers)), true;
    if (key == "prefetch") return plan_.prefetch = static_cast<int>(number(key, 0, kMostPrefetch)), true;
    if (key == "batch") return plan_.batch = static_cast<int64_t>(number(key, 1, kMostBatch)), true;
    if (key == "buckets") return buckets(), true;
    if (key == "dtype") return plan_.dtype = word(key, kTypes), true;
    if (key == "autocast") return plan_.autocast = word(key, kAutocastTypes), true;
    if (key == "layout") return plan_.layout = word(key, kLayouts), true;
    if (key == "compile") return compile(), true;
    if (key == "threads") return plan_.threads = static_cast<int>(number(key, 0, kMostThreads)), true;
    return false;
  }

  void schema() {
    uint64_t at = json_.next_offset(), found = json_.whole_number(field("schema"));
    if (found != Plan::kSchema)
      source_.fail(field("schema"), at, "found {}, expected {}; write the plan anew with deft doctor", found,
                   Plan::kSchema);
  }
  void kind() {
    uint64_t at = json_.next_offset();
    std::string_view found = json_.string(field("kind"));
    if (found != kKind) source_.fail(field("kind"), at, "found '{}', expected '{}'", found, kKind);
  }

  uint64_t number(std::string_view key, uint64_t low, uint64_t high) {
    uint64_t at = json_.next_offset(), found = json_.whole_number(field(key));
    if (found < low || found > high) source_.fail(field(key), at, "found {}, expected {} to {}", found, low, high);
    return found;
  }

  template <class T, size_t n>
  T word(std::string_view key, const std::pair<const char*, T> (&words)[n]) {
    uint64_t at = json_.next_offset();
    std::string_view found = json_.string(field(key));
    std::vector<std::string> known;
    for (const auto& [name, value] : words) {
      if (found == name) return value;
      known.emplace_back(name);
    }
    source_.fail(field(key), at, "found '{}', expected one of {}", found, fmt::join(known, ", "));
  }

  void buckets() {
    json_.array(field("buckets"), [&] {
      uint64_t at = json_.next_offset();
      auto length = static_cast<int64_t>(number("buckets", 1, kMostBatch));
      if (!plan_.buckets.empty() && length <= plan_.buckets.back())
        source_.fail(field("buckets"), at, "found {} after {}, expected lengths that rise", length,
                     plan_.buckets.back());
      if (plan_.buckets.size() == kMostBuckets)
        source_.fail(field("buckets"), at, "found more than {} of them", kMostBuckets);
      plan_.buckets.push_back(length);
    });
  }

  void compile() {
    object("compile.", [&](std::string_view key) {
      if (key == "on") return plan_.compile = json_.boolean(field("compile.on")), true;
      if (key == "off_passes") return off_passes(), true;
      return false;
    });
  }
  void off_passes() {
    io::Field field("value", "compile.off_passes");
    json_.array(field, [&] {
      uint64_t at = json_.next_offset();
      std::string name(json_.string(field));
      try {
        graph::without({}, name);
      } catch (const ValueError& error) {
        source_.fail(field, at, "found '{}': {}", name, error.what());
      }
      plan_.off_passes.push_back(std::move(name));
    });
  }

  const io::Source& source_;
  io::JsonReader json_;
  std::set<std::string, std::less<>> seen_;
  Plan plan_;
};

}  // namespace

const char* name_of(PlanGradMode mode) { return word_of(kGradModes, mode); }

Plan Plan::load(const std::string& path) {
  io::InputFile file(path, "plan");
  if (file.size() > kMostBytes)
    file.source().fail("size", 0, "found {} bytes, expected at most {}", file.size(), kMostBytes);
  std::vector<std::byte> bytes = file.read(0, file.size(), "plan");
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

Plan Plan::parse(const std::string& text, const std::string& name) {
  io::Source source{"plan", name};
  size_t valid = io::valid_utf8(text);
  if (valid < text.size()) source.fail("text", valid, "found a byte that is not UTF-8");
  return PlanReader(text, source).read();
}

std::string Plan::to_json() const {
  auto text = [](const std::string& s) { return io::json_string(s); };
  std::vector<std::string> off;
  for (const std::string& pass : off_passes) off.push_back(text(pass));
  std::string out = fmt::format("{{\n  \"schema\": {},\n  \"kind\": \"{}\",\n", kSchema, kKind);
  out += fmt::format("  \"version\": {},\n  \"machine\": {},\n  \"workload\": {},\n", text(version), text(machine),
                     text(workload));
  out += fmt::format("  \"grad_mode\": \"{}\",\n  \"eval\": {},\n", name_of(grad_mode), eval);
  out += fmt::format("  \"workers\": {},\n  \"prefetch\": {},\n  \"batch\": {},\n  \"buckets\": [{}],\n", workers,
                     prefetch, batch, fmt::join(buckets, ", "));
  out += fmt::format("  \"dtype\": \"{}\",\n  \"autocast\": \"{}\",\n  \"layout\": \"{}\",\n", word_of(kTypes, dtype),
                     word_of(kAutocastTypes, autocast), word_of(kLayouts, layout));
  out += fmt::format("  \"compile\": {{\"on\": {}, \"off_passes\": [{}]}},\n  \"threads\": {}\n}}\n", compile,
                     fmt::join(off, ", "), threads);
  return out;
}

void Plan::save(const std::string& path) const {
  std::string out = to_json();
  io::AtomicFile file(path, out.size());
  file.write(out.data(), out.size());
  file.commit();
}

std::string Plan::this_machine() {
  CpuInfo info = cpu_info();
  int threads = thread_choice().threads;
  return fmt::format("{} {}, {} thread{}", info.architecture, info.model, threads, threads == 1 ? "" : "s");
}

std::string Plan::foreign() const {
  std::string here = this_machine();
  if (!machine.empty() && machine != here)
    return fmt::format("the plan was measured on {}, this is {}; deft doctor measures one for here", machine, here);
  if (!version.empty() && version != kVersion)
    return fmt::format("the plan was measured with Deft {}, this is {}; deft doctor measures it anew", version,
                       kVersion);
  return "";
}

std::string Plan::task() const {
  const size_t comma = workload.rfind(", ");
  return comma == workload.npos ? "" : workload.substr(comma + 2);
}

std::string Plan::other_workload(const std::string& model, const std::string& data) const {
  const std::string here = fmt::format("{} on {}", model, data);
  if (workload.empty() || workload == here || workload.starts_with(here + ", ")) return "";
  return fmt::format("the plan was measured for {}, this is {}; deft doctor measures one for it", workload, here);
}

data::LoaderOptions Plan::loader_options(data::LoaderOptions options) const {
  options.batch_size = batch;
  options.workers = workers;
  options.prefetch = prefetch == 0 ? data::kAuto : prefetch;
  return options;
}

CompileOptions Plan::compile_options(CompileOptions options) const {
  for (const std::string& pass : off_passes) options.passes = graph::without(options.passes, pass);
  return options;
}

void Plan::prepare(nn::Module& model) const {
  if (dtype != DType::f32) model.to(dtype);
  if (layout != MemoryFormat::contiguous) model.to(layout);
  model.train(!eval);
}

Tensor Plan::prepare(const Tensor& input) const {
  if (!is_floating(input.dtype())) return input;
  Tensor x = input.to(dtype);
  return x.dim() == 4 ? x.contiguous(layout) : x;
}

PlanScope::PlanScope(const Plan& plan, Site site) : outer_threads_(num_threads()), autocast_(plan.autocast) {
  if (plan.grad_mode == PlanGradMode::no_grad) no_grad_.emplace(site);
  if (plan.grad_mode == PlanGradMode::inference) inference_.emplace(true, site);
  if (plan.threads > 0) set_num_threads(plan.threads, site);
}
PlanScope::~PlanScope() {
  if (num_threads() != outer_threads_) set_num_threads(outer_threads_);
}

}  // namespace deft
