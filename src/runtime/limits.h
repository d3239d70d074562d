// Compile-time limits shared by all layers.
#pragma once

namespace deft {

inline constexpr int kMaxDims = 12;
inline constexpr int kMaxDevices = 16;  // of one kind
inline constexpr int kMaxStreams = 64;  // per device, the default one included

}  // namespace deft
