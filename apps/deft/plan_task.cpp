#include "plan_task.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "core/grad_mode.h"
#include "data/loader.h"
#include "data/tensor_dataset.h"
#include "graph/ir.h"
#include "io/plan_file.h"
#include "ops/all_ops.h"

namespace deft::cli {

namespace {

constexpr int64_t kRandomRows = 256, kRandomBytes = int64_t{64} << 20;

// What the graphs of a plan have in common: they differ in the number of rows.
struct Form {
  Meta input, output;  // of the largest
  std::vector<int64_t> batches;
  bool any_batch = false;  // also all others
};

bool same_rows(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  for (int d = 1; d < a.size(); ++d)
    if (a[d] != b[d]) return false;
  return true;
}

Form form_of(const Compiled& plan, const std::string& file) {
  Form form;
  std::vector<Meta> inputs;
  std::vector<const graph::Graph*> graphs = plan.graphs();
  for (const graph::Template* t : plan.templates()) {
    graphs.push_back(&t->graph());
    form.any_batch |= t->follows({0, 0});
  }
  for (const graph::Graph* g : graphs) {
    DEFT_CHECK(g->inputs.size() == 1 && g->outputs.size() == 1, ValueError,
               "{} takes {} inputs and gives {} results; plans of one input and one result can be measured here", file,
               g->inputs.size(), g->outputs.size());
    const Meta &in = g->value(g->inputs[0]).meta, &out = g->value(g->outputs[0]).meta;
    DEFT_CHECK(in.rank() > 0 && out.rank() > 0 && in.sizes[0] > 0, ValueError, "{} takes no batches", file);
    inputs.push_back(in);
    if (form.input.rank() == 0 || in.sizes[0] > form.input.sizes[0]) form.input = in, form.output = out;
  }
  for (const Meta& in : inputs)
    if (same_rows(in.sizes, form.input.sizes)) form.batches.push_back(in.sizes[0]);
  std::sort(form.batches.begin(), form.batches.end());
  return form;
}

// Type and order in memory as the plan wants them.
Tensor fitted(const Tensor& x, const Meta& wanted) {
  const Tensor same_type = x.to(wanted.device).to(wanted.dtype);
  const bool last = !wanted.contiguous && wanted.rank() == 4;
  return same_type.contiguous(last ? MemoryFormat::channels_last : MemoryFormat::contiguous);
}

// The plan called like a module. Rows that are no batch of its own go in batches that are.
class PlanModule : public nn::Module {
 public:
  PlanModule(const std::string& file, Form form) : plan_(io::load_plan(file)), form_(std::move(form)) {}
  Tensor forward(const Tensor& x) override {
    if (form_.any_batch || std::ranges::binary_search(form_.batches, x.size(0))) return plan_(x);
    std::vector<Tensor> parts;
    for (int64_t at = 0, size; at < x.size(0); at += size) {
      size = largest_up_to(x.size(0) - at);
      parts.push_back(plan_(x.narrow(0, at, size)));
    }
    return cat(parts, 0);
  }

 private:
  int64_t largest_up_to(int64_t rows) const {
    auto above = std::upper_bound(form_.batches.begin(), form_.batches.end(), rows);
    DEFT_CHECK(above != form_.batches.begin(), ValueError, "the plan serves batches of {}, {} samples are left",
               fmt::join(form_.batches, ", "), rows);
    return *(above - 1);
  }
  Compiled plan_;
  Form form_;
};

std::shared_ptr<const data::Dataset> random_samples(const Meta& input, int64_t largest, uint64_t seed) {
  Shape sizes = input.sizes;
  sizes[0] = 1;
  const int64_t row = checked_numel(sizes, input.dtype) * static_cast<int64_t>(size_of(input.dtype));
  sizes[0] = std::max(largest, std::clamp<int64_t>(kRandomBytes / std::max<int64_t>(row, 1), 1, kRandomRows));
  RngScope rng({seed, 0});
  // Whole numbers may be places in a table, of which every one has two.
  const Tensor rows = is_floating(input.dtype) ? randn(sizes) : randint(0, 2, sizes);
  return std::make_shared<data::TensorDataset>(NamedTensors{{"input", rows.to(input.dtype)}}, "random numbers");
}

class TaskOfPlan : public Task {
 public:
  // Without `data`: on random numbers.
  TaskOfPlan(std::string file, Form form, std::shared_ptr<Task> data, const TaskOptions& o)
      : file_(std::move(file)), form_(std::move(form)), data_(std::move(data)), model_(file_, form_) {
    if (!data_) random_ = random_samples(form_.input, form_.batches.back(), o.seed);
    if (data_) data_->forward = [this](const Tensor& x) { return outputs(fitted(x, form_.input)); };
  }
  nn::Module& model() override { return model_; }
  int64_t batches_per_epoch() const override { return 1; }
  int64_t samples_per_epoch() const override { return form_.batches.back(); }
  Tensor outputs(const Tensor& inputs) override { return model_(inputs); }
  Score evaluate(const std::function<void(double)>& progress) override {
    DEFT_CHECK(data_, ValueError, "the plan {} is measured on random numbers, which have no labels; use --task infer",
               file_);
    return data_->evaluate(progress);
  }
  Tensor test_inputs(int64_t count) const override {
    data::DataLoader loader(samples(false), {.batch_size = std::min(count, samples(false)->size()), .workers = 0});
    data::Batch batch;
    loader.next(batch);
    const Tensor rows = taken(batch, form_.input.dtype, MemoryFormat::contiguous).inputs;
    return fitted(index_select(rows, 0, remainder(arange(count), rows.size(0)).to(rows.device())), form_.input);
  }
  std::unique_ptr<nn::Module> new_model() const override { return std::make_unique<PlanModule>(file_, form_); }
  std::shared_ptr<const data::Dataset> samples(bool) const override { return data_ ? data_->samples(false) : random_; }
  TaskBatch taken(const data::Batch& batch, DType, MemoryFormat) const override {
    if (!data_) return {fitted(batch["input"], form_.input), {}};
    TaskBatch b = data_->taken(batch, DType::f32, MemoryFormat::contiguous);
    return {fitted(b.inputs, form_.input), b.targets};
  }

