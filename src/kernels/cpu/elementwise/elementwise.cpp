#include "kernels/cpu/elementwise/elementwise.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/copy/strided.h"
#include "kernels/cpu/elementwise/elementwise_transposed.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

// Elements per chunk: of results written in place, and of buffered results, through the caches and past them. Whole
// steps of three vectors (chunk-inl.h) are best for the latter; past the caches few, which request few lines at once.
constexpr int64_t kChunk = 512, kConvertedChunk = 768, kConvertedStreamChunk = 384;
constexpr int64_t kLongestChunk = kConvertedChunk;
// Runs at least this long are computed in place; shorter ones are gathered so that fn always gets long chunks.
constexpr int64_t kLongRun = 64;

template <class T>
void gather(const void* src, int64_t stride, void* dst, int64_t n) {
  const T* s = static_cast<const T*>(src);
  T* d = static_cast<T*>(dst);
  if (stride == 0) {
    fill_bits(d, 1, n, load_bits(s));
  } else {
    copy_bits(s, stride, d, 1, n);
  }
}
template <class T>
void scatter(const void* src, void* dst, int64_t stride, int64_t n) {
  copy_bits(static_cast<const T*>(src), 1, static_cast<T*>(dst), stride, n);
}
using GatherFn = void (*)(const void*, int64_t, void*, int64_t);
using ScatterFn = void (*)(const void*, void*, int64_t, int64_t);

struct InputPlan {
  const char* base;
  size_t size;     // of a stored element
  int64_t stride;  // inner
  GatherFn gather;
  bool direct;      // fn reads the stored elements
  bool contiguous;  // over a chunk, maybe of another dtype
  bool constant;    // over a chunk
  DType dtype;
};

struct Plan {
  explicit Plan(const ElementwiseCall& c) : call(c) {}
  const ElementwiseCall& call;
  Iteration it;         // operand 0 is the output
  bool cut;             // chunks end where runs end
  bool stream = false;  // the result is written past the caches
  bool buffered = false;
  int64_t chunk = kChunk;  // if buffered
  InputPlan in[kMaxInputs];
  char* out;
  size_t out_size;
  bool out_direct, out_contiguous;
  ScatterFn scatter;
};

struct alignas(64) Buffers {
  char in[kMaxInputs][kLongestChunk * 8];
  char raw[kLongestChunk * 8];
  char out[kLongestChunk * 8];
};

// In the order of a multi-dim iteration: row-major without gaps.
bool packed(const Iteration& it, int operand) {
  int64_t expect = 1;
  for (int d = it.ndim - 1; d >= 0; --d) {
    if (it.strides[operand][d] != expect) return false;
    expect *= it.sizes[d];
  }
  return true;
}
bool same_element(const Iteration& it, int operand) {
  for (int d = 0; d < it.ndim; ++d) {
    if (it.strides[operand][d] != 0) return false;
  }
  return true;
}

void plan_input(Plan& p, int i) {
  const Operand& op = p.call.in[i];
  InputPlan& in = p.in[i];
  in.base = static_cast<const char*>(op.data);
  in.dtype = op.dtype;
  in.size = size_of(op.dtype);
  in.stride = p.it.inner_stride(i + 1);
  in.contiguous = (p.cut && in.stride == 1) || packed(p.it, i + 1);
  in.constant = (p.cut && in.stride == 0) || same_element(p.it, i + 1);
  in.direct = in.contiguous && op.dtype == p.call.compute;
  in.gather = dispatch_bits(op.dtype, []<class T>() -> GatherFn { return gather<T>; });
  if (!in.direct) p.buffered = true;
}

// Cache lines that are read anyway are in the caches.
bool is_in_place(const ElementwiseCall& c) {
  for (int i = 0; i < c.inputs; ++i)
    if (c.in[i].data == c.out.data) return true;
  return false;
}

void plan_output(Plan& p) {
  const Operand& op = p.call.out;
  p.out = static_cast<char*>(op.data);
  p.out_size = size_of(op.dtype);
  p.out_contiguous = (p.cut && p.it.inner_stride(0) == 1) || packed(p.it, 0);
  p.stream = p.out_contiguous && streams(p.it.total * static_cast<int64_t>(p.out_size)) && !is_in_place(p.call);
  if (op.dtype != p.call.result) p.chunk = p.stream ? kConvertedStreamChunk : kConvertedChunk;
  p.out_direct = p.out_contiguous && op.dtype == p.call.result && !p.stream;
  p.scatter = dispatch_bits(op.dtype, []<class T>() -> ScatterFn { return scatter<T>; });
  if (!p.out_direct) p.buffered = true;
}

