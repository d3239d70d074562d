// What all fuzz targets share: only the loaders' own errors may come out, and what was loaded can be used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "core/state.h"
#include "io/load_options.h"
#include "ops/all_ops.h"

namespace deft::io {

template <class Load>
int fuzz(const uint8_t* data, size_t size, Load load) {
  LoadOptions options;
  options.limits.zip_unpacked_bytes = 1 << 24;
  try {
    for (const NamedTensor& t : load(std::as_bytes(std::span(data, size)), options))
      if (t.tensor.numel() < 1 << 16) (void)t.tensor.contiguous();
  } catch (const LoadError& e) {
    if (e.field.empty() || e.format.empty()) __builtin_trap();
  } catch (const UnsupportedError&) {
  }
  return 0;
}

}  // namespace deft::io