 private:
  std::string file_;
  Form form_;
  std::shared_ptr<Task> data_;
  std::shared_ptr<const data::Dataset> random_;
  PlanModule model_;
};

bool is_built_in(const std::string& model) {
  const std::vector<std::string> names = model_names();
  return std::ranges::count(names, model) > 0;
}

// "" where the samples of a task are what the plan takes, and its model's answers what the plan gives.
std::string misfit(Task& task, const Form& form) {
  data::DataLoader loader(task.samples(false), {.batch_size = 1, .workers = 0, .device = form.input.device});
  data::Batch batch;
  loader.next(batch);
  nn::EvalGuard eval(task.model());
  NoGradGuard no_grad;
  const Tensor inputs = task.taken(batch, DType::f32, MemoryFormat::contiguous).inputs;
  if (!same_rows(inputs.sizes(), form.input.sizes) || is_floating(inputs.dtype()) != is_floating(form.input.dtype))
    return fmt::format("the plan takes {}, a sample is {}", to_string(form.input.sizes), to_string(inputs.sizes()));
  const Tensor outputs = task.model()(inputs);
  if (same_rows(outputs.sizes(), form.output.sizes)) return "";
  return fmt::format("the plan answers {}, a model of this data {}", to_string(form.output.sizes),
                     to_string(outputs.sizes()));
}

// The data set that was asked for, or those that may be at hand.
std::vector<std::string> candidates(const TaskOptions& o, const Form& form) {
  if (!o.data.empty()) return {o.data};
  if (!is_floating(form.input.dtype)) return {"text"};
  return {"fashion", "glyphs"};
}

// A task whose data fits, or null; of the model that the plan names where Deft has one.
std::shared_ptr<Task> fitting_task(TaskOptions& o, const Form& form, std::string& why_not) {
  const bool asked = !o.data.empty(), tokens = !is_floating(form.input.dtype);
  if (!is_built_in(o.model)) o.model = tokens ? "gpt2" : "cnn";  // brings its data only
  if (tokens && form.input.rank() == 2) o.length = form.input.sizes[1];
  o.train_size = 1;  // plans do not learn
  for (const std::string& data : candidates(o, form)) {
    o.data = data;
    try {
      std::shared_ptr<Task> task = make_task(o);
      why_not = misfit(*task, form);
      if (why_not.empty()) return task;
    } catch (const InternalError&) {
      throw;
    } catch (const Error& e) {  // it is not installed, or has no such model
      if (asked) throw;
      why_not = e.what();
    }
    DEFT_CHECK(!asked, ValueError, "data set {} does not fit the plan: {}; without --data random numbers are used",
               data, why_not);
  }
  return nullptr;
}

}  // namespace

PlanTask open_plan_task(const std::string& file, TaskOptions o) {
  PlanTask p;
  io::PlanInfo info;
  Form form = form_of(io::load_plan(file, {}, &info), file);
  p.file = file;
  p.model = info.name;
  p.batches = form.batches;
  p.any_batch = form.any_batch;
  p.device = o.device = form.input.device;
  o.model = info.name;
  std::string why_not;
  std::shared_ptr<Task> data = fitting_task(o, form, why_not);
  Shape row = form.input.sizes;
  row.erase(0);
  p.data = data ? o.data : fmt::format("random numbers, {} {}", name_of(form.input.dtype), to_string(row));
  p.labelled = data != nullptr;
  p.task = std::make_shared<TaskOfPlan>(file, std::move(form), data, o);
  if (!is_built_in(info.name))
    p.no_eager = fmt::format("the plan's model '{}' is none of Deft's", info.name);
  else if (!data)
    p.no_eager = fmt::format("there is no data set that fits: {}", why_not);
  else
    p.eager = data;
  return p;
}

}  // namespace deft::cli
