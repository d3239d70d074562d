#include "profile/peaks.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/function_ref.h"
#include "runtime/cpu_isa.h"
#include "runtime/numerics.h"
#include "runtime/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deft::profile {

namespace {

// How much is spent on one measurement.
struct Effort {
  double warm_up_ns;
  int batches;
  double stream_warm_up_ns;
  int stream_batches;
  // Buffers in pieces of 4 KB: 64 MB and a little, since regions a power of two apart would share cache sets. What is
  // only read takes 256 MB: a third cache level of 32 MB still has part of 64 MB, and a core seems to read 44 GB/s
  // instead of 28.
  int64_t write_pieces = 16391, read_pieces = 65537;
};
Effort effort_of(Care care) {
  if (care == Care::none) return {5e6, 1, 5e6, 1, 257, 257};
  if (care == Care::brief) return {5e6, 5, 0, 3};
  return {5e6, 20, 5e6, 10};
}

// Runs `rounds` rounds of independent instructions; operands from 1024 bytes of data.
struct ArithmeticLoop {
  const char* instruction;
  double operations;  // per round
  void (*run)(int64_t rounds, const void* data);
};

#if defined(__aarch64__)

// 24 accumulators: enough for four pipes with a latency of four cycles and some to spare.
#define DEFT_PEAK_LOOP(name, text)                                                                                \
  [[gnu::target("arch=armv8.2-a+fp16fml+dotprod+bf16+i8mm")]] void name(int64_t rounds, const void* data) {       \
    asm volatile(                                                                                                 \
        "ldp q30, q31, [%1]\n"                                                                                    \
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n movi v\\r\\().16b, #0\n.endr\n"   \
        "1:\n"                                                                                                    \
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n " text                            \
        "\n.endr\n"                                                                                               \
        "subs %0, %0, #1\nb.ne 1b\n"                                                                              \
        : "+r"(rounds)                                                                                            \
        : "r"(data)                                                                                               \
        : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", \
          "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30", "v31");                    \
  }
DEFT_PEAK_LOOP(fmla_loop, "fmla v\\r\\().4s, v30.4s, v31.4s")
DEFT_PEAK_LOOP(fmlal_loop, "fmlal v\\r\\().4s, v30.4h, v31.4h")
DEFT_PEAK_LOOP(bfmmla_loop, "bfmmla v\\r\\().4s, v30.8h, v31.8h")
DEFT_PEAK_LOOP(smmla_loop, "smmla v\\r\\().4s, v30.16b, v31.16b")
DEFT_PEAK_LOOP(sdot_loop, "sdot v\\r\\().4s, v30.16b, v31.16b")
#undef DEFT_PEAK_LOOP

ArithmeticLoop loop_for(Arithmetic arithmetic) {
  const ArithmeticLoop fmla = {"FMLA 4s", 24 * 8, fmla_loop};
  switch (arithmetic) {
    case Arithmetic::f32:
      return fmla;
    case Arithmetic::f16:
      return cpu_has("asimdfhm") ? ArithmeticLoop{"FMLAL 4s", 24 * 8, fmlal_loop} : fmla;
    case Arithmetic::bf16:
      return cpu_has("bf16") ? ArithmeticLoop{"BFMMLA", 24 * 32, bfmmla_loop} : fmla;
    case Arithmetic::int8:
      if (cpu_has("i8mm")) return {"SMMLA", 24 * 64, smmla_loop};
      return cpu_has("asimddp") ? ArithmeticLoop{"SDOT", 24 * 32, sdot_loop} : fmla;
  }
  return fmla;
}

#elif defined(__x86_64__)

#define DEFT_LOW_REGISTERS                                                                                          \
  "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
      "xmm12", "xmm13", "xmm14", "xmm15"
#define DEFT_HIGH_REGISTERS                                                                                            \
  "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", \
      "xmm29", "xmm30", "xmm31"

// 12 accumulators of 16 or 32 bytes: two pipes with a latency of four or five cycles.
#define DEFT_PEAK_LOOP(name, move, width, clear, text)                  \
  void name(int64_t rounds, const void* data) {                         \
    asm volatile(move " (%1), %%" width "14\n" move " 32(%1), %%" width \
                      "15\n"                                            \
                      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n " clear       \
                      "\n.endr\n"                                       \
                      "1:\n"                                            \
                      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n " text        \
                      "\n.endr\n"                                       \
                      "dec %0\njnz 1b\n"                                \
                 : "+r"(rounds)                                         \
                 : "r"(data)                                            \
                 : DEFT_LOW_REGISTERS);                                 \
  }
#define DEFT_CLEAR_YMM "vpxor %%ymm\\r, %%ymm\\r, %%ymm\\r"
DEFT_PEAK_LOOP(sse_loop, "movups", "xmm", "xorps %%xmm\\r, %%xmm\\r",
               "addps %%xmm15, %%xmm\\r\n movaps %%xmm14, %%xmm13\n mulps %%xmm14, %%xmm13")
DEFT_PEAK_LOOP(fma_loop, "vmovups", "ymm", DEFT_CLEAR_YMM, "vfmadd231ps %%ymm14, %%ymm15, %%ymm\\r")
DEFT_PEAK_LOOP(maddubs_loop, "vmovups", "ymm", DEFT_CLEAR_YMM,
               "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\n vpmaddwd %%ymm14, %%ymm13, %%ymm13\n"
               " vpaddd %%ymm13, %%ymm\\r, %%ymm\\r")
DEFT_PEAK_LOOP(vnni_ymm_loop, "vmovups", "ymm", DEFT_CLEAR_YMM, "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm\\r")
#undef DEFT_PEAK_LOOP

// 24 accumulators of 64 bytes.
#define DEFT_PEAK_LOOP(name, text)                                                     \
  [[gnu::target("avx512f")]] void name(int64_t rounds, const void* data) {             \
    asm volatile(                                                                      \
        "vmovups (%1), %%zmm30\nvmovups 64(%1), %%zmm31\n"                             \
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"       \
        " vpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n.endr\n"                                \
        "1:\n"                                                                         \
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n " text \
        "\n.endr\n"                                                                    \
        "dec %0\njnz 1b\n"                                                             \
        : "+r"(rounds)                                                                 \
        : "r"(data)                                                                    \
        : DEFT_LOW_REGISTERS, DEFT_HIGH_REGISTERS);                                    \
  }
DEFT_PEAK_LOOP(fma_zmm_loop, "vfmadd231ps %%zmm30, %%zmm31, %%zmm\\r")
DEFT_PEAK_LOOP(bf16_zmm_loop, "vdpbf16ps %%zmm30, %%zmm31, %%zmm\\r")
DEFT_PEAK_LOOP(vnni_zmm_loop, "vpdpbusd %%zmm30, %%zmm31, %%zmm\\r")
#undef DEFT_PEAK_LOOP

// Six accumulators of 1 KB: a latency of 52 cycles, one every 16.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
#define DEFT_PEAK_LOOP(name, text)                                   \
  void name(int64_t rounds, const void* data) {                      \
    TileConfig config;                                               \
    asm volatile(                                                    \
        "ldtilecfg (%2)\n"                                           \
        "tileloadd (%1,%3,1), %%tmm6\ntileloadd (%1,%3,1), %%tmm7\n" \
        ".irp r,0,1,2,3,4,5\n tilezero %%tmm\\r\n.endr\n"            \
        "1:\n"                                                       \
        ".irp r,0,1,2,3,4,5\n " text                                 \
        "\n.endr\n"                                                  \
        "dec %0\njnz 1b\ntilerelease\n"                              \
        : "+r"(rounds)                                               \
        : "r"(data), "r"(&config), "r"(int64_t{64})                  \
        : "cc", "memory");                                           \
  }
DEFT_PEAK_LOOP(amx_bf16_loop, "tdpbf16ps %%tmm7, %%tmm6, %%tmm\\r")
// TDPFP16PS, which assemblers before binutils 2.40 do not know.
DEFT_PEAK_LOOP(amx_f16_loop, ".byte 0xc4, 0xe2, 0x43, 0x5c, 0xc6 | \\r << 3")
DEFT_PEAK_LOOP(amx_int8_loop, "tdpbssd %%tmm7, %%tmm6, %%tmm\\r")
#undef DEFT_PEAK_LOOP

// The kernel wants to be asked before a process uses tiles.
bool tiles_permitted() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

ArithmeticLoop loop_for(Arithmetic arithmetic) {
  ArithmeticLoop f32 = {"ADDPS MULPS xmm", 12 * 8, sse_loop};
  if (cpu_has("avx2") && cpu_has("fma")) f32 = {"VFMADD231PS ymm", 12 * 16, fma_loop};
  if (cpu_has("avx512f")) f32 = {"VFMADD231PS zmm", 24 * 32, fma_zmm_loop};
  switch (arithmetic) {
    case Arithmetic::f32:
      return f32;
    case Arithmetic::f16:  // else widened: VFMADD...PH would keep sums in f16
      if (cpu_has("amx_fp16") && tiles_permitted()) return {"TDPFP16PS", 6 * 16384, amx_f16_loop};
      return f32;
    case Arithmetic::bf16:
      if (cpu_has("amx_bf16") && tiles_permitted()) return {"TDPBF16PS", 6 * 16384, amx_bf16_loop};
      return cpu_has("avx512_bf16") ? ArithmeticLoop{"VDPBF16PS zmm", 24 * 64, bf16_zmm_loop} : f32;
    case Arithmetic::int8:
      if (cpu_has("amx_int8") && tiles_permitted()) return {"TDPBSSD", 6 * 32768, amx_int8_loop};
      if (cpu_has("avx512_vnni")) return {"VPDPBUSD zmm", 24 * 128, vnni_zmm_loop};
      if (cpu_has("avx_vnni")) return {"VPDPBUSD ymm", 12 * 64, vnni_ymm_loop};
      return cpu_has("avx2") ? ArithmeticLoop{"VPMADDUBSW ymm", 12 * 64, maddubs_loop} : f32;
  }
  return f32;
}

#else
#error "profile/peaks.cpp: no loops for this architecture"
#endif

// Values near one in f32, ordinary ones as bf16 and f16, all kinds as bytes: data decides the power and so the clock.
std::array<uint32_t, 256> operands() {
  std::array<uint32_t, 256> data;
  uint32_t state = 1;
  for (uint32_t& word : data) {
    state = state * 1664525 + 1013904223;
    word = 0x3f003f00u ^ (state >> 8 & 0x807f807fu);
  }
  return data;
}

double thread_cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

// Works through items [begin, end).
using RangeFn = FunctionRef<void(int64_t begin, int64_t end)>;

struct Batch {
  double rate = 0;  // items per nanosecond
  double ns = 0;    // of the slowest thread
};
// Every thread by its own CPU time: preemption enters neither its time nor that of the others who wait for it. (By wall
// time, two threads on two cores that ten programs share reach a fourteenth of their f32 peak.)
Batch run_batch(RangeFn work, int64_t items, int64_t repeats) {
  std::mutex mutex;
  Batch batch;
  parallel_for(0, items, 1, [&](int64_t begin, int64_t end) {
    const double start = thread_cpu_ns();
    for (int64_t i = 0; i < repeats; ++i) work(begin, end);
    const double ns = std::max(1.0, thread_cpu_ns() - start);
    std::lock_guard lock(mutex);
    batch.rate += static_cast<double>((end - begin) * repeats) / ns;
    batch.ns = std::max(batch.ns, ns);
  });
  return batch;
}

// One batch that takes about `ns`, by the rate that is known.
Batch run_batch_of(RangeFn work, int64_t items, double rate, double ns) {
  return run_batch(work, items, std::max<int64_t>(1, std::llround(ns * rate / static_cast<double>(items))));
}

// Items per nanosecond of the fastest of batches of half a millisecond and more, after warming up.
double best_rate(RangeFn work, int64_t items, double warm_up_ns, int batches) {
  constexpr double kBatchNs = 5e5;
  constexpr int64_t kMostRepeats = 4096;  // what takes no time even then is measured by a clock that stands still
  int64_t repeats = 1;
  for (double spent = 0; spent < warm_up_ns;) {
    const Batch batch = run_batch(work, items, repeats);
    spent += batch.ns;
    if (batch.ns >= kBatchNs) continue;
    if (repeats >= kMostRepeats) break;
    repeats *= 2;
  }
  double best = 0;
  for (int i = 0; i < batches; ++i) best = std::max(best, run_batch(work, items, repeats).rate);
  return best;
}

constexpr int64_t kRounds = 2000;

// Calls `measure(work, operations of an item)`.
template <class Measure>
auto with_arithmetic(Arithmetic arithmetic, const Measure& measure) {
  ArithmeticLoop loop = loop_for(arithmetic);
  alignas(64) std::array<uint32_t, 256> data = operands();
  auto work = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) loop.run(kRounds, data.data());
  };
  return measure(RangeFn(work), loop.operations * kRounds);
}

ComputePeak measure_compute(Arithmetic arithmetic, int threads, const Effort& effort) {
  return with_arithmetic(arithmetic, [&](RangeFn work, double operations) -> ComputePeak {
    return {loop_for(arithmetic).instruction, operations * best_rate(work, threads, effort.warm_up_ns, effort.batches)};
  });
}

// A buffer on large pages where the system has them, all of it written. `skew` keeps the streams of a loop out of each
// other's cache sets.
class Stream {
 public:
  Stream(int64_t bytes, int64_t skew) : bytes_(static_cast<size_t>(bytes + skew)), skew_(skew) {
    constexpr size_t kLargePage = size_t{1} << 21;
    data_.reset(
        static_cast<char*>(std::aligned_alloc(kLargePage, (bytes_ + kLargePage - 1) / kLargePage * kLargePage)));
    if (!data_) throw std::bad_alloc();
    madvise(data_.get(), bytes_, MADV_HUGEPAGE);
    std::memset(data_.get(), 1, bytes_);
  }
  char* data() const { return data_.get() + skew_; }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  size_t bytes_;
  int64_t skew_;
  std::unique_ptr<char, Free> data_;
};

using Line = float __attribute__((vector_size(64), may_alias));

// Bytes [begin, end) of all streams: out = in[0] + in[1] + ...; without an output the sum is only made.
using StreamLoop = void (*)(const char* const* in, char* out, int64_t begin, int64_t end);

// The range is walked as several regions at once: prefetchers follow each of them, and a core reads up to half as much
// again (29 GB/s with one region, 44 with four on a Neoverse-V1; explicit prefetches add nothing to either).
template <int kReads, bool kWrites, int kRegions>
void plain_loop(const char* const* in, char* out, int64_t begin, int64_t end) {
  Line total[4] = {};  // several chains of additions: one would be the limit
  int64_t region = (end - begin) / kRegions;
  for (int64_t at = begin; at < begin + region; at += 256) {
    for (int i = 0; i < kRegions; ++i) {
      for (int part = 0; part < 4; ++part) {
        int64_t where = at + i * region + part * 64;
        Line sum = {};
        if constexpr (kReads > 0) sum = *reinterpret_cast<const Line*>(in[0] + where);
        for (int r = 1; r < kReads; ++r) sum += *reinterpret_cast<const Line*>(in[r] + where);
        if constexpr (kWrites)
          *reinterpret_cast<Line*>(out + where) = sum;
        else
          total[part] += sum;
      }
    }
  }
  asm volatile("" ::"m"(total) : "memory");
}

#if defined(__x86_64__)
// Past the caches: a plain store reads the line first.
template <int kReads, int kRegions>
void streaming_loop(const char* const* in, char* out, int64_t begin, int64_t end) {
  int64_t region = (end - begin) / kRegions;
  for (int64_t at = begin; at < begin + region; at += 64) {
    for (int i = 0; i < kRegions; ++i) {
      for (int part = 0; part < 4; ++part) {
        int64_t where = at + i * region + part * 16;
        __m128 sum = _mm_setzero_ps();
        if constexpr (kReads > 0) sum = _mm_load_ps(reinterpret_cast<const float*>(in[0] + where));
        for (int r = 1; r < kReads; ++r)
          sum = _mm_add_ps(sum, _mm_load_ps(reinterpret_cast<const float*>(in[r] + where)));
        _mm_stream_ps(reinterpret_cast<float*>(out + where), sum);
      }
    }
  }
  _mm_sfence();
}
#endif

void memcpy_loop(const char* const* in, char* out, int64_t begin, int64_t end) {
  std::memcpy(out + begin, in[0] + begin, static_cast<size_t>(end - begin));
}

template <int kReads>
std::vector<StreamLoop> loops_of(int writes) {
  if (writes == 0) return {plain_loop<kReads, false, 1>, plain_loop<kReads, false, 2>, plain_loop<kReads, false, 4>};
  std::vector<StreamLoop> loops = {plain_loop<kReads, true, 1>, plain_loop<kReads, true, 2>,
                                   plain_loop<kReads, true, 4>};
#if defined(__x86_64__)
  loops.insert(loops.end(), {streaming_loop<kReads, 1>, streaming_loop<kReads, 2>, streaming_loop<kReads, 4>});
#endif
  if (kReads == 1) loops.push_back(memcpy_loop);
  return loops;
}

std::vector<StreamLoop> stream_loops(int reads, int writes) {
  DEFT_ASSERT(reads <= 4 && writes <= 1 && reads + writes > 0);
  if (reads == 0) return loops_of<0>(writes);
  if (reads == 1) return loops_of<1>(writes);
  if (reads == 2) return loops_of<2>(writes);
  return reads == 3 ? loops_of<3>(writes) : loops_of<4>(writes);
}

constexpr int64_t kPiece = 4096;  // ranges of threads divide evenly into regions

}  // namespace

