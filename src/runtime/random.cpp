#include "runtime/random.h"

#include "runtime/context.h"

namespace deft {

namespace {
constinit Generator process_generator{PhiloxState{0x5eed, 0}};
}

Generator& generator() {
  Generator* scoped = context().rng;
  return scoped ? *scoped : process_generator;
}
void manual_seed(uint64_t seed) { generator().set_state({seed, 0}); }
PhiloxState rng_state() { return generator().state(); }
void set_rng_state(PhiloxState state) { generator().set_state(state); }

RngScope::RngScope(PhiloxState state) : own_(state), outer_(context().rng) { context().rng = &own_; }
RngScope::~RngScope() { context().rng = outer_; }

}  // namespace deft
