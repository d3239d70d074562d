#include "kernels/cpu/elementwise_chain.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/strided.h"
#include "runtime/parallel.h"

namespace deft::cpu {

namespace {

constexpr int64_t kChunk = 512;

// One lane's chunks.
class Lane {
 public:
  explicit Lane(const ChainCall& call) : c_(call) {}

  void run(int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t n = std::min(kChunk, end - at);
      for (int s = 0; s < c_.steps; ++s) step(s, at, n);
    }
  }

 private:
  static const char* at(const void* p, int64_t elements, DType t) {
    return static_cast<const char*>(p) + elements * static_cast<int64_t>(size_of(t));
  }

  // Values [first, first + n) of an input, as they are stored.
  const void* input(int i, int64_t first, int64_t n) {
    const ChainInput& in = c_.in[i];
    if (in.period == 0) return at(in.data, first, in.dtype);
    if (in.period == 1 && numbers_ready_ >> i & 1) return inputs_[i];
    const int64_t size = static_cast<int64_t>(size_of(in.dtype));
    const int64_t wanted = in.period == 1 ? kChunk : n;
    for (int64_t done = 0; done < wanted;) {
      const int64_t from = (first + done) % in.period, run = std::min(in.period - from, wanted - done);
      std::memcpy(inputs_[i] + done * size, at(in.data, from, in.dtype), static_cast<size_t>(run * size));
      done += run;
    }
    if (in.period == 1) numbers_ready_ |= 1u << i;
    return inputs_[i];
  }

  void step(int s, int64_t first, int64_t n) {
    const ChainStep& x = c_.step[s];
    const auto count = static_cast<size_t>(n);
    const void* in[kMaxInputs];
    for (int i = 0; i < x.inputs; ++i) {
      const int source = x.in[i];
      const DType have = source < kChainInputs ? c_.in[source].dtype : c_.step[source - kChainInputs].stored;
      in[i] = source < kChainInputs ? input(source, first, n) : steps_[source - kChainInputs];
      if (have == x.compute) continue;
      convert(in[i], have, converted_[i], x.compute, count);
      in[i] = converted_[i];
    }
    const bool last = s + 1 == c_.steps;
    void* out = last ? const_cast<char*>(at(c_.out, first, x.stored)) : steps_[s];
    if (x.result == x.stored) return x.fn(in, out, count, x.params);
    x.fn(in, wide_, count, x.params);
    convert(wide_, x.result, out, x.stored, count);
  }

  const ChainCall& c_;
  unsigned numbers_ready_ = 0;
  alignas(64) char inputs_[kChainInputs][kChunk * 8];
  alignas(64) char steps_[kChainSteps][kChunk * 8];
  alignas(64) char converted_[kMaxInputs][kChunk * 8];
  alignas(64) char wide_[kChunk * 8];
};

}  // namespace

void elementwise_chain(const ChainCall& call) {
  // Lanes end where chunks end: a chunk is computed the same way for any number of lanes.
  const int64_t chunks = (call.count + kChunk - 1) / kChunk;
  parallel_for(0, chunks, kElementGrain / kChunk,
               [&](int64_t begin, int64_t end) { Lane(call).run(begin * kChunk, std::min(call.count, end * kChunk)); });
}

}  // namespace deft::cpu
