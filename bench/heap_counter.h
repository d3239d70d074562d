// Counts heap allocations of the calling thread. Linking this replaces the global operator new and delete.
#pragma once

#include <cstdint>

namespace deft::bench {

// Calls of operator new by this thread, plus blocks Deft took from the system.
int64_t heap_allocations();

}  // namespace deft::bench
