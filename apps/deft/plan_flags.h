// --plan: the verbs that run a model by a plan of deft doctor, or run a plan of deft compile. What a file is, its
// content says.
#pragma once

#include <optional>
#include <string>

#include "common_flags.h"
#include "doctor/plan.h"
#include "task.h"

namespace deft::cli {

enum class PlanUse : uint8_t { train, eval, infer };

// `compiled`: plans of deft compile are taken too; --plan-file is an older name.
void add_plan_flag(Command command, std::string& file, bool compiled = false);
// Whether it is of deft compile; LoadError if it cannot be read.
bool is_compiled_plan(const std::string& file);

// What the verb takes of the plan in `file`, none for "": sets the flags that the plan speaks of (--threads, --batch,
// --workers, --amp). Flags given explicitly win; stderr says so, and warns of a plan for another machine or model.
// ValueError for a plan of deft compile.
std::optional<Plan> plan_for(Command command, const std::string& file, PlanUse use, CommonFlags& flags,
                             TaskOptions& task, std::string& amp);

// Brings the model to the plan's type and layout, and sets task.forward: its inputs likewise, compiled if the plan says
// so. The task must outlive what it is given.
void use_plan(Task& task, const Plan& plan);

}  // namespace deft::cli