// Buffers and the fastest loop of one mix.
struct Peaks::Streams {
  Streams(int reads, int writes, const Effort& effort)
      : pieces(writes == 0 ? effort.read_pieces : effort.write_pieces), bytes(kPiece * (reads + writes)) {
    for (int i = 0; i < reads + writes; ++i) buffers.emplace_back(pieces * kPiece, i * 4352);
    for (int i = 0; i < reads; ++i) in.push_back(buffers[static_cast<size_t>(i)].data());
    if (writes) out = buffers.back().data();
    for (StreamLoop loop : stream_loops(reads, writes)) {
      auto work = [&](int64_t begin, int64_t end) { run(loop, begin, end); };
      const double rate = best_rate(work, pieces, effort.stream_warm_up_ns, effort.stream_batches);
      if (rate > best) best = rate, fastest = loop;
    }
  }
  double gb_per_s() const { return best * static_cast<double>(bytes); }
  double gb_per_s_now(double ns) const {
    auto work = [&](int64_t begin, int64_t end) { run(fastest, begin, end); };
    return run_batch_of(work, pieces, best, ns).rate * static_cast<double>(bytes);
  }

 private:
  void run(StreamLoop loop, int64_t begin, int64_t end) const { loop(in.data(), out, begin * kPiece, end * kPiece); }