// Elements of one chunk of input i, gathered over as many runs as it spans.
void gather_chunk(const InputPlan& in, Walker at, int operand, char* dst, int64_t m) {
  while (m > 0) {
    int64_t n = std::min(m, at.left_in_run());
    in.gather(in.base + at.offset(operand) * static_cast<int64_t>(in.size), in.stride, dst, n);
    at.advance(n);
    dst += static_cast<size_t>(n) * in.size;
    m -= n;
  }
}
void scatter_chunk(const Plan& p, Walker at, const char* src, int64_t m) {
  while (m > 0) {
    int64_t n = std::min(m, at.left_in_run());
    p.scatter(src, p.out + at.offset(0) * static_cast<int64_t>(p.out_size), p.it.inner_stride(0), n);
    at.advance(n);
    src += static_cast<size_t>(n) * p.out_size;
    m -= n;
  }
}

struct Filled {
  const void* value = nullptr;  // the element a constant input's buffer holds
  int64_t n = 0;
};

const void* load_input(const Plan& p, int i, const Walker& at, int64_t m, Buffers& b, Filled& filled) {
  const InputPlan& in = p.in[i];
  const char* src = in.base + at.offset(i + 1) * static_cast<int64_t>(in.size);
  if (p.stream && in.contiguous) prefetch_range(src + kStreamAhead, m * static_cast<int64_t>(in.size));
  if (in.direct) return src;
  size_t n = static_cast<size_t>(m);
  if (in.constant) {
    if (filled.value == src && filled.n >= m) return b.in[i];
    in.gather(src, 0, b.raw, m);
    convert(b.raw, in.dtype, b.in[i], p.call.compute, n);
    filled = {src, m};
  } else if (in.contiguous) {
    convert(src, in.dtype, b.in[i], p.call.compute, n);
  } else if (in.dtype == p.call.compute) {
    gather_chunk(in, at, i + 1, b.in[i], m);
  } else {
    gather_chunk(in, at, i + 1, b.raw, m);
    convert(b.raw, in.dtype, b.in[i], p.call.compute, n);
  }
  return b.in[i];
}

void store_output(const Plan& p, const Walker& at, int64_t m, Buffers& b) {
  const DType to = p.call.out.dtype;
  size_t n = static_cast<size_t>(m);
  char* out = p.out + at.offset(0) * static_cast<int64_t>(p.out_size);
  if (p.stream) {
    if (to != p.call.result) convert(b.out, p.call.result, b.raw, to, n);
    stream_copy(out, to == p.call.result ? b.out : b.raw, n * p.out_size);
  } else if (p.out_contiguous) {
    convert(b.out, p.call.result, out, to, n);
  } else if (to == p.call.result) {
    scatter_chunk(p, at, b.out, m);
  } else {
    convert(b.out, p.call.result, b.raw, to, n);
    scatter_chunk(p, at, b.raw, m);
  }
}

void skip(Walker& at, int64_t m) {
  while (m > 0) {
    int64_t n = std::min(m, at.left_in_run());
    at.advance(n);
    m -= n;
  }
}

void run_range(const Plan& p, int64_t begin, int64_t end) {
  Buffers b;
  Filled filled[kMaxInputs];
  Walker at(p.it, begin);
  const void* in[kMaxInputs];
  for (int64_t left = end - begin; left > 0;) {
    int64_t m = p.buffered ? std::min(left, p.chunk) : left;
    if (p.cut) m = std::min(m, at.left_in_run());
    for (int i = 0; i < p.call.inputs; ++i) in[i] = load_input(p, i, at, m, b, filled[i]);
    void* out = p.out_direct ? p.out + at.offset(0) * static_cast<int64_t>(p.out_size) : b.out;
    p.call.fn(in, out, static_cast<size_t>(m), p.call.params);
    if (!p.out_direct) store_output(p, at, m, b);
    if (p.cut) {
      at.advance(m);
    } else {
      skip(at, m);
    }
    left -= m;
  }
  if (p.stream) end_stream();
}

