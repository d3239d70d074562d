// The verbs of the command line, one line each in verbs.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "command_line.h"

namespace deft::cli {

// Declares a verb's flags on `app` and returns what runs it after they are parsed. The result is the exit code.
using AddVerb = std::function<int()> (*)(Command command);

struct Verb {
  std::string group;  // "" for a verb of its own
  std::string name;
  std::string summary;
  AddVerb add;
  std::string path() const { return group.empty() ? name : group + " " + name; }
};
const std::vector<Verb>& verbs();

std::function<int()> add_doctor(Command command);
std::function<int()> add_info(Command command);
std::function<int()> add_train(Command command);
std::function<int()> add_eval(Command command);
std::function<int()> add_infer(Command command);
std::function<int()> add_compile(Command command);
std::function<int()> add_generate(Command command);
std::function<int()> add_profile(Command command);
std::function<int()> add_explain(Command command);
std::function<int()> add_plan_show(Command command);
std::function<int()> add_compare(Command command);
std::function<int()> add_bench_overhead(Command command);
std::function<int()> add_bench_modes(Command command);
std::function<int()> add_bench_models(Command command);
std::function<int()> add_bench_ops(Command command);
std::function<int()> add_bench_gemm(Command command);
std::function<int()> add_bench_conv(Command command);
std::function<int()> add_bench_attention(Command command);
std::function<int()> add_bench_rows(Command command);
std::function<int()> add_bench_data(Command command);
std::function<int()> add_data_inspect(Command command);
std::function<int()> add_data_bench(Command command);

}  // namespace deft::cli
