// The parts of a report that come from trials, latency and energy, and what to do next. Quantities that were not
// measured are null.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "doctor/plan.h"
#include "doctor/trials.h"
#include "profile/energy.h"
#include "profile/latency.h"

namespace deft::doctor {

using Json = nlohmann::ordered_json;

Json trials_json(const std::vector<TrialRow>& rows);
Json waterfall_json(const std::vector<TrialsResult::Step>& steps);
Json plan_json(const Plan& plan);
// Of a plan over the workload as it was; null where there was no such trial.
Json verified_json(const std::string& task, const TrialResult& trial);
// The command that runs the plan first, then the steps it is made of, each with the line of C++ that does it; by gain.
// Of a demonstration: the command that examines what its user runs.
Json next_json(const TrialsResult& result, const std::string& command, bool demonstration = false);

Json latency_json(const profile::LatencyReport& report);
Json energy_json(const profile::EnergyReport& report, int64_t samples);  // samples of the run

}  // namespace deft::doctor
