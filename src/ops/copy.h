// Copies: clone, contiguous, to(dtype), copy_, fill_.
#pragma once

#include "core/op.h"
#include "runtime/stream.h"

namespace deft {

struct OpSamples;  // ops/sample.h

// A dense copy in the given memory order.
struct Clone {
  struct Params {
    MemoryFormat format = MemoryFormat::preserve;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "clone", .dtypes = kAllTypes, .onnx = {"Identity", 16}};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c) { c.grad_in(0) = c.grad(); }
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Conversion to another element type. Float to i32 and i64 truncates and saturates; to i8 and u8 it truncates and keeps
// the low 8 bits, as a conversion from i64 does (0 for what i64 cannot hold). Anything to bool is != 0.
struct Cast {
  struct Params {
    DType dtype = DType::f32;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "to", .dtypes = kAllTypes, .fusion = Fusion::elementwise, .onnx = {"Cast", 13}};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c) { c.grad_in(0) = c.grad(); }  // the engine converts back
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// x.copy_(source): inputs are (x, source); source broadcasts and is converted.
struct CopyInto {
  static constexpr OpInfo info{.name = "copy_", .inputs = 2, .dtypes = kAllTypes};
  static Meta infer(const Meta& x, const Meta& source, NoParams& p);
  static void vjp(VjpContext& c) {
    c.set_zeros(0);
    if (c.needs(1)) c.grad_in(1) = c.grad();
  }
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// x.fill_(value).
struct Fill {
  struct Params {
    double number = 0;
    int64_t integer = 0;
    bool is_integer = false;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "fill_", .dtypes = kAllTypes};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c) { c.set_zeros(0); }  // the old value has no influence
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// to(device): between host and devices. The gradient is copied back.
struct Transfer {
  struct Params {
    Device device;
    bool pinned = false;         // a result on the host lies in pinned memory and is not waited for
    const char* what = nullptr;  // the name of the synchronisation, if it is one
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "to_device", .dtypes = kAllTypes};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c);
  static void run(KernelCall& c);
  static void cpu(KernelCall& c) { run(c); }
  static void cuda(KernelCall& c) { run(c); }
  static OpSamples samples();
};

Tensor clone(const Tensor& x, MemoryFormat format = MemoryFormat::preserve, Site site = Site::current());

// Copies values between host and device without waiting and returns the ticket: query() and synchronize() it, or just
// go on. Pinned memory is kept alive, and host access to it through a tensor waits, until the copy is done. Pageable
// memory makes the host wait. Same shape and type on both sides; not recorded for backward.
Event copy_async(Tensor& to, const Tensor& from, Site site = Site::current());

}  // namespace deft
