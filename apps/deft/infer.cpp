// deft infer: the answers of a model, one line per sample.
#include <fmt/format.h>

#include <fstream>

#include "amp/autocast.h"
#include "base/check.h"
#include "core/grad_mode.h"
#include "data/normalize_images.h"
#include "data/text.h"
#include "exit_code.h"
#include "io/npy.h"
#include "io/plan_file.h"
#include "ops/all_ops.h"
#include "output.h"
#include "pictures.h"
#include "plan_flags.h"
#include "runtime/parallel.h"
#include "task_flags.h"
#include "verbs.h"
#include "weights.h"

namespace deft::cli {

namespace {

struct InferFlags : CommonFlags {
  TaskOptions task;
  std::string weights, plan, input, classes, amp = "off", device = "cpu";
  std::vector<std::string> images;
  int64_t top = 1;
  bool half = false, logits = false;
};

// A model that needs no data set.
class ModelAlone final : public Task {
 public:
  explicit ModelAlone(const TaskOptions& o) : model_(make_model(o.model, *o.sizes)) { model_->to(o.device); }
  nn::Module& model() override { return *model_; }
  int64_t batches_per_epoch() const override { return 0; }
  int64_t samples_per_epoch() const override { return 0; }
  Tensor outputs(const Tensor& inputs) override { return (*model_)(inputs); }
  Score evaluate(const std::function<void(double)>&) override { no_data(); }
  std::unique_ptr<nn::Module> new_model() const override { no_data(); }
  std::shared_ptr<const data::Dataset> samples(bool) const override { no_data(); }
  TaskBatch taken(const data::Batch&, DType, MemoryFormat) const override { no_data(); }

