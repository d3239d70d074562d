// The verbs of the command line, one line each in verbs.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace deft::cli {

// Declares a verb's flags on `app` and returns what runs it after they are parsed. The result is the exit code.
using AddVerb = std::function<int()> (*)(CLI::App& app);

struct Verb {
  std::string group;  // "" for a verb of its own
  std::string name;
  std::string summary;
  AddVerb add;
  std::string path() const { return group.empty() ? name : group + " " + name; }
};
const std::vector<Verb>& verbs();

std::function<int()> add_doctor(CLI::App& app);
std::function<int()> add_info(CLI::App& app);
std::function<int()> add_train(CLI::App& app);
std::function<int()> add_eval(CLI::App& app);
std::function<int()> add_infer(CLI::App& app);
std::function<int()> add_compile(CLI::App& app);
std::function<int()> add_generate(CLI::App& app);
std::function<int()> add_profile(CLI::App& app);
std::function<int()> add_explain(CLI::App& app);
std::function<int()> add_plan_show(CLI::App& app);
std::function<int()> add_compare(CLI::App& app);
std::function<int()> add_bench_overhead(CLI::App& app);
std::function<int()> add_bench_modes(CLI::App& app);
std::function<int()> add_bench_models(CLI::App& app);
std::function<int()> add_bench_ops(CLI::App& app);
std::function<int()> add_bench_gemm(CLI::App& app);
std::function<int()> add_bench_conv(CLI::App& app);
std::function<int()> add_bench_attention(CLI::App& app);
std::function<int()> add_bench_rows(CLI::App& app);
std::function<int()> add_bench_data(CLI::App& app);
std::function<int()> add_data_inspect(CLI::App& app);
std::function<int()> add_data_bench(CLI::App& app);

}  // namespace deft::cli
