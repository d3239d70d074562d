// Any bytes as a plan file; and, since a checksum guards those, as changes to the graph of a good plan. What is
// accepted must run, within its buffers.
#include <random>
#include <string>

#include "core/grad_mode.h"
#include "fuzz.h"
#include "graph/memory_plan.h"
#include "graph/verify_foreign.h"
#include "io/plan_file.h"

namespace deft {
namespace {

struct Base {
  std::string text;
  std::vector<Tensor> constants;
};

// Lookup, product, norm, chains, a convolution, a reduction and a write, as compile() leaves them.
const Base& base() {
  static const Base made = [] {
    NoGradGuard no_grad;
    Tensor table = ones({8, 4}), w = ones({4, 4}), kernel = ones({2, 1, 3, 3});
    Compiled f = compile([&](const std::vector<Tensor>& x) {
      Tensor h = embedding(x[0], table);
      h = (linear(h, w) * 2 + x[1]).tanh().abs();
      h = layer_norm(h, {4});
      Tensor pictures = max_pool2d(conv2d(x[1].expand({1, 1, 4, 4}), kernel), {2});
      Tensor sums = h.sum({0});
      sums.add_(1);
      return std::vector<Tensor>{softmax(h, -1), sums, pictures};
    });
    f.run({zeros({4}, {DType::i64}), zeros({4, 4})});
    const graph::Graph& g = *f.graphs().at(0);
    Base b{graph::to_text(g), {}};
    for (const graph::Buffer& buffer : g.buffers)
      if (buffer.kind == graph::BufferKind::constant) b.constants.push_back(buffer.constant);
    return b;
  }();
  return made;
}

// The bytes choose one to three changes: mostly other numbers, since a line that cannot be read tells little.
std::string edited(const uint8_t* data, size_t size) {
  constexpr const char* kNumbers[] = {"0", "1",  "2",  "3",   "4",          "5",
                                      "8", "-1", "16", "255", "4294967295", "4611686018427387904"};
  uint64_t seed = 0xcbf29ce484222325;
  for (size_t i = 0; i < size; ++i) seed = (seed ^ data[i]) * 0x100000001b3;
  std::mt19937_64 random(seed);
  std::string text = base().text;
  for (uint64_t n = 1 + random() % 3; n > 0; --n) {
    size_t at = text.find_first_of("0123456789", random() % text.size());
    if (at == text.npos) continue;
    size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
    switch (random() % 8) {
      case 0:
        text[at] = static_cast<char>(' ' + random() % 95);
        break;
      case 1: {  // a line twice, or not at all
        size_t begin = text.rfind('\n', at) + 1, after = text.find('\n', at) + 1;
        std::string line = text.substr(begin, after - begin);
        random() % 2 ? text.insert(begin, line) : text.erase(begin, line.size());
        break;
      }
      default:
        text.replace(at, end - at,
                     random() % 4 ? kNumbers[random() % std::size(kNumbers)] : std::to_string(random() % 40));
    }
  }
  return text;
}

void run_edited(const uint8_t* data, size_t size) {
  NoGradGuard no_grad;
  std::string text = edited(data, size);
  try {
    graph::Graph g = graph::parse_foreign(text, base().constants, 1000);
    for (const graph::Buffer& b : g.buffers)
      if (b.bytes > 1 << 20) return;
    std::vector<Tensor> inputs;
    for (graph::ValueId id : g.inputs) {
      const Meta& m = g.value(id).meta;
      if (m.numel > 1 << 16) return;
      inputs.push_back(zeros(m.sizes, {m.dtype}));
    }
    std::vector<graph::Graph> graphs;
    graphs.push_back(std::move(g));
    Compiled::of_graphs(std::move(graphs)).run(inputs);
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace deft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  deft::run_edited(data, size);
  return deft::io::fuzz(data, size, [](auto bytes, const auto& options) {
    deft::io::parse_plan(bytes, "input", options);
    return deft::NamedTensors();
  });
}
