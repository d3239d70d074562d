// deft generate: text from a GPT-2 that learned bytes (deft train -m gpt2 -d text).
#include <fmt/format.h>

#include <limits>

#include "amp/autocast.h"
#include "base/check.h"
#include "data/text.h"
#include "exit_code.h"
#include "models/gpt2.h"
#include "ops/all_ops.h"
#include "output.h"
#include "runtime/parallel.h"
#include "task.h"
#include "task_flags.h"
#include "verbs.h"
#include "weights.h"

namespace deft::cli {

namespace {

struct GenerateFlags : CommonFlags {
  std::string weights, prompt = "In the beginning", amp = "off";
  std::vector<std::string> tokens;
  models::GenerateOptions generate{.tokens = 200, .temperature = 0.8};
};

std::vector<int64_t> prompt_tokens(const GenerateFlags& f, int64_t vocabulary) {
  const bool bytes = vocabulary == data::kByteTokens;
  DEFT_CHECK(
      bytes || !f.tokens.empty(), ValueError,
      "the model of {} has a vocabulary of {} tokens, not bytes; give the prompt as token numbers, --prompt-tokens "
      "15496,11,995",
      f.weights, vocabulary);
  std::vector<int64_t> tokens;
  for (const std::string& word : f.tokens) tokens.push_back(std::stoll(word));
  if (f.tokens.empty())
    for (char c : f.prompt) tokens.push_back(static_cast<uint8_t>(c));
  DEFT_CHECK(!tokens.empty(), ValueError, "--prompt must have at least one character");
  for (int64_t token : tokens)
    DEFT_CHECK(token < vocabulary, ValueError, "--prompt-tokens: found {}, the model knows tokens below {}", token,
               vocabulary);
  return tokens;
}

int run(GenerateFlags& f, Command command) {
  if (f.threads > 0) set_num_threads(f.threads);
  DType amp = amp_dtype(f.amp, f.quiet);
  const Weights weights = read_weights(f.weights);
  TaskOptions task;
  task.model = "gpt2";
  take_settings(command, task, weights);
  models::Gpt2 model(task.sizes->gpt2);
  load_weights(model, "gpt2", weights);
  const models::Gpt2Options& o = model.options();
  const std::vector<int64_t> prompt = prompt_tokens(f, o.vocabulary);
  DEFT_CHECK(static_cast<int64_t>(prompt.size()) + f.generate.tokens <= o.positions, ValueError,
             "the prompt of {} tokens and {} more do not fit the model's {} positions", prompt.size(),
             f.generate.tokens, o.positions);
  AutocastGuard autocast(amp);
  Tensor out = model.generate(tensor(prompt).unsqueeze(0), f.generate);
  const std::vector<int64_t> tokens = out[0].to_vector<int64_t>();
  const bool as_text = o.vocabulary == data::kByteTokens;
  std::string text;
  if (as_text)
    for (int64_t token : tokens) text += static_cast<char>(token);
  else
    text = fmt::format("{}", fmt::join(tokens, ","));
  if (f.format == "json") {
    bench::Json json = as_text ? bench::object("text", text) : bench::object("tokens", tokens);
    // What is not UTF-8 is replaced: JSON can hold nothing else.
    text = json.dump(-1, ' ', false, bench::Json::error_handler_t::replace);
  }
  write_out(text + "\n");
  return kOk;
}

}  // namespace

std::function<int()> add_generate(Command command) {
  auto flags = std::make_shared<GenerateFlags>();
  add_common_flags(command, *flags);
  add_threads_flag(command, *flags);
  add_amp_flag(command, flags->amp);
  command
      .add_option("-w,--weights", flags->weights,
                  "Checkpoint of deft train -m gpt2 -d text, or weights of a GPT-2 of any size")
      .required()
      .type_name("FILE");
  command.add_option("-p,--prompt", flags->prompt, "The prompt").type_name("TEXT");
  command
      .add_option("--prompt-tokens", flags->tokens,
                  "The prompt as token numbers, for models with other tokens than bytes")
      .delimiter(',')
      .check(whole_number(0, std::numeric_limits<int32_t>::max()))
      .type_name("N,...");
  command.add_option("-n,--tokens", flags->generate.tokens, "Bytes to generate; default 200")
      .check(whole_number(1, 100'000))
      .type_name("N");
  command.add_option("--temperature", flags->generate.temperature, "0: always the likeliest; default 0.8")
      .check(number_from(0, true))
      .type_name("X");
  command.add_option("--top-k", flags->generate.top_k, "Sample among this many likeliest tokens; default: all")
      .check(whole_number(1, 1'000'000))
      .type_name("N");
  command.add_option("--seed", flags->generate.seed, "Seed of the sampling; default 0")
      .check(whole_number(0, std::numeric_limits<int64_t>::max()))
      .type_name("N");
  return [flags, command] { return run(*flags, command); };
}

}  // namespace deft::cli
