#include "kernels/cpu/elementwise/elementwise_chain.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/copy/strided.h"
#include "runtime/parallel.h"

namespace deft::cpu {

namespace {

constexpr int64_t kChunk = 512;

// The chunks of one thread.
class ChunkRunner {
 public:
  ChunkRunner(const ChainCall& call, bool stream) : c_(call), stream_(stream) {}

  void run(int64_t begin, int64_t end) {
    if (c_.tile > 0 && end - begin >= c_.tile) begin = run_links(begin, end);
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t n = std::min(kChunk, end - at);
      for (int s = 0; s < c_.steps; ++s) step(s, at, n);
      if (stream_) write(at, n);
    }
    if (stream_) end_stream();
  }

 private:
  // Runs all whole tiles; returns where the rest begins.
  int64_t run_links(int64_t begin, int64_t end) {
    float* slots[kChainInputs + kChainSteps];
    for (int i = 0; i < c_.inputs; ++i) {
      const void* values = c_.in[i].period == 0 ? c_.in[i].data : number(i, c_.tile, DType::f32);
      slots[i] = static_cast<float*>(const_cast<void*>(values));  // only read
    }
    for (int s = 0; s < c_.steps; ++s) slots[kChainInputs + s] = reinterpret_cast<float*>(steps_[s]);
    const int64_t rest = begin + (end - begin) / c_.tile * c_.tile;
    if (stream_) {
      stream_links(slots, begin, rest);
    } else {
      slots[kChainInputs + c_.steps - 1] = static_cast<float*>(c_.out);
      c_.run_tiles(c_.link, slots, begin, rest);
    }
    return rest;
  }
  // Chunk by chunk, each starting at its own first element.
  void stream_links(float* const* slots, int64_t begin, int64_t end) {
    float* here[kChainInputs + kChainSteps];
    std::copy_n(slots, kChainInputs + c_.steps, here);
    const int64_t chunk = kChunk / c_.tile * c_.tile;
    for (int64_t first = begin; first < end; first += chunk) {
      const int64_t n = std::min(chunk, end - first);
      for (int i = 0; i < c_.inputs; ++i) {
        if (c_.in[i].period != 0) continue;
        here[i] = slots[i] + first;
        prefetch_range(reinterpret_cast<const char*>(here[i]) + kStreamAhead, n * 4);
      }
      c_.run_tiles(c_.link, here, 0, n);
      write(first, n);
    }
  }
  // The chunk that the last step has made.
  void write(int64_t first, int64_t n) const {
    const DType t = c_.step[c_.steps - 1].stored;
    stream_copy(const_cast<char*>(at(c_.out, first, t)), steps_[c_.steps - 1], static_cast<size_t>(n) * size_of(t));
  }

  static const char* at(const void* p, int64_t elements, DType t) {
    return static_cast<const char*>(p) + elements * static_cast<int64_t>(size_of(t));
  }

