// Mixed precision: inside an AutocastGuard the expensive ops (matmuls, convolutions, attention) compute in bf16
// or f16, ops that need range (exp, softmax, norms, losses, sums) in f32, and all others in the widest type of their
// inputs. Which is which is in the op table (OpInfo::autocast). In-place calls and f64 tensors are left alone.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"
#include "runtime/context.h"

namespace deft {

namespace detail {
struct ReportAccess;
}

// What low precision is worth using, and why. `dtype` = f32 means: none is, autocast would only cost.
struct AutocastChoice {
  DType dtype;
  std::string reason;  // one sentence with the feature that decided
};
AutocastChoice choose_autocast(Device device = kCPU);

inline bool is_autocast_enabled() { return context().bits & kAutocast; }
inline DType autocast_dtype() { return context().autocast_dtype; }

// Holds for this thread and everything it starts, on every device. Backward runs in the types of the forward pass and
// needs no guard. Guards nest; AutocastGuard(DType::f32) turns it off inside.
class [[nodiscard]] AutocastGuard {
 public:
  explicit AutocastGuard(DType dtype);
  explicit AutocastGuard(Device device = kCPU);  // what choose_autocast(device) says
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
  DType dtype() const { return context().autocast_dtype; }

 private:
  uint32_t outer_bits_;
  DType outer_dtype_;
};

// Which op ran in which type, and what was converted for it, while the object lives: on its thread only.
class AutocastReport {
 public:
  struct Row {
    const char* op;
    DType dtype;  // of the first floating input, as the kernel got it
    const char* why;
    int64_t calls = 0;
    int64_t casts = 0, cast_bytes = 0;  // conversions made for it, and the bytes they wrote
    int64_t cached = 0;                 // conversions that were there already
  };
  AutocastReport();
  ~AutocastReport();
  AutocastReport(const AutocastReport&) = delete;
  AutocastReport& operator=(const AutocastReport&) = delete;
  const std::vector<Row>& rows() const { return rows_; }  // in the order of first calls
  std::string to_string() const;                          // a table

 private:
  friend struct detail::ReportAccess;
  std::vector<Row> rows_;
  AutocastReport* outer_;
};

}  // namespace deft