 private:
  [[noreturn]] static void no_data() { DEFT_FAIL(UnsupportedError, "the model was made without a data set"); }
  std::unique_ptr<nn::Module> model_;
};

// Floats as they are, bytes as images of this form, whole numbers as tokens.
Tensor read_array(const InferFlags& f, const ImageForm& form, bool takes_tokens) {
  Tensor x = io::load_npy(f.input);
  DEFT_CHECK(x.dim() >= 2, ShapeError, "{} has the shape {}, expected several samples", f.input, to_string(x.sizes()));
  if (takes_tokens) {
    DEFT_CHECK(!is_floating(x.dtype()), DTypeError, "{} holds {}, expected tokens, which are whole numbers", f.input,
               name_of(x.dtype()));
    return x.to(DType::i64).to(f.task.device);
  }
  if (x.dtype() == DType::u8) return data::normalize_images(x.to(f.task.device), form.scale.mean, form.scale.std);
  DEFT_CHECK(is_floating(x.dtype()), DTypeError, "{} holds {}; infer takes floats, or u8 for images", f.input,
             name_of(x.dtype()));
  return x.to(f.task.device).to(DType::f32);
}

// One name per line.
std::vector<std::string> read_names(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw LoadError("classes", path, "file", 0, "cannot be opened for reading");
  std::vector<std::string> names;
  for (std::string line; std::getline(in, line);) names.push_back(line);
  return names;
}

// What the answers are made of: [rows, classes], and the sample and the place in it that each row is of.
struct Answers {
  Tensor logits;
  std::vector<int64_t> sample, position;
};

// Of a text the token that follows, or, of a model of hidden tokens, those that are hidden.
Answers answers_of(const Tensor& outputs, const Tensor& inputs, bool hidden_tokens) {
  Answers a;
  const Tensor all = outputs.to(DType::f32).to(kCPU);
  if (all.dim() == 2) {
    for (int64_t i = 0; i < all.size(0); ++i) a.sample.push_back(i);
    a.logits = all;
    return a;
  }
  const int64_t mask = all.size(-1) == data::kByteTokens + 1 ? data::kByteTokens : 103;  // BERT's own
  const std::vector<int64_t> tokens = inputs.to(kCPU).contiguous().to_vector<int64_t>();
  const int64_t length = inputs.size(1);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < inputs.size(0); ++i)
    for (int64_t k = 0; k < length; ++k) {
      if (hidden_tokens ? tokens[static_cast<size_t>(i * length + k)] != mask : k + 1 != length) continue;
      rows.push_back(i * length + k);
      a.sample.push_back(i);
      a.position.push_back(k);
    }
  if (!rows.empty()) a.logits = index_select(all.reshape({-1, all.size(-1)}), 0, tensor(rows));
  return a;
}

struct Names {
  std::string model;
  std::vector<std::string> classes;
  bool hidden_tokens = false;
};

void add_rows(bench::Report& report, const InferFlags& f, const Names& names, const Answers& a, int64_t first) {
  if (!a.logits.defined()) return;
  auto [values, classes] = topk(a.logits, std::min(f.top, a.logits.size(-1)));
  const Tensor chances = softmax(a.logits, -1).gather(-1, classes);
  const auto value = values.contiguous().to_vector<float>(), chance = chances.contiguous().to_vector<float>();
  const auto answer = classes.contiguous().to_vector<int64_t>();
  const auto top = static_cast<size_t>(classes.size(1));
  for (size_t i = 0; i < a.sample.size(); ++i)
    for (size_t k = 0; k < top; ++k) {
      const size_t at = i * top + k;
      const auto number = static_cast<size_t>(answer[at]);
      bench::Json row = bench::object("case", first + a.sample[i]);
      if (!f.images.empty()) row["file"] = f.images[static_cast<size_t>(first + a.sample[i])];
      if (!a.position.empty()) row["position"] = a.position[i];
      bench::put(row, "rank", k + 1, "class", answer[at]);
      if (number < names.classes.size()) row["name"] = names.classes[number];
      row["probability"] = static_cast<double>(chance[at]);
      if (f.logits) row["logit"] = static_cast<double>(value[at]);
      report.results.push_back(std::move(row));
    }
}

int report_on(const InferFlags& f, const Names& names, const Tensor& x, int64_t batch, int64_t rest,
              const std::function<Tensor(const Tensor&)>& model) {
  bench::Report report;
  for (int64_t at = 0, size; at < x.size(0); at += size) {
    size = x.size(0) - at >= batch ? batch : std::min(rest, x.size(0) - at);
    Tensor part = x.narrow(0, at, size);
    add_rows(report, f, names, answers_of(model(part), part, names.hidden_tokens), at);
  }
  Presentation p;
  p.title = fmt::format("{}: {} samples", names.model, x.size(0));
  p.columns = {{"case", "sample"}, {"file", "file"}, {"position", "position"},          {"rank", "rank"},
               {"class", "class"}, {"name", "name"}, {"probability", "probability", 4}, {"logit", "logit", 4}};
  return print_report(report, f, p);
}

// What is left of the last batch runs sample by sample where a plan serves only the sizes it was made for.
int run_plan(InferFlags& f, Command command) {
  io::PlanInfo info;
  Compiled plan = io::load_plan(f.plan, {}, &info);
  InferenceModeGuard inference;
  Meta largest;
  bool any_batch = false;
  std::vector<const graph::Graph*> graphs = plan.graphs();
  for (const graph::Template* t : plan.templates()) {
    graphs.push_back(&t->graph());
    any_batch |= t->follows({0, 0});
  }
  for (const graph::Graph* g : graphs) {
    DEFT_CHECK(g->inputs.size() == 1 && g->outputs.size() == 1, ValueError,
               "{} takes {} inputs and gives {} results; infer runs plans of one image model", f.plan, g->inputs.size(),
               g->outputs.size());
    const Meta& m = g->value(g->inputs[0]).meta;
    if (m.rank() > 0 && (largest.rank() == 0 || m.sizes[0] > largest.sizes[0])) largest = m;
  }
  DEFT_CHECK(largest.rank() > 0, ValueError, "{} takes no batches", f.plan);
  ImageForm form;
  if (largest.rank() == 4) {
    if (!command.given("--data") && largest.sizes[1] == 3 && largest.sizes[2] > 64) f.task.data = "images";
    form = image_form(f.task.data, largest.sizes[1], largest.sizes[2], largest.sizes[3]);
  }
  Tensor x;
  if (!f.images.empty())
    x = read_image_files(f.images, form, f.task.device);
  else if (!f.input.empty())
    x = read_array(f, form, !is_floating(largest.dtype));
  else
    x = make_task(f.task)->test_inputs(f.task.test_size ? f.task.test_size : 16);
  const Names names{info.name, f.classes.empty() ? std::vector<std::string>() : read_names(f.classes)};
  const int64_t batch = any_batch && command.given("--batch") ? f.task.batch : largest.sizes[0];
  return report_on(f, names, x, batch, any_batch ? batch : 1,
                   [&](const Tensor& part) { return plan(part.to(largest.dtype)); });
}

int run_model(InferFlags& f, Command command) {
  const Weights weights = read_weights(f.weights);
  take_settings(command, f.task, weights);
  const std::optional<Plan> plan = plan_for(command, f.plan, PlanUse::infer, f, f.task, f.amp);
  if (f.threads > 0) set_num_threads(f.threads);
  DType amp = amp_dtype(f.amp, f.quiet, f.task.device);
  const bool alone = !f.images.empty() || !f.input.empty();
  std::unique_ptr<Task> task = alone ? std::make_unique<ModelAlone>(f.task) : make_task(f.task);
  load_weights(task->model(), f.task.model, weights);
  if (plan) use_plan(*task, *plan);
  if (f.half && !plan) task->model().to(DType::bf16);
  nn::EvalGuard eval(task->model());
  InferenceModeGuard inference;
  AutocastGuard autocast(amp);
  const ImageForm form = image_form(f.task, f.task.sizes->channels, weights.said("picture"));
  const bool text = is_text_model(f.task.model);
  DEFT_CHECK(!text || f.images.empty(), ValueError, "{} takes tokens, not images: -i FILE.npy", f.task.model);
  Tensor x;
  if (!f.images.empty())
    x = read_image_files(f.images, form, f.task.device);
  else if (!f.input.empty())
    x = read_array(f, form, text);
  else
    x = task->test_inputs(f.task.test_size ? f.task.test_size : 16);
  Names names{f.task.model, f.classes.empty() ? weights.classes : read_names(f.classes), f.task.model == "bert"};
  return report_on(f, names, x, f.task.batch, f.task.batch, [&](const Tensor& part) {
    if (plan) return task->forward(part);
    return task->outputs(f.half && is_floating(part.dtype()) ? part.to(DType::bf16) : part);
  });
}

int run(InferFlags& f, Command command) {
  const bool compiled = is_compiled_plan(f.plan);
  DEFT_CHECK(!compiled || f.weights.empty(), ValueError,
             "infer: {} is a plan of deft compile, which holds its weights; leave --weights out", f.plan);
  DEFT_CHECK(compiled || !f.weights.empty(), ValueError,
             "infer: give --weights, or --plan with a plan of deft compile");
  DEFT_CHECK(f.images.empty() || f.input.empty(), ValueError, "infer: give images or --input, not both");
  f.task.device = chosen_device(f.device);
  if (!compiled) return run_model(f, command);
  if (f.threads > 0) set_num_threads(f.threads);
  return run_plan(f, command);
}

}  // namespace

std::function<int()> add_infer(Command command) {
  auto flags = std::make_shared<InferFlags>();
  add_common_flags(command, *flags);
  add_threads_flag(command, *flags);
  add_task_flags(command, flags->task);
  add_amp_flag(command, flags->amp);
  add_device_flag(command, flags->device, "--device");
  command.add_option("-w,--weights", flags->weights, "Checkpoint of deft train, safetensors or PyTorch file")
      .type_name("FILE");
  add_plan_flag(command, flags->plan, true);
  command.add_option("images", flags->images, "JPEG or PNG files; default: the first test images").type_name("FILE");
  command
      .add_option("-i,--input", flags->input,
                  "npy file: [n, channels, height, width], or tokens [n, length] for models of text")
      .type_name("FILE");
  command.add_option("--classes", flags->classes, "File with one class name per line; default: the checkpoint's")
      .type_name("FILE");
  command.add_option("--top", flags->top, "Likeliest classes listed per sample; default 1")
      .check(whole_number(1, 1'000'000))
      .type_name("N");
  command.add_flag("--logits", flags->logits, "Print the logits, too");
  command.add_flag("--half", flags->half, "Weights and activations in bf16");
  return [flags, command] { return run(*flags, command); };
}

}  // namespace deft::cli
