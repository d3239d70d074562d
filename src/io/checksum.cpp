#include "io/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "io/crc32.h"

namespace deft::io {

namespace {

class Checksum {
 public:
  void add(const void* data, size_t size) { crc_ = crc32(crc_, {static_cast<const std::byte*>(data), size}); }
  void add(std::string_view text) {
    uint64_t size = text.size();
    add(&size, sizeof size);
    add(text.data(), text.size());
  }
  void add(const NamedTensor& t) {
    add(std::string_view(t.name));
    add(name_of(t.tensor.dtype()));
    for (int64_t size : t.tensor.sizes()) add(&size, sizeof size);
    Tensor x = t.tensor.detach().cpu().contiguous();
    add(x.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size());
  }
  std::string text() const { return fmt::format("{:08x}", crc_); }

 private:
  uint32_t crc_ = 0;
};

}  // namespace

std::string checksum(const Metadata& metadata, const NamedTensors& tensors, const char* own_key) {
  Checksum sum;
  for (auto& [key, value] : metadata) {
    if (key == own_key) continue;
    sum.add(std::string_view(key));
    sum.add(std::string_view(value));
  }
  std::vector<const NamedTensor*> sorted;
  for (const NamedTensor& t : tensors) sorted.push_back(&t);
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->name < b->name; });
  for (const NamedTensor* t : sorted) sum.add(*t);
  return sum.text();
}

}  // namespace deft::io
