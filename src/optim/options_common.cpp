#include "optim/options_common.h"

#include "base/check.h"

namespace deft::optim::detail {

void check_not_negative(const char* name, const char* option, double value) {
  DEFT_CHECK(value >= 0, ValueError, "{}: {} must not be negative, found {}", name, option, value);
}
void check_fraction(const char* name, const char* option, double value) {
  DEFT_CHECK(value >= 0 && value < 1, ValueError, "{}: {} lies in [0, 1), found {}", name, option, value);
}
void check_rate(const char* name, double lr, double weight_decay) {
  check_not_negative(name, "lr", lr);
  check_not_negative(name, "weight_decay", weight_decay);
}

}  // namespace deft::optim::detail
