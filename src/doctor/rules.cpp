#include "doctor/rules.h"

namespace deft::doctor {

namespace {

constexpr RuleInfo kRules[] = {
    {"D001", "backward-in-no-grad", Severity::error, "backward() on what was computed with gradients off",
     "While a NoGradGuard or an InferenceModeGuard lives, ops record nothing. A loss computed there has no graph, so "
     "backward() has nothing to follow and throws. The guard that was on is named with its line: it often belongs to a "
     "block that reaches further than was meant, or to a function that the training loop calls, too.",
     "End the guard before the forward pass of training.",
     R"(// wrong
NoGradGuard guard;
Tensor before = evaluate(model, validation);
Tensor loss = cross_entropy(model(x), y);  // nothing is recorded
loss.backward();                           // GradError

// right
Tensor before = no_grad([&] { return evaluate(model, validation); });
Tensor loss = cross_entropy(model(x), y);
loss.backward();
)"},
    {"D002", "requires-grad-in-no-grad", Severity::warning,
     "requires_grad_() on a tensor that is used with gradients off",
     "requires_grad_() asks for gradients from the tensor's next recorded op on. Inside no_grad or inference_mode no "
     "op is "
     "recorded, whatever its inputs require, so the request has no effect on what is computed there. Making a leaf in "
     "such a block and using it outside is fine, and is not reported.",
     "Compute with the tensor outside of the block, or turn gradients on again with an EnableGradGuard.",
     R"(// wrong
NoGradGuard guard;
x.requires_grad_();
Tensor y = (x * x).sum();  // y does not require gradients

// right
x.requires_grad_();
Tensor y = (x * x).sum();
)"},
    {"D003", "graph-kept-across-steps", Severity::error, "the graph of every step is kept: total += loss",
     "A loss knows the graph it came from. Adding it to a sum makes the sum know it, too, and with it the graphs of "
     "all "
     "steps before: memory grows by the same amount in each step until there is none left. Losses kept in a list, "
     "moving "
     "averages and recurrent states that are carried on do the same. After backward() what was saved is gone and only "
     "the nodes stay; without backward(), as in an evaluation with gradients on, all activations stay. The figure is "
     "the "
     "growth measured from step to step.",
     "Add numbers or detached tensors: total += loss.item<double>() or total += loss.detach().",
     R"(// wrong
Tensor total = zeros({});
for (auto& batch : loader) {
  Tensor loss = step(batch);
  total += loss;
}

// right: waits for a device in every step
double total = 0;
total += loss.item<double>();

// right: does not
Tensor total = zeros({}, {f32, device});
total += loss.detach();
)"},
    {"D004", "forward-without-backward", Severity::warning, "a module records a graph that is never run backward",
     "With gradients on, a forward pass saves what backward() would read: activations, masks, statistics. If "
     "backward() "
     "never comes this is wasted memory and time, and in a loop the largest batch decides how much memory is needed. "
     "It "
     "happens in evaluations and in feature extractors whose results are detached afterwards.",
     "Put evaluation into no_grad or inference_mode, and freeze() modules that are only used.",
     R"(// wrong
for (auto& batch : validation) correct += count(model(batch["image"]), batch["label"]);

// right
model.eval();
InferenceModeGuard guard;
for (auto& batch : validation) correct += count(model(batch["image"]), batch["label"]);
)"},
    {"D005", "train-mode-in-evaluation", Severity::warning, "a module in train mode is called with gradients off",
     "no_grad says that nothing is recorded; it does not say that the model is being evaluated. In train mode dropout "
     "still zeroes at random, and batch norm normalises by the batch and moves its running statistics, by evaluation "
     "data. Figures are worse and change with the batch size and from run to run.",
     "Call eval() before and train() after, or use an EvalGuard, which puts every submodule back as it was.",
     R"(// wrong
NoGradGuard guard;
Tensor out = model(x);

// right
nn::EvalGuard eval(model);
NoGradGuard guard;
Tensor out = model(x);
)"},
    {"D006", "loss-outside-no-grad", Severity::warning,
     "a loss or metric of an evaluation is computed outside its no_grad block",
     "The forward pass ran with gradients off, but the block ended too early: an op on its results meets something "
     "that "
     "requires gradients, such as a penalty on the weights, and is recorded. The graph is small or large, but it is "
     "made "
     "in every batch, and nobody runs it backward.",
     "Move the line into the no_grad block.",
     R"(// wrong
Tensor out;
{
  NoGradGuard guard;
  out = model(x);
}
Tensor loss = cross_entropy(out, y) + 1e-4 * model.weight.square().sum();  // recorded

// right
NoGradGuard guard;
Tensor out = model(x);
Tensor loss = cross_entropy(out, y) + 1e-4 * model.weight.square().sum();
)"},
    {"D007", "inference-tensor-in-training", Severity::error, "a tensor made inside inference_mode is used in training",
     "Tensors made inside inference_mode have no version counter, so nobody could tell whether one was changed between "
     "forward and backward. Saving one for backward, writing to one in place outside, or making one require gradients "
     "is "
     "therefore refused. It is often a table or cache that was filled by an evaluation before training began.",
     "clone() it outside of the block, or make it under no_grad instead of inference_mode.",
     R"(// wrong
Tensor table = inference_mode([&] { return make_table(length); });
Tensor y = model(x) * table;  // InferenceError: cannot be saved for backward

// right
Tensor table = no_grad([&] { return make_table(length); });
)"},
    {"D008", "statistics-move-while-frozen", Severity::warning, "running statistics of a frozen batch norm still move",
     "requires_grad_(false) on parameters stops their gradients and nothing else. A batch norm in train mode goes on "
     "normalising by the batch and moving its running mean and variance: after fine-tuning, the part that was to stay "
     "as it was gives other results.",
     "Use freeze() on the module: it covers gradients, statistics and dropout, and survives train() on its parents.",
     R"(// wrong
for (Tensor& p : model.backbone.parameters()) p.requires_grad_(false);
model.train();

// right
model.backbone.freeze();
model.train();
)"},
    {"D009", "frozen-weights-decayed", Severity::warning, "weight decay shrinks parameters whose gradients are zero",
     "Optimizers skip a parameter without a gradient, but a gradient of zeros is a gradient: weight decay and momentum "
     "go "
     "on. Multiplying a loss by zero, or zeroing gradients by hand to keep a layer still, therefore lets the layer "
     "fade "
     "away, by lr times weight decay in each step.",
     "freeze() what is not to change, or leave it out of the optimizer.",
     R"(// wrong
loss = task_loss + 0.0 * auxiliary_loss;  // the auxiliary head decays to nothing
loss.backward();
optimizer.step();

// right
model.auxiliary.freeze();
)"},
    {"D010", "parameters-without-gradients", Severity::warning, "parameters of the optimizer never get a gradient",
     "Others do, so this is not a question of calling backward(). Either the layers are not used in forward(), or "
     "something cuts them off: detach(), item(), an argmax, a computation under no_grad. They stay as they were "
     "initialised, and nothing fails.",
     "Use them, remove them, or freeze() them if they are meant to stay.",
     R"(// wrong
Tensor forward(const Tensor& x) override {
  Tensor h = encoder(x).detach();  // the encoder is never trained
  return head(h);
}

// right
return head(encoder(x));
)"},
    {"D011", "device-ping-pong", Severity::warning, "values go to the host and back to the device in every step",
     "Each way is a copy, and the way to the host makes it wait until the device has done all its work: the device "
     "then "
     "idles until the host has sent something again. A single op that was written for the host in the middle of a "
     "model "
     "is enough.",
     "Do this part on the device as well.",
     R"(// wrong
Tensor scores = model(x).cpu();
Tensor best = topk(scores, 5)[0].cuda();

// right
Tensor best = topk(model(x), 5)[0];
)"},
    {"D012", "hidden-sync", Severity::warning, "the host waits for the device in every step",
     "Ops on a device are given to it and the host goes on; the device stays busy as long as the host is ahead. "
     "item(), "
     "printing, nonzero() and copies to pageable memory need the result now: the host waits, and when it goes on the "
     "device has nothing to do. SyncGuard(SyncPolicy::forbid) makes each such place throw.",
     "Keep values on the device and read them every hundredth step, or after the loop.",
     R"(// wrong
for (auto& batch : loader) total += step(batch).item<double>();

// right
Tensor total = zeros({}, {f32, device});
for (auto& batch : loader) total += step(batch).detach();
double mean = total.item<double>() / batches;
)"},
    {"D013", "unpinned-copy", Severity::warning, "a copy that should run in the background comes from pageable memory",
     "non_blocking lets the host go on while a copy runs, but a device can only read memory that the system will not "
     "move. "
     "From ordinary memory the driver copies through a buffer of its own, and the host waits after all.",
     "Let the loader copy (LoaderOptions::device), or copy from pin_memory().",
     R"(// wrong
Tensor x = batch["image"].to(device, /*non_blocking=*/true);

// right
data::DataLoader loader(dataset, {.batch_size = 64, .device = device});
)"},
    {"D014", "tiny-tensors", Severity::warning, "thousands of ops on a few elements each",
     "Starting an op costs the same for ten elements and for ten thousand: type and shape checks, an allocation, a "
     "graph "
     "node. With tiny tensors, or one sample at a time, this is most of the time, and neither threads nor vector units "
     "have anything to do.",
     "Work on batches; where that cannot be, compile() takes most of the cost away.",
     R"(// wrong
for (int64_t i = 0; i < n; ++i) sum += (row[i] - mean) * (row[i] - mean);

// right
Tensor sum = (row - mean).square().sum();

// one sample at a time for good reason
auto fast = compile([&](const Tensor& x) { return model(x); });
)"},
    {"D015", "layout-conversions", Severity::warning, "tensors are brought into another layout in every step",
     "contiguous(), permute() and ops that need another order of their elements copy the whole tensor. A model in "
     "channels_last whose input is not, or the other way round, pays this at every layer where the two meet.",
     "Keep one layout: bring the model and its input into it once, before the loop.",
     R"(// wrong
for (auto& batch : loader) model(batch["image"].contiguous(MemoryFormat::channels_last));  // the model is not

// right
model.to(MemoryFormat::channels_last);
)"},
    {"D016", "slow-autocast", Severity::warning, "autocast is slower than f32 here",
     "Autocast pays where the processor multiplies bf16 or f16 faster than f32. Elsewhere it only adds conversions; "
     "the "
     "same holds for models made of small ops. AutocastGuard without a type asks choose_autocast(), which knows what "
     "this "
     "machine can do.",
     "Remove the guard, or leave the type to AutocastGuard(device).",
     R"(// wrong
AutocastGuard autocast(DType::f16);  // on a CPU that computes f16 by converting

// right
AutocastGuard autocast(x.device());  // f32 where nothing is won
)"},
    {"D017", "recompilations", Severity::warning, "a compiled function is captured again and again",
     "compile() makes a plan for the sizes, types and modes it has seen. Calls that differ need a new capture, which "
     "costs "
     "more than the call itself. Lengths that differ from batch to batch, a tensor that changes its type, or a model "
     "that goes to and fro between train() and eval() are the usual causes; the message says which was missed.",
     "Keep inputs alike: pad to a few lengths (BucketSampler), name changing sizes in CompileOptions::dynamic.",
     R"(// wrong
for (auto& batch : loader) fast(batch["tokens"]);  // another length each time

// right
auto fast = compile(f, {.dynamic = {{0, 1}}});  // size 1 of input 0 changes
)"},
    {"D018", "padding-waste", Severity::warning, "most of a padded batch is padding",
     "Sequences of one batch are filled up to the longest of them, and every layer computes the filling as well. One "
     "long "
     "sequence among short ones is enough to make most of the work useless.",
     "Put sequences of similar length together: BucketSampler; the message names boundaries where some are better.",
     R"(// wrong
data::DataLoader loader(texts, {.batch_size = 32, .shuffle = true});

// right
auto sampler = std::make_shared<data::BucketSampler>(lengths, data::BucketOptions{.rows = 32});
data::DataLoader loader(texts, {.batch_sampler = sampler});
)"},
    {"D019", "oversubscribed-threads", Severity::warning, "more threads want to run than there are processors",
     "Deft's pool, a loader's workers, an OpenMP or BLAS library beside it and several processes on one machine each "
     "believe that all cores are theirs. Threads then wait for one another at the end of every parallel loop, and the "
     "slowest decides. In a container the quota counts, not the number of cores.",
     "Give each its share: set_num_threads(), DEFT_NUM_THREADS, LoaderOptions::workers.",
     R"(// wrong
set_num_threads(64);  // on 8 cores

// right: as many as this process may use, which is the default
set_num_threads(8);
)"},
    {"D020", "data-bound", Severity::warning, "the loop waits for its data",
     "The model is done before the next batch is there. Whatever is made faster in the model then changes nothing. "
     "Decoding and transforms are work for several threads, ahead of time; reading from disk wants larger pieces.",
     "Give the loader workers and let it run ahead; LoaderStats says which stage takes the time.",
     R"(// wrong
data::DataLoader loader(dataset, {.batch_size = 64, .workers = 0});

// right: workers and prefetch are chosen by measuring
data::DataLoader loader(dataset, {.batch_size = 64});
)"},
    {"D021", "not-finite", Severity::error, "NaN or infinity appears",
     "One NaN reaches every parameter at the next step, and the loss alone does not say where it came from. The "
     "finding "
     "names the first op whose result held one while its inputs did not: a logarithm or square root of a negative "
     "number, "
     "0/0, an overflow in exp() or in f16, a division by a norm that is zero. Results are checked in samples, and "
     "only "
     "on the CPU, so the very first one can be missed; an AnomalyGuard checks everything, at a price.",
     "Keep the op's input in its range: clamp it, add an epsilon inside the root, use log_softmax, scale the loss.",
     R"(// wrong
Tensor loss = -(softmax(logits, 1).log() * target).sum();  // log(0) for sure classes

// right
Tensor loss = -(log_softmax(logits, 1) * target).sum();
)"},
    {"D022", "gradients-never-cleared", Severity::warning, "steps are taken with gradients of earlier steps added in",
     "backward() adds to the gradients that are there, so that several batches can make up one step. Without "
     "zero_grad() "
     "in between each step uses the sum over all steps so far: it grows, points into the past, and looks like a "
     "learning "
     "rate that is much too high.",
     "Call optimizer.zero_grad() once for each step.",
     R"(// wrong
for (auto& batch : loader) {
  loss(batch).backward();
  optimizer.step();
}

// right
for (auto& batch : loader) {
  optimizer.zero_grad();
  loss(batch).backward();
  optimizer.step();
}
)"},
    {"D023", "output-in-every-step", Severity::warning, "printing, logging or writing files takes a part of every step",
     "A line on a terminal or in a log file is cheap, thousands of them are not: each is formatted, written and often "
     "flushed while nothing is computed. Progress bars, writers of metrics and checkpoints after every few steps do "
     "the "
     "same. The figure is the time spent there.",
     "Write every hundredth step, or once per epoch.",
     R"(// wrong
for (auto& batch : loader) std::cout << step(batch).item<double>() << std::endl;

// right
if (++steps % 100 == 0) std::cout << loss.item<double>() << "\n";
)"},
    {"D024", "gradients-filled-with-zeros", Severity::warning, "zero_grad() fills gradients instead of forgetting them",
     "Gradients that are forgotten cost nothing: backward() makes them anew and writes once. Filled with zeros they "
     "are "
     "written, read again and added to: three passes over as many bytes as the model has, in every step.",
     "Call zero_grad() without set_to_none=false.",
     R"(// wrong
optimizer.zero_grad(/*set_to_none=*/false);

// right
optimizer.zero_grad();
)"},
    {"D025", "optimizer-by-parameter", Severity::warning, "an optimizer updates one parameter after the other",
     "Each update is a handful of small ops, and a model has hundreds of parameters: calling the ops takes longer than "
     "their work, and each reads and writes the parameter again. A fused optimizer passes over memory once. Deft's "
     "optimizers always do; PyTorch's do where they are asked to.",
     "Make the optimizer with fused=True, or with foreach=True where it has no fused form.",
     R"(// wrong, in PyTorch
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

// right
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
)"},
    {"D026", "graph-breaks", Severity::warning, "a compiled function falls into several parts",
     "torch.compile() gives up at what it cannot follow: printing, item(), code of other libraries. What comes before "
     "and "
     "after is compiled apart, and nothing is fused or planned across the gap. The message has the reason that was "
     "given most often.",
     "Move what cannot be compiled out of the function, or see all reasons with TORCH_LOGS=graph_breaks.",
     R"(// wrong, in PyTorch
@torch.compile
def step(x, y):
    loss = loss_of(model(x), y)
    print(loss.item())
    return loss

// right
loss = step(x, y)
print(loss.item())
)"},
};

}  // namespace

std::span<const RuleInfo> all_rules() { return kRules; }

const RuleInfo* find_rule(std::string_view id) {
  for (const RuleInfo& rule : kRules)
    if (id == rule.id || id == rule.name) return &rule;
  return nullptr;
}

}  // namespace deft::doctor
