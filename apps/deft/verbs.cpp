#include "verbs.h"

namespace deft::cli {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"", "doctor", "Why a workload is slow, what helps, and a plan with the proof", add_doctor},
      {"", "info", "This machine, and what is fast on it", add_info},
      {"", "train", "Train a built-in model on a built-in data set", add_train},
      {"", "eval", "Test accuracy of weights", add_eval},
      {"", "infer", "Classify images with a model", add_infer},
      {"", "compile", "A model and its weights as a plan in one file", add_compile},
      {"", "generate", "Text from a language model", add_generate},
      {"", "profile", "Where the time and the memory of a workload go", add_profile},
      {"", "explain", "What a rule of the doctor is about, with the fix and an example", add_explain},
      {"", "compare", "Two reports side by side, and whether the second is a regression", add_compare},
      {"plan", "show", "A plan of deft doctor in words", add_plan_show},
      {"bench", "modes", "Built-in models under grad, no_grad and inference_mode: latency and memory", add_bench_modes},
      {"bench", "models", "Training and inference of whole models: latency, memory by category, peers",
       add_bench_models},
      {"bench", "overhead", "Cost of one eager op: instructions, time, allocations", add_bench_overhead},
      {"bench", "ops", "Single ops against the device's copy bandwidth and against a peer", add_bench_ops},
      {"bench", "gemm", "GEMM on the CPU: % of peak, peers, errors", add_bench_gemm},
      {"bench", "conv", "Convolutions of ResNet-50 on the CPU: % of peak, peers, errors", add_bench_conv},
      {"bench", "attention", "Attention on the CPU: % of peak, peers, errors", add_bench_attention},
      {"bench", "rows", "Softmax, norms, sums, transposes on the CPU: % of bandwidth, peers, errors", add_bench_rows},
      {"bench", "data",
       "Loading: the loader's own cost, images against libjpeg-turbo, sentences in batches of similar length",
       add_bench_data},
      {"data", "inspect", "Contents of a folder or file of samples, and its broken ones", add_data_inspect},
      {"data", "bench", "Loading speed of a folder or file of samples", add_data_bench},
  };
  return table;
}

}  // namespace deft::cli
