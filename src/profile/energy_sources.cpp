// Where joules are counted: RAPL in Linux's powercap files, NVML in NVIDIA's driver.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "profile/energy.h"

namespace deft::profile {

namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return {};
  return line;
}

std::optional<double> read_microjoules(const fs::path& path) {
  const std::optional<std::string> text = first_line(path);
  if (!text) return {};
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end == text->data()) return {};
  return static_cast<double>(value) * 1e-6;
}

class RaplPackage final : public EnergySource {
 public:
  RaplPackage(fs::path folder, const std::string& package) : folder_(std::move(folder)), name_("RAPL " + package) {
    range_ = read_microjoules(folder_ / "max_energy_range_uj").value_or(0);
  }
  std::string name() const override { return name_; }
  bool is_counter() const override { return true; }
  double range() const override { return range_; }
  std::optional<double> read() override { return read_microjoules(folder_ / "energy_uj"); }

 private:
  fs::path folder_;
  std::string name_;
  double range_;
};

std::vector<fs::path> package_folders(const std::string& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& e : fs::directory_iterator(folder, error)) {
    // "intel-rapl:0" is there on AMD too; "intel-rapl-mmio:0" is the same counter again. Other names are parts of a
    // package ("core", "dram") or have packages as a part ("psys").
    if (e.path().filename().string().starts_with("intel-rapl:") &&
        first_line(e.path() / "name").value_or("").starts_with("package"))
      found.push_back(e.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// --- NVML ------------------------------------------------------------------------------------------------------------

class NvmlGpu final : public EnergySource {
 public:
  NvmlGpu(const NvmlApi& api, void* device, const std::string& id, bool counts)
      : api_(api), device_(device), name_("NVML GPU " + id), counts_(counts) {}
  std::string name() const override { return counts_ ? name_ : name_ + " power"; }
  bool is_counter() const override { return counts_; }
  std::optional<double> read() override {
    unsigned long long millijoules = 0;
    unsigned milliwatts = 0;
    const int result = counts_ ? api_.energy(device_, &millijoules) : api_.power(device_, &milliwatts);
    if (result != 0) return {};
    return (counts_ ? static_cast<double>(millijoules) : milliwatts) * 1e-3;
  }

 private:
  NvmlApi api_;
  void* device_;
  std::string name_;
  bool counts_;
};

template <class F>
F entry(void* library, const char* name) {
  return reinterpret_cast<F>(dlsym(library, name));
}

}  // namespace

EnergySources rapl_sources(const std::string& folder) {
  EnergySources out;
  for (const fs::path& path : package_folders(folder)) {
    auto package = std::make_unique<RaplPackage>(path, *first_line(path / "name"));
    errno = 0;
    if (!package->read()) {
      const int error = errno;
      return {{},
              fmt::format("{} cannot be read{}{}", (path / "energy_uj").string(), error ? ": " : "",
                          error ? std::strerror(error) : "")};
    }
    out.list.push_back(std::move(package));
  }
  if (out.list.empty()) out.missing = "no RAPL counter in " + folder;
  return out;
}

std::optional<NvmlApi> load_nvml() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // stays: counters are read to the end
  if (!library) return {};
  using Init = int (*)();
  using ByIndex = int (*)(unsigned, void**);
  using ByUuid = int (*)(const char*, void**);
  using Energy = int (*)(void*, unsigned long long*);
  using PowerUse = int (*)(void*, unsigned*);
  const auto init = entry<Init>(library, "nvmlInit_v2");
  const auto by_index = entry<ByIndex>(library, "nvmlDeviceGetHandleByIndex_v2");
  const auto by_uuid = entry<ByUuid>(library, "nvmlDeviceGetHandleByUUID");
  const auto energy = entry<Energy>(library, "nvmlDeviceGetTotalEnergyConsumption");
  const auto power = entry<PowerUse>(library, "nvmlDeviceGetPowerUsage");
  if (!init || !by_index || !by_uuid || !energy || !power || init() != 0) return {};
  const auto find = [=](const std::string& id, void** device) {
    unsigned index = 0;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), index);
    const bool number = error == std::errc() && end == id.data() + id.size();
    return number ? by_index(index, device) : by_uuid(id.c_str(), device);
  };
  return NvmlApi{find, energy, power};
}

std::string nvml_id(int index, const char* visible) {
  if (!visible) return std::to_string(index);
  std::string rest = visible;
  for (int i = 0; i < index && !rest.empty(); ++i)
    rest = rest.find(',') == rest.npos ? "" : rest.substr(rest.find(',') + 1);
  return rest.substr(0, rest.find(','));
}

EnergySources nvml_sources(const std::optional<NvmlApi>& api, const std::string& id) {
  EnergySources out;
  if (!api) {
    out.missing = "no NVML";
    return out;
  }
  void* device = nullptr;
  unsigned long long millijoules = 0;
  unsigned milliwatts = 0;
  if (api->find(id, &device) != 0)
    out.missing = fmt::format("NVML knows no GPU \"{}\"", id);
  else if (api->energy(device, &millijoules) == 0)
    out.list.push_back(std::make_unique<NvmlGpu>(*api, device, id, true));
  else if (api->power(device, &milliwatts) == 0)
    out.list.push_back(std::make_unique<NvmlGpu>(*api, device, id, false));
  else
    out.missing = fmt::format("GPU {} counts no energy and tells no power", id);
  return out;
}

EnergySources energy_sources(Device device) {
  EnergySources out = rapl_sources();
  if (device.is_cpu()) return out;
  EnergySources gpu = nvml_sources(load_nvml(), nvml_id(device.index, std::getenv("CUDA_VISIBLE_DEVICES")));
  for (auto& source : gpu.list) out.list.push_back(std::move(source));
  if (!gpu.missing.empty()) out.missing += (out.missing.empty() ? "" : " and ") + gpu.missing;
  return out;
}

}  // namespace deft::profile