  int64_t pieces, bytes;  // of a piece in all streams
  std::vector<Stream> buffers;
  std::vector<const char*> in;
  char* out = nullptr;
  StreamLoop fastest = nullptr;
  double best = 0;  // pieces per nanosecond
};

Peaks::Peaks(int threads, Care care) : threads_(threads), care_(care) {}
Peaks::~Peaks() = default;

const ComputePeak& Peaks::compute(Arithmetic arithmetic) {
  auto [it, added] = compute_.try_emplace(arithmetic);
  if (added) it->second = measure_compute(arithmetic, threads_, effort_of(care_));
  return it->second;
}

double Peaks::bandwidth(int reads, int writes) {
  auto [it, added] = bandwidth_.try_emplace({reads, writes});
  if (added) it->second = Streams(reads, writes, effort_of(care_)).gb_per_s();
  return it->second;
}

double Peaks::compute_now(Arithmetic arithmetic, double ns) {
  const double known = compute(arithmetic).gflops;
  return with_arithmetic(arithmetic, [&](RangeFn work, double operations) {
    return operations * run_batch_of(work, threads_, known / operations, ns).rate;
  });
}

double Peaks::bandwidth_now(int reads, int writes, double ns) {
  if (!streams_ || streams_of_ != std::pair(reads, writes)) {
    streams_.reset();  // memory of one mix at a time
    streams_ = std::make_unique<Streams>(reads, writes, effort_of(care_));
    streams_of_ = {reads, writes};
  }
  return streams_->gb_per_s_now(ns);
}

