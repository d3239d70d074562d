// deft generate: text from a GPT-2 that learned bytes (deft train -m gpt2 -d text).
#include <fmt/format.h>

#include <limits>

#include "amp/autocast.h"
#include "base/check.h"
#include "exit_code.h"
#include "io/load_tensors.h"
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

struct Flags : CommonFlags {
  std::string weights, prompt = "In the beginning", amp = "off";
  models::GenerateOptions generate{.tokens = 200, .temperature = 0.8};
};

int run(const Flags& f) {
  if (f.threads > 0) set_num_threads(f.threads);
  DEFT_CHECK(!f.prompt.empty(), ValueError, "--prompt must have at least one character");
  DType amp = amp_dtype(f.amp, f.quiet);
  models::Gpt2 model(byte_gpt2_options());
  load_weights(model, "gpt2", f.weights);
  std::vector<int64_t> bytes;
  for (char c : f.prompt) bytes.push_back(static_cast<uint8_t>(c));
  DEFT_CHECK(static_cast<int64_t>(bytes.size()) + f.generate.tokens <= kTextPositions, ValueError,
             "the prompt of {} bytes and {} tokens more do not fit the model's {} positions", bytes.size(),
             f.generate.tokens, kTextPositions);
  AutocastGuard autocast(amp);
  Tensor out = model.generate(tensor(bytes).unsqueeze(0), f.generate);
  std::string text;
  for (int64_t token : out[0].to_vector<int64_t>()) text += static_cast<char>(token);
  if (f.format == "json") {
    // What is not UTF-8 is replaced: JSON can hold nothing else.
    fmt::print("{}\n", bench::Json{{"text", text}}.dump(-1, ' ', false, bench::Json::error_handler_t::replace));
  } else {
    fmt::print("{}\n", text);
  }
  return kOk;
}

}  // namespace

std::function<int()> add_generate(Command command) {
  auto flags = std::make_shared<Flags>();
  add_common_flags(command, *flags);
  add_threads_flag(command, *flags);
  add_amp_flag(command, flags->amp);
  command.add_option("-w,--weights", flags->weights, "Checkpoint of deft train -m gpt2 -d text")
      .required()
      .type_name("FILE");
  command.add_option("-p,--prompt", flags->prompt, "What the text begins with").type_name("TEXT");
  command.add_option("-n,--tokens", flags->generate.tokens, "Bytes to add; default 200")
      .check(whole_number(1, 100'000))
      .type_name("N");
  command.add_option("--temperature", flags->generate.temperature, "0: always the likeliest; default 0.8")
      .check(number_from(0, true))
      .type_name("X");
  command.add_option("--top-k", flags->generate.top_k, "Choose among this many; default: all")
      .check(whole_number(1, 256))
      .type_name("N");
  command.add_option("--seed", flags->generate.seed, "Of the choices; default 0")
      .check(whole_number(0, std::numeric_limits<int64_t>::max()))
      .type_name("N");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
