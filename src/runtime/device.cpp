#include "runtime/device.h"

#include <charconv>

#include "base/check.h"

namespace deft {

std::string to_string(Device device) {
  if (device.is_cpu()) return "cpu";
  return fmt::format("cuda:{}", device.index);
}

Device parse_device(const std::string& text) {
  if (text == "cpu") return kCPU;
  int index = -1;
  if (text.starts_with("cuda:")) std::from_chars(text.data() + 5, text.data() + text.size(), index);
  if (index >= 0 && index <= INT8_MAX) {
    Device device{DeviceType::cuda, static_cast<int8_t>(index)};
    if (to_string(device) == text) return device;  // no sign, no leading zero, nothing behind
  }
  DEFT_FAIL(ValueError, "device: found \"{}\", expected \"cpu\" or \"cuda:N\" with N from 0 to 127; fix the name",
            text);
}

}  // namespace deft