const char* name_of(Arithmetic arithmetic) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "int8"};
  return kNames[static_cast<int>(arithmetic)];
}

std::string mix_name(int reads, int writes) {
  if (writes == 0) return "read";
  if (reads == 0) return "write";
  return reads == 1 ? "copy" : fmt::format("{} reads, 1 write", reads);
}

double MachinePeaks::gflops(DType dtype) const {
  switch (dtype) {
    case DType::f64:
      return f32 / 2;  // half as many in a register
    case DType::bf16:
      return bf16;
    case DType::f16:
      return f16;
    case DType::i8:
    case DType::u8:
      return int8;
    default:
      return f32;
  }
}

namespace {

double f32_products(const MachinePeaks& peaks) {
  const bool split = split_f32() && cpu_has("amx_bf16") && (cpu_has("amx_fp16") || allow_tf32());
  const double products = allow_tf32() ? 3 : 6;
  return split ? std::max(peaks.f32, peaks.bf16 / products) : 0;
}

}  // namespace

const MachinePeaks& machine_peaks() {
  static std::mutex mutex;
  static auto& measured = *new std::map<int, MachinePeaks>;  // never destroyed: threads may outlive static destruction
  std::lock_guard lock(mutex);
  const int threads = num_threads();
  auto [it, added] = measured.try_emplace(threads);
  if (added) {
    Peaks peaks(threads, Care::brief);
    it->second = {.of = {},
                  .threads = threads,
                  .f32 = peaks.compute(Arithmetic::f32).gflops,
                  .f16 = peaks.compute(Arithmetic::f16).gflops,
                  .bf16 = peaks.compute(Arithmetic::bf16).gflops,
                  .int8 = peaks.compute(Arithmetic::int8).gflops,
                  .copy = peaks.bandwidth(1, 1),
                  .read = peaks.bandwidth(1, 0)};
    it->second.f32_products = f32_products(it->second);
  }
  return it->second;
}

}  // namespace deft::profile
