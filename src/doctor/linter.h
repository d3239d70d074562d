// Runs all rules side by side: notifies each of its events, one thread at a time, and collects their findings.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "doctor/rule.h"

namespace deft::doctor {

struct LinterOptions {
  std::vector<std::string> off;  // ids of rules that are not to report
  bool own_lines = false;        // findings may point to Deft's own lines: demonstrations
};

class Linter : public Observer {
 public:
  explicit Linter(LinterOptions options = {});
  ~Linter() override;

  // Found so far, one for each rule and line: the worst first, then by file and line.
  std::vector<Finding> findings();

  void kernel_ran(const KernelCall& call, const Site& site) override;
  void op_ran(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs, bool recorded,
              const Site& site) override;
  void backward_begins(std::span<const Tensor> roots, const BackwardOptions& options, const Site& site) override;
  void node_ran(const Node& node) override;
  void backward_ends() override;
  void requires_grad_set(const Tensor& tensor, bool on, const Site& site) override;
  void refused(const char* op, const std::string& message, const Site& site) override;
  void host_read(const Tensor& tensor, double value, const Site& site) override;
  void copied(const DeviceCopy& copy) override;
  void module_begins(const ModuleCall& call) override;
  void module_ends(const ModuleCall& call) override;
  void optimizer_begins(const OptimizerStep& step) override;
  void optimizer_ends(const OptimizerStep& step) override;
  void grads_cleared(const void* optimizer, bool to_none, const Site& site) override;
  void batch_loaded(const void* loader, int64_t rows, double seconds_waited, const Site& site) override;
  void padded(std::span<const int64_t> lengths, int64_t places, const Site& site) override;
  void plan_missed(const void* compiled, const std::string& reason, const Site& site) override;
  void plan_ran(const void* compiled, const Site& site) override;
  void host_waited(const char* what, const Site& site) override;
  void function_ran(const Node& node) override;

 private:
  template <class Call>
  void tell(Event event, const Call& call);
  void note(const Site& site);
  bool is_own(const char* file) const;
  void blame_the_caller(Finding& f) const;

  LinterOptions options_;
  std::vector<std::unique_ptr<Rule>> rules_;
  std::array<std::vector<Rule*>, kEventCount> wanting_;  // by the number of an event's bit
  std::mutex mutex_;
  // By what a site points to. Of Deft's own lines, the first of the user's that led there.
  struct Place {
    Site site, caller;
    bool library = false;
  };
  std::unordered_map<uintptr_t, Place> places_;
};

// Module calls open on this thread, the one that begins or ends now included: 1 is an outermost call. For rules.
int open_module_calls();

// One for each rule and line, with the counts of all; the worst first, then by file and line.
std::vector<Finding> merged(std::vector<Finding> findings);

}  // namespace deft::doctor