// The common case, decided without copying anything: all row-major contiguous and of the compute type.
bool all_contiguous(const ElementwiseCall& c, int64_t& total) {
  if (c.out.dtype != c.result) return false;
  for (int i = 0; i < c.inputs; ++i) {
    if (c.in[i].dtype != c.compute) return false;
  }
  int64_t expect = 1;
  for (int d = c.ndim - 1; d >= 0; --d) {
    if (c.sizes[d] != 1) {
      if (c.out.strides[d] != expect) return false;
      for (int i = 0; i < c.inputs; ++i) {
        if (c.in[i].strides[d] != expect) return false;
      }
    }
    expect *= c.sizes[d];
  }
  total = expect;
  return true;
}

// Blocks in L1, streamed out while the next is computed; inputs are prefetched some blocks ahead.
void run_streamed(const LinearCall& c, int64_t begin, int64_t end) {
  alignas(64) char block[kStreamBlock];
  const auto in_size = static_cast<int64_t>(c.in_size), out_size = static_cast<int64_t>(c.out_size);
  const int64_t step = kStreamBlock / std::max(in_size, out_size);
  const void* in[kMaxInputs];
  for (int64_t at = begin; at < end; at += step) {
    const int64_t n = std::min(step, end - at);
    for (int i = 0; i < c.inputs; ++i) {
      in[i] = static_cast<const char*>(c.in[i]) + at * in_size;
      prefetch_range(static_cast<const char*>(in[i]) + kStreamAhead, n * in_size);
    }
    c.fn(in, block, static_cast<size_t>(n), c.params);
    stream_copy(static_cast<char*>(c.out) + at * out_size, block, static_cast<size_t>(n * out_size));
  }
  end_stream();
}

bool is_in_place(const LinearCall& c) { return std::find(c.in, c.in + c.inputs, c.out) != c.in + c.inputs; }

void run_strided(const ElementwiseCall& c) {
  Plan p(c);
  p.it.ndim = c.ndim;
  p.it.operands = c.inputs + 1;
  std::copy_n(c.sizes, c.ndim, p.it.sizes);
  std::copy_n(c.out.strides, c.ndim, p.it.strides[0]);
  for (int i = 0; i < c.inputs; ++i) std::copy_n(c.in[i].strides, c.ndim, p.it.strides[i + 1]);
  normalize(p.it);
  if (p.it.total == 0 || run_transposed(c, p.it)) return;
  p.cut = p.it.inner() >= kLongRun || p.it.ndim == 1;
  for (int i = 0; i < c.inputs; ++i) plan_input(p, i);
  plan_output(p);
  parallel_for(0, p.it.total, kElementGrain, [&](int64_t begin, int64_t end) { run_range(p, begin, end); });
}

}  // namespace

void elementwise(const ElementwiseCall& call) {
  DEFT_DEBUG_ASSERT(call.ndim <= kMaxDims && call.inputs <= kMaxInputs);
  int64_t total = 0;
  if (!all_contiguous(call, total)) return run_strided(call);
  LinearCall linear{.fn = call.fn,
                    .inputs = call.inputs,
                    .in = {},
                    .out = call.out.data,
                    .in_size = size_of(call.compute),
                    .out_size = size_of(call.result),
                    .params = call.params};
  for (int i = 0; i < call.inputs; ++i) linear.in[i] = call.in[i].data;
  elementwise_linear(linear, total);
}

void elementwise_linear(const LinearCall& c, int64_t total) {
  if (streams(total * static_cast<int64_t>(c.out_size)) && !is_in_place(c)) [[unlikely]]
    return parallel_for(0, total, kElementGrain, [&](int64_t begin, int64_t end) { run_streamed(c, begin, end); });
  parallel_for(0, total, kElementGrain, [&](int64_t begin, int64_t end) {
    const void* in[kMaxInputs];
    for (int i = 0; i < c.inputs; ++i)
      in[i] = static_cast<const char*>(c.in[i]) + static_cast<size_t>(begin) * c.in_size;
    c.fn(in, static_cast<char*>(c.out) + static_cast<size_t>(begin) * c.out_size, static_cast<size_t>(end - begin),
         c.params);
  });
}

}  // namespace deft::cpu
