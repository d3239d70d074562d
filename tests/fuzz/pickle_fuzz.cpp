// Any bytes as the data.pkl of a PyTorch checkpoint, or as the whole checkpoint.
#include "io/pickle.h"

#include "fuzz.h"
#include "io/crc32.h"
#include "io/pt.h"

namespace {

template <class... T>
std::string little(T... values) {
  std::string out;
  (out.append(reinterpret_cast<const char*>(&values), sizeof(T)), ...);
  return out;
}

// An archive around the pickle, with a storage "0" of 24 bytes: checksums would hide the reader from a fuzzer.
std::string archive_around(std::span<const std::byte> pickle) {
  std::string data[] = {{reinterpret_cast<const char*>(pickle.data()), pickle.size()}, std::string(24, '\1'), "3\n"};
  const char* names[] = {"x/data.pkl", "x/data/0", "x/version"};
  std::string out, directory;
  for (int i = 0; i < 3; ++i) {
    std::string name = names[i];
    std::string fields =
        little(uint16_t{0}, uint16_t{0}, uint32_t{0}, deft::io::crc32(0, std::as_bytes(std::span(data[i]))),
               static_cast<uint32_t>(data[i].size()), static_cast<uint32_t>(data[i].size()),
               static_cast<uint16_t>(name.size()), uint16_t{0});
    directory += little(uint32_t{0x02014b50}, uint16_t{20}, uint16_t{20}) + fields +
                 little(uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0}, static_cast<uint32_t>(out.size())) + name;
    out += little(uint32_t{0x04034b50}, uint16_t{20}) + fields + name + data[i];
  }
  auto at = static_cast<uint32_t>(out.size());
  return out + directory +
         little(uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, uint16_t{3}, uint16_t{3},
                static_cast<uint32_t>(directory.size()), at, uint16_t{0});
}

void walk(const deft::io::PtValue& v, int& budget) {
  using Kind = deft::io::PtValue::Kind;
  if (--budget < 0) return;
  if (v.is(Kind::tensor)) (void)v.tensor();
  if (v.is(Kind::other) || v.is(Kind::string)) {
    try {
      (void)v.text();
    } catch (const deft::ValueError&) {
    }
  }
  for (size_t i = 0; i < v.size() && budget > 0; ++i) {
    if (v.is(Kind::dict)) walk(v.key(i), budget);
    walk(v[i], budget);
  }
}

deft::NamedTensors load(std::span<const std::byte> bytes, const deft::io::LoadOptions& options) {
  deft::io::PtFile file = deft::io::parse_pt(bytes, "input", options);
  int budget = 1000;
  walk(file.root(), budget);
  try {
    return file.state_dict();
  } catch (const deft::ValueError&) {
    return {};
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size && data[0] == 'P') return deft::io::fuzz(data, size, load);
  std::string archive = archive_around(std::as_bytes(std::span(data, size)));
  return deft::io::fuzz(reinterpret_cast<const uint8_t*>(archive.data()), archive.size(), load);
}