  // Values [first, first + n) of an input in type `to`; `room` is for one that is not kept.
  const void* input(int i, int64_t first, int64_t n, DType to, char* room) {
    const ChainInput& in = c_.in[i];
    if (in.period == 1) return number(i, n, to);
    if (stream_ && in.period == 0 && in.row == 0)
      prefetch_range(at(in.data, first, in.dtype) + kStreamAhead, n * static_cast<int64_t>(size_of(in.dtype)));
    const void* found = in.period != 0 ? repeated(i, first, n)
                        : in.row != 0  ? rows(i, first, n)
                                       : at(in.data, first, in.dtype);
    return converted(found, in.dtype, to, n, room);
  }
  const void* repeated(int i, int64_t first, int64_t n) {
    const ChainInput& in = c_.in[i];
    const int64_t size = static_cast<int64_t>(size_of(in.dtype));
    for (int64_t done = 0; done < n;) {
      const int64_t from = (first + done) % in.period, run = std::min(in.period - from, n - done);
      std::memcpy(inputs_[i] + done * size, at(in.data, from, in.dtype), static_cast<size_t>(run * size));
      done += run;
    }
    return inputs_[i];
  }
  const void* rows(int i, int64_t first, int64_t n) {
    const ChainInput& in = c_.in[i];
    const int64_t size = static_cast<int64_t>(size_of(in.dtype));
    for (int64_t done = 0; done < n;) {
      const int64_t row = (first + done) / in.row, from = (first + done) % in.row,
                    run = std::min(in.row - from, n - done);
      const char* source = at(in.data, row * in.distance + from, in.dtype);
      if (run == n) return source;
      std::memcpy(inputs_[i] + done * size, source, static_cast<size_t>(run * size));
      done += run;
    }
    return inputs_[i];
  }
  // No later chunk of a thread is longer than its first: a buffer filled for the first serves all.
  const void* number(int i, int64_t n, DType to) {
    if (numbers_ready_ >> i & 1 && number_types_[i] == to) return inputs_[i];
    numbers_ready_ |= 1u << i;
    number_types_[i] = to;
    alignas(8) char value[8];
    convert(c_.in[i].data, c_.in[i].dtype, value, to, 1);
    switch (size_of(to)) {
      case 1:
        return fill<uint8_t>(value, i, n);
      case 2:
        return fill<uint16_t>(value, i, n);
      case 4:
        return fill<uint32_t>(value, i, n);
      default:
        return fill<uint64_t>(value, i, n);
    }
  }
  template <class T>
  const void* fill(const char* value, int i, int64_t n) {
    T x;
    std::memcpy(&x, value, sizeof x);
    T* to = reinterpret_cast<T*>(inputs_[i]);
    std::fill_n(to, n, x);
    return to;
  }
  static const void* converted(const void* values, DType from, DType to, int64_t n, char* room) {
    if (from == to) return values;
    convert(values, from, room, to, static_cast<size_t>(n));
    return room;
  }

  void step(int s, int64_t first, int64_t n) {
    const ChainStep& x = c_.step[s];
    const auto count = static_cast<size_t>(n);
    const void* in[kMaxInputs];
    for (int i = 0; i < x.inputs; ++i) {
      const int source = x.in[i], before = source - kChainInputs;
      in[i] = before < 0 ? input(source, first, n, x.compute, converted_[i])
                         : converted(steps_[before], c_.step[before].stored, x.compute, n, converted_[i]);
    }
    const bool last = s + 1 == c_.steps;
    void* out = last && !stream_ ? const_cast<char*>(at(c_.out, first, x.stored)) : steps_[s];
    if (x.result == x.stored) return x.fn(in, out, count, x.params);
    x.fn(in, wide_, count, x.params);
    convert(wide_, x.result, out, x.stored, count);
  }

  const ChainCall& c_;
  const bool stream_;  // the result goes past the caches
  unsigned numbers_ready_ = 0;
  DType number_types_[kChainInputs];
  alignas(64) char inputs_[kChainInputs][kChunk * 8];
  alignas(64) char steps_[kChainSteps][kChunk * 8];
  alignas(64) char converted_[kMaxInputs][kChunk * 8];
  alignas(64) char wide_[kChunk * 8];
};

}  // namespace

void elementwise_chain(const ChainCall& call) {
  const auto reads_out = [&](const ChainInput& in) { return in.data == call.out; };
  const bool stream = streams(call.count * static_cast<int64_t>(size_of(call.step[call.steps - 1].stored))) &&
                      std::none_of(call.in, call.in + call.inputs, reads_out);
  // Threads split at chunks: a chunk is computed the same way for any number of threads.
  const int64_t chunks = (call.count + kChunk - 1) / kChunk;
  parallel_for(0, chunks, kElementGrain / kChunk, [&](int64_t begin, int64_t end) {
    ChunkRunner(call, stream).run(begin * kChunk, std::min(call.count, end * kChunk));
  });
}

}  // namespace deft::cpu
