// Between the doctor of a program and the one of DEFT_DOCTOR, which observes where the program has none of its own.
#pragma once

#include <string>

#include "doctor/doctor.h"

namespace deft::doctor {

struct DoctorHooks {
  void (*give_way)() = nullptr;                      // a Doctor is wanted while this one runs
  void (*come_back)(const DoctorResult&) = nullptr;  // that one is done, and found this
};
void set_doctor_hooks(const DoctorHooks& hooks);

// ValueError or SaveError where DoctorResult::write() would fail, so that the error comes before hours of work.
void check_report_path(const std::string& path);

}  // namespace deft::doctor
