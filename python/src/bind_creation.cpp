// Tensors from nothing: zeros, arange, rand, and from values: tensor().
#include "bind_op.h"
#include "exchange.h"
#include "ops/all_ops.h"

namespace deft::python {

namespace {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;

TensorOptions options_of(const OptDType& dtype, const OptDevice& device, bool grad, DType otherwise) {
  return {dtype.value_or(otherwise), device.value_or(default_device()), grad};
}
#define DEFT_OPTIONS "*, dtype=None, device=None, requires_grad=False"

DType type_of(Scalar v) { return v.is_floating() ? default_dtype() : v.kind(); }

Tensor with_grad_flag(Tensor t, bool on, const Site& s) {
  if (on) t.requires_grad_(true, s);
  return t;
}

void bind_fills() {
#define DEFT_CREATE(name)                                                                            \
  bind(                                                                                              \
      #name "(*size, dtype=None, device=None, requires_grad=False)", kFunction,                      \
      [](Ints size, OptDType dtype, OptDevice device, bool grad, Site s) {                           \
        return name(size, options_of(dtype, device, grad, default_dtype()), s);                      \
      },                                                                                             \
      "fill_");                                                                                      \
  bind(                                                                                              \
      #name "_like(input, *, dtype=None, device=None, requires_grad=False)", kFunction,              \
      [](const Tensor& x, OptDType dtype, OptDevice device, bool grad, Site s) {                     \
        if (dtype || device)                                                                         \
          return name(x.sizes(), {dtype.value_or(x.dtype()), device.value_or(x.device()), grad}, s); \
        return with_grad_flag(name##_like(x, s), grad, s);                                           \
      },                                                                                             \
      "fill_");                                                                                      \
  bind(                                                                                              \
      "new_" #name "(input, *size, dtype=None, device=None, requires_grad=False)", kMethod,          \
      [](const Tensor& x, Ints size, OptDType dtype, OptDevice device, bool grad, Site s) {          \
        return name(size, {dtype.value_or(x.dtype()), device.value_or(x.device()), grad}, s);        \
      },                                                                                             \
      "fill_");
  DEFT_CREATE(empty)
  DEFT_CREATE(zeros)
  DEFT_CREATE(ones)
#undef DEFT_CREATE
  bind(
      "full(size, fill_value, " DEFT_OPTIONS ")", kFunction,
      [](Ints size, Scalar v, OptDType dtype, OptDevice device, bool grad, Site s) {
        return full(size, v, options_of(dtype, device, grad, type_of(v)), s);
      },
      "fill_");
  bind(
      "full_like(input, fill_value, " DEFT_OPTIONS ")", kFunction,
      [](const Tensor& x, Scalar v, OptDType dtype, OptDevice device, bool grad, Site s) {
        return full(x.sizes(), v, {dtype.value_or(x.dtype()), device.value_or(x.device()), grad}, s);
      },
      "fill_");
  bind(
      "new_full(input, size, fill_value, " DEFT_OPTIONS ")", kMethod,
      [](const Tensor& x, Ints size, Scalar v, OptDType dtype, OptDevice device, bool grad, Site s) {
        return full(size, v, {dtype.value_or(x.dtype()), device.value_or(x.device()), grad}, s);
      },
      "fill_");
  bind(
      "scalar_tensor(s, " DEFT_OPTIONS ")", kFunction,
      [](Scalar v, OptDType dtype, OptDevice device, bool grad, Site s) {
        return scalar_tensor(v, options_of(dtype, device, grad, default_dtype()), s);
      },
      "fill_");
  bind(
      "eye(n, m=None, " DEFT_OPTIONS ")", kFunction,
      [](int64_t n, std::optional<int64_t> m, OptDType dtype, OptDevice device, bool grad, Site s) {
        return eye(n, m.value_or(-1), options_of(dtype, device, grad, default_dtype()), s);
      },
      "fill_");
  bind(
      "linspace(start, end, steps, " DEFT_OPTIONS ")", kFunction,
      [](double start, double end, int64_t steps, OptDType dtype, OptDevice device, bool grad, Site s) {
        return linspace(start, end, steps, options_of(dtype, device, grad, default_dtype()), s);
      },
      "fill_");
  bind(
      "arange(start, end=None, step=1, " DEFT_OPTIONS ")", kFunction,
      [](Scalar start, std::optional<Scalar> end, Scalar step, OptDType dtype, OptDevice device, bool grad, Site s) {
        Scalar from = end ? start : Scalar(int64_t{0}), to = end ? *end : start;
        bool real = from.is_floating() || to.is_floating() || step.is_floating();
        DType t = dtype.value_or(real ? default_dtype() : DType::i64);
        return arange(from, to, step, TensorOptions{t, device.value_or(default_device()), grad}, s);
      },
      "fill_");
}

void bind_values() {
  bind(
      "tensor(data, " DEFT_OPTIONS ")", kFunction,
      [](Object data, OptDType dtype, OptDevice device, bool grad, Site s) -> Returns {
        Tensor t = build_tensor(data.p, dtype);
        const Device d = device.value_or(default_device());
        if (!d.is_cpu()) t = t.to(d, s);
        return {wrap(with_grad_flag(std::move(t), grad, s))};
      },
      "fill_", "A tensor of its own with these values.");
  bind(
      "as_tensor(data, dtype=None, device=None)", kFunction,
      [](Object data, OptDType dtype, OptDevice device, Site s) -> Returns {
        Tensor t = is_tensor(data.p)                                        ? tensor_of(data.p)
                   : PyObject_CheckBuffer(data.p) && !PyBytes_Check(data.p) ? from_buffer(data.p)
                                                                            : build_tensor(data.p, dtype);
        if (dtype && t.dtype() != *dtype) t = t.to(*dtype, s);
        if (device && !(t.device() == *device)) t = t.to(*device, s);
        if (is_tensor(data.p) && t.is_same(tensor_of(data.p))) return {Py_NewRef(data.p)};
        return {wrap(std::move(t))};
      },
      "fill_", "The values, sharing memory where that is possible.");
  bind(
      "new_tensor(input, data, " DEFT_OPTIONS ")", kMethod,
      [](const Tensor& x, Object data, OptDType dtype, OptDevice device, bool grad, Site s) -> Returns {
        Tensor t = build_tensor(data.p, dtype.value_or(x.dtype()));
        Device d = device.value_or(x.device());
        if (!d.is_cpu()) t = t.to(d, s);
        return {wrap(with_grad_flag(std::move(t), grad, s))};
      },
      "fill_");
}

void bind_random() {
#define DEFT_RANDOM(name, op)                                                                                      \
  bind(                                                                                                            \
      #name "(*size, generator=None, dtype=None, device=None, requires_grad=False)", kFunction,                    \
      [](Ints size, GeneratorArgument g, OptDType dtype, OptDevice device, bool grad, Site s) {                    \
        return with_generator(g, [&] { return name(size, options_of(dtype, device, grad, default_dtype()), s); }); \
      },                                                                                                           \
      op);                                                                                                         \
  bind(                                                                                                            \
      #name "_like(input, *, dtype=None, device=None, requires_grad=False)", kFunction,                            \
      [](const Tensor& x, OptDType dtype, OptDevice device, bool grad, Site s) {                                   \
        return name(x.sizes(), {dtype.value_or(x.dtype()), device.value_or(x.device()), grad}, s);                 \
      },                                                                                                           \
      op);
  DEFT_RANDOM(rand, "uniform_")
  DEFT_RANDOM(randn, "normal_")
#undef DEFT_RANDOM
  bind(
      "_randint(low, high, size, " DEFT_OPTIONS ", generator=None)", kPrivate,
      [](int64_t low, int64_t high, Ints size, OptDType dtype, OptDevice device, bool grad, GeneratorArgument g,
         Site s) {
        return with_generator(g,
                              [&] { return randint(low, high, size, options_of(dtype, device, grad, DType::i64), s); });
      },
      "randint_");
  bind(
      "randperm(n, *, generator=None, dtype=None, device=None)", kFunction,
      [](int64_t n, GeneratorArgument g, OptDType dtype, OptDevice device, Site s) {
        Tensor t = with_generator(g, [&] { return randperm(n, s); });
        if (dtype && *dtype != DType::i64) t = t.to(*dtype, s);
        return device ? t.to(*device, s) : t;
      },
      "randperm_");
  bind("bernoulli(input, *, generator=None)", kEverywhere,
       [](const Tensor& p, GeneratorArgument g, Site s) { return with_generator(g, [&] { return bernoulli(p, s); }); });
  bind(
      "multinomial(input, num_samples, replacement=False, *, generator=None)", kEverywhere,
      [](const Tensor& w, int64_t count, bool replacement, GeneratorArgument g, Site s) {
        return with_generator(g, [&] { return multinomial(w, count, replacement, s); });
      },
      "topk");
  bind(
      "uniform_(input, from=0.0, to=1.0, *, generator=None)", kMethod,
      [](Tensor& x, double low, double high, GeneratorArgument g, Site s) {
        with_generator(g, [&] { return uniform_(x, low, high, s); });
        return Same();
      },
      "uniform_");
  bind(
      "normal_(input, mean=0.0, std=1.0, *, generator=None)", kMethod,
      [](Tensor& x, double mean, double std, GeneratorArgument g, Site s) {
        with_generator(g, [&] { return normal_(x, mean, std, s); });
        return Same();
      },
      "normal_");
}

}  // namespace

void bind_creation() {
  bind_fills();
  bind_values();
  bind_random();
}

}  // namespace deft::python
