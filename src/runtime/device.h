#pragma once

#include <cstdint>
#include <string>

namespace deft {

enum class DeviceType : uint8_t { cpu, cuda };
inline constexpr int kDeviceTypeCount = 2;

struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;
  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  friend constexpr bool operator==(Device, Device) = default;
};
inline constexpr Device kCPU{};
inline constexpr Device kCUDA{DeviceType::cuda, 0};

// "cpu", "cuda:0". `parse_device` accepts the same and throws ValueError otherwise.
std::string to_string(Device device);
Device parse_device(const std::string& text);

}  // namespace deft
