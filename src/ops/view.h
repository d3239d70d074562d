// Views: the same bytes under another shape. No op here copies.
#pragma once

#include "core/op.h"

namespace deft {

struct OpSamples;  // ops/sample.h

#define DEFT_VIEW_INFO(text, ...)                                                                  \
  static constexpr OpInfo info {                                                                   \
    .name = text, .dtypes = kAllTypes, .fusion = Fusion::view, .cost = Cost::metadata, __VA_ARGS__ \
  }

struct View {
  struct Params {
    Shape sizes;
    bool operator==(const Params&) const = default;
  };
  DEFT_VIEW_INFO("view", .onnx = {"Reshape", 14});
  static ViewSpec view(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  // The strides that show `x` as `sizes` without a copy, if there are any.
  static bool strides_for(const Meta& x, const Shape& sizes, Shape& strides);
  static OpSamples samples();
};

struct Permute {
  struct Params {
    Shape dims;
    bool operator==(const Params&) const = default;
  };
  DEFT_VIEW_INFO("permute", .onnx = {"Transpose", 13});
  static ViewSpec view(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

struct Expand {
  struct Params {
    Shape sizes;  // -1 keeps a size
    bool operator==(const Params&) const = default;
  };
  DEFT_VIEW_INFO("expand", .onnx = {"Expand", 13});
  static ViewSpec view(const Meta& x, Params& p);
  static void vjp(VjpContext& c) { c.grad_in(0) = c.grad(); }  // the engine sums
  static OpSamples samples();
};

// Drops the dims of size 1 whose bit is set.
struct Squeeze {
  struct Params {
    uint32_t dims = 0;
    bool operator==(const Params&) const = default;
  };
  DEFT_VIEW_INFO("squeeze", .onnx = {"Squeeze", 13});
  static ViewSpec view(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

struct Unsqueeze {
  struct Params {
    int64_t dim = 0;
    bool operator==(const Params&) const = default;
  };
  DEFT_VIEW_INFO("unsqueeze", .onnx = {"Unsqueeze", 13});
  static ViewSpec view(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

// start:stop:step along one dim; Python's rules for open and negative ends, step >= 1.
struct SliceOp {
  struct Params {
    int64_t dim = 0, start = 0, stop = 0, step = 1;
    bool operator==(const Params&) const = default;
  };
  DEFT_VIEW_INFO("slice", .onnx = {"Slice", 13});
  static ViewSpec view(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

struct Select {
  struct Params {
    int64_t dim = 0, index = 0;
    bool operator==(const Params&) const = default;
  };
  DEFT_VIEW_INFO("select", .onnx = {"Gather", 13});
  static ViewSpec view(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

// Offset counts from the tensor's own first element.
struct AsStrided {
  struct Params {
    Shape sizes, strides;
    int64_t offset = 0;
    Shape input_strides = {};  // filled by view(), for the gradient; empty: row-major
    bool operator==(const Params&) const = default;
  };
  DEFT_VIEW_INFO("as_strided");
  static ViewSpec view(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

struct Diagonal {
  struct Params {
    int64_t offset = 0, dim1 = 0, dim2 = 1;
    bool operator==(const Params&) const = default;
  };
  DEFT_VIEW_INFO("diagonal");
  static ViewSpec view(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static OpSamples samples();
};

// zeros(input_sizes) with one slice set: the gradient of slice().
struct SliceBackward {
  struct Params {
    Shape input_sizes;
    int64_t dim = 0, start = 0, step = 1;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "slice_backward", .dtypes = kAllTypes};
  static Meta infer(const Meta& g, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// `base` (as a dense copy) with a strided region replaced. Elements that the region reaches twice get the sum.
struct AsStridedScatter {
  struct Params {
    Shape sizes, strides;
    int64_t offset = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "as_strided_scatter", .inputs = 2, .dtypes = kAllTypes};
  static Meta infer(const Meta& base, const Meta& source, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
  // The whole op where no element is reached twice. Otherwise gives the region, which is still to be written.
  static Tensor copy_apart(KernelCall& c);
};

// Functions of the same names as Tensor's methods.
Tensor view(const Tensor& x, IntList sizes, Site site = Site::current());
Tensor reshape(const Tensor& x, IntList sizes, Site site = Site::current());
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1, Site site = Site::current());
Tensor permute(const Tensor& x, IntList dims, Site site = Site::current());
Tensor transpose(const Tensor& x, int64_t a, int64_t b, Site site = Site::current());
Tensor movedim(const Tensor& x, int64_t from, int64_t to, Site site = Site::current());
Tensor expand(const Tensor& x, IntList sizes, Site site = Site::current());
Tensor broadcast_to(const Tensor& x, IntList sizes, Site site = Site::current());
Tensor squeeze(const Tensor& x, Site site = Site::current());
Tensor squeeze(const Tensor& x, int64_t dim, Site site = Site::current());
Tensor unsqueeze(const Tensor& x, int64_t dim, Site site = Site::current());
Tensor select(const Tensor& x, int64_t dim, int64_t index, Site site = Site::current());
Tensor slice(const Tensor& x, int64_t dim, Slice range, Site site = Site::current());
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length, Site site = Site::current());
Tensor as_strided(const Tensor& x, IntList sizes, IntList strides, int64_t offset = 0, Site site = Site::current());
Tensor as_strided_scatter(const Tensor& base, const Tensor& source, IntList sizes, IntList strides, int64_t offset = 0,
                          Site site = Site::current());
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1, Site site = Site::current());
Tensor expand_as(const Tensor& x, const Tensor& other, Site site = Site::current());
Tensor view_as(const Tensor& x, const Tensor& other, Site site = Site::current());
// One dim as several; one of the sizes may be -1.
Tensor unflatten(const Tensor& x, int64_t dim, IntList sizes, Site site = Site::current());
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0, Site site = Site::current());
std::vector<Tensor> split(const Tensor& x, IntList sizes, int64_t dim = 0, Site site = Site::current());
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0, Site site = Site::current());
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0, Site site = Site::current());

}  // namespace deft
