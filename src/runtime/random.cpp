#include "runtime/random.h"

#include "base/check.h"
#include "runtime/context.h"

namespace deft {

namespace {
constinit Generator process_generator{PhiloxState{0x5eed, 0}};
}

Generator& generator() {
  Generator* scoped = context().rng;
  return scoped ? *scoped : process_generator;
}
namespace {
// A replay neither runs the function nor reads the state of the generator.
void check_uncaptured(const char* what) {
  DEFT_CHECK(!(context().bits & kCapture), CaptureError,
             "capture: {}() inside a compiled function would happen in its first call only; call it outside", what);
}
}  // namespace

void manual_seed(uint64_t seed) {
  check_uncaptured("manual_seed");
  generator().set_state({seed, 0});
}
PhiloxState rng_state() {
  check_uncaptured("rng_state");
  return generator().state();
}
void set_rng_state(PhiloxState state) {
  check_uncaptured("set_rng_state");
  generator().set_state(state);
}

RngScope::RngScope(PhiloxState state) : own_(state), outer_(context().rng) { context().rng = &own_; }
RngScope::~RngScope() { context().rng = outer_; }

}  // namespace deft
