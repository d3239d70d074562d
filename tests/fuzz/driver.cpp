// Runs a fuzz target without libFuzzer: once on every seed, then on mutants of them, the same ones every time.
// usage: TARGET [-runs=N] [-seed=N] FILE_OR_FOLDER...
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Random = std::mt19937_64;

void run(const std::string& s) { LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(s.data()), s.size()); }

// Numbers that sizes go wrong with.
constexpr uint64_t kEdges[] = {0,
                               1,
                               2,
                               7,
                               8,
                               63,
                               64,
                               65,
                               127,
                               128,
                               255,
                               256,
                               0x7fff,
                               0xffff,
                               0x7fffffff,
                               0xffffffff,
                               uint64_t{1} << 48,
                               INT64_MAX,
                               UINT64_MAX};

void mutate(std::string& s, const std::vector<std::string>& seeds, Random& random) {
  auto below = [&](uint64_t n) { return static_cast<size_t>(n ? random() % n : 0); };
  size_t at = below(s.size());
  switch (random() % 9) {
    case 0:
      if (!s.empty()) s[at] = static_cast<char>(s[at] ^ 1 << below(8));
      break;
    case 1:
      if (!s.empty()) s[at] = static_cast<char>(random());
      break;
    case 2:
      s.insert(at, 1 + below(4), static_cast<char>(random()));
      break;
    case 3:
      s.erase(at, 1 + below(8));
      break;
    case 4:
      s.resize(at);
      break;
    case 5: {  // a number of 1 to 8 bytes
      uint64_t value = kEdges[below(std::size(kEdges))] + below(3) - 1;
      size_t width = size_t{1} << below(4);
      if (at + width <= s.size()) std::memcpy(s.data() + at, &value, width);
      break;
    }
    case 6: {  // a number in text
      size_t digit = s.find_first_of("0123456789", at);
      if (digit != s.npos) s.replace(digit, 1, std::to_string(kEdges[below(std::size(kEdges))]));
      break;
    }
    case 7: {  // a piece of another seed
      const std::string& other = seeds[below(seeds.size())];
      size_t from = below(other.size());
      s.insert(at, other.substr(from, 1 + below(32)));
      break;
    }
    default: {  // a piece of itself
      size_t from = below(s.size());
      std::string piece = s.substr(from, 1 + below(32));
      s.replace(at, std::min(piece.size(), s.size() - at), piece);
    }
  }
}

std::vector<std::string> read_seeds(const std::vector<std::filesystem::path>& paths) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const fs::path& p : paths) {
    if (!fs::is_directory(p)) files.push_back(p);
    if (!fs::is_directory(p)) continue;
    for (const auto& entry : fs::directory_iterator(p)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& f : files) {
    std::ifstream in(f, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 0, seed = 1;
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg.starts_with("-runs="))
      runs = std::stoull(arg.substr(6));
    else if (arg.starts_with("-seed="))
      seed = std::stoull(arg.substr(6));
    else
      paths.emplace_back(arg);
  }
  std::vector<std::string> seeds = read_seeds(paths);
  for (const std::string& s : seeds) run(s);
  Random random(seed);
  if (seeds.empty()) seeds.emplace_back();
  for (uint64_t i = 0; i < runs; ++i) {
    std::string s = seeds[random() % seeds.size()];
    for (uint64_t n = 1 + random() % 6; n > 0; --n) mutate(s, seeds, random);
    if (s.size() < 1 << 16) run(s);
  }
  std::printf("%zu seeds, %llu mutants: no failure\n", seeds.size(), static_cast<unsigned long long>(runs));
}
