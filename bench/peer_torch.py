#!/usr/bin/env python3
"""PyTorch as a peer of `deft bench ops`, `overhead`, `gemm`, `conv`, `attention` and `rows`: answers one line per request
(see bench/peer.h).

Given its best settings: channels_last, cudnn.benchmark, weights packed where it can, no gradients where none are asked for.
Time: median of rounds, on the device's own clock where it has one, with inputs that take turns. For the CPU engine with one
thread: the minimum of CPU time, as on our side, of the process, since a library may have kept a second thread.
"""
import json
import math
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F

ROUND_MS, ROTATE_BYTES = 4, 200_000_000
SLOW_MS = 200  # no case is measured for longer than ten such calls, and one that takes longer only once
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "bf16bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64, "int8": torch.int8,
         "s8s8": torch.int8, "u8s8": torch.quint8}
warnings.filterwarnings("ignore")  # quantised layers are called old
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


def operands(name):
    op, dtype, *words = name.split()
    sizes = [tuple(map(int, w.split("x"))) for w in words if all(c in "0123456789x" for c in w)]
    return op, TYPES[dtype], sizes, words


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


def gradient(forward, *inputs):
    """The backward pass alone, with the graph kept. The gradient has the layout of the result."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        y = forward(*leaves)
        g = torch.randn_like(y)
    return lambda i: torch.autograd.grad(y, leaves, g, retain_graph=True)


def faster(*calls):
    def seconds(call):
        call(0)
        start = time.process_time()
        for i in range(3):
            call(i)
        return time.process_time() - start
    return min(calls, key=seconds)


def quantized(make, weight_shape, x):
    """A layer of bytes: weights packed before, result requantised; by the engine that is fastest at it."""
    w = torch.quantize_per_tensor(torch.randn(weight_shape), 0.02, 0, torch.qint8)
    x = torch.quantize_per_tensor(x, 0.02, 128, torch.quint8)
    calls = []
    for engine in torch.backends.quantized.supported_engines:
        try:
            torch.backends.quantized.engine = engine
            layer = make()
            layer.set_weight_bias(w, None)
            layer.scale, layer.zero_point = 1.0, 128
            layer(x)
            calls.append(lambda i, layer=layer: layer(x))
        except RuntimeError:  # not on this processor
            pass
    return faster(*calls)


def gemm(kind, dtype, m, n, k):
    if dtype == torch.quint8:
        return quantized(lambda: torch.ao.nn.quantized.Linear(k, n), (n, k), torch.randn(m, k))
    if dtype == torch.int8:
        a, b = (torch.randint(-127, 128, s, dtype=dtype) for s in ((m, k), (n, k)))
        return lambda i: torch._int_mm(a, b.t())
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    by_rows = b.t().contiguous()
    if kind == "bf16":  # activations come as f32, as under autocast
        wide = a.float()
        return faster(lambda i: wide.to(dtype) @ b, lambda i: F.linear(wide.to(dtype), by_rows))
    return faster(lambda i: a @ b, lambda i: F.linear(a, by_rows))


def conv(op, dtype, shape, kernel, stride, padding):
    out, kh, kw = kernel
    if dtype == torch.int8:
        return quantized(lambda: torch.ao.nn.quantized.Conv2d(shape[1], out, kh, stride, padding, bias=False),
                         (out, shape[1], kh, kw), channels_last(torch.randn(shape)))
    x, w = (channels_last(torch.randn(s).to(dtype)) for s in (shape, (out, shape[1], kh, kw)))
    if op == "conv_dx":
        return gradient(lambda a: F.conv2d(a, w, None, stride, padding), x)
    if op == "conv_dw":
        return gradient(lambda b: F.conv2d(x, b, None, stride, padding), w)
    return lambda i: F.conv2d(x, w, None, stride, padding)


def attention(op, dtype, shape, causal):
    q, k, v = (torch.randn(shape).to(dtype) for _ in range(3))
    call = lambda *inputs: F.scaled_dot_product_attention(*inputs, is_causal=causal)
    return gradient(call, q, k, v) if op.endswith("_backward") else lambda i: call(q, k, v)


def rows(op, dtype, shape):
    x = torch.randn(shape).to(dtype)
    n = shape[1]
    w, b = torch.randn(n).to(dtype), torch.randn(n).to(dtype)
    mean, var = torch.zeros(n).to(dtype), torch.ones(n).to(dtype)
    classes = torch.randint(0, n, shape[:1])
    if op.startswith("batch_norm_last"):
        x = channels_last(x)
    forward = {"softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1),
               "layer_norm": lambda x: F.layer_norm(x, (n,), w, b), "rms_norm": lambda x: F.rms_norm(x, (n,), w),
               "gelu": F.gelu, "batch_norm": lambda x: F.batch_norm(x, mean, var, w, b, True),
               "batch_norm_last": lambda x: F.batch_norm(x, mean, var, w, b, True),
               "cross_entropy": lambda x: F.cross_entropy(x, classes), "copy": torch.clone,
               "transpose": lambda x: x.t().contiguous(), "sum_all": torch.sum, "sum_rows": lambda x: x.sum(-1),
               "sum_columns": lambda x: x.sum(0)}[op.removesuffix("_backward")]
    return gradient(forward, x) if op.endswith("_backward") else lambda i: forward(x)


def engine_work(name):
    """Cases of the CPU engine: one input each, as on our side."""
    op, dtype, sizes, words = operands(name)
    if op == "gemm":
        return gemm(name.split()[1], dtype, *sizes[0])
    if op.startswith("conv"):
        shape, kernel, (stride,), (padding,) = sizes
        return conv(op, dtype, shape, kernel, stride, padding)
    if op.startswith("attention"):
        return attention(op, dtype, sizes[0], "causal" in words)
    return rows(op, dtype, sizes[0])


def work_of(name, device):
    """A function of the round number."""
    op, dtype, sizes, _ = operands(name)

    def random(shape):
        return torch.randn(shape, device=device, dtype=torch.float32).to(dtype)

    def rotating(shape, make=random):
        size = math.prod(shape) * torch.finfo(dtype).bits // 8
        inputs = [make(shape) for _ in range(max(1, math.ceil(ROTATE_BYTES / size)))]
        return lambda i: inputs[i % len(inputs)]

    if op == "matmul":
        m, n, k = sizes[0]
        a, b = random((m, k)), random((k, n))
        return lambda i: a @ b
    if op == "conv":
        shape, (out, kh, kw), (stride,), (padding,) = sizes
        last = lambda s: channels_last(random(s))
        x, w = rotating(shape, last), last((out, shape[1], kh, kw))
        return lambda i: F.conv2d(x(i), w, None, stride, padding)
    x = rotating(sizes[0])
    if op in ("add", "atan2", "mse_loss", "smooth_l1_loss"):
        b = random(sizes[-1])
        return {"add": lambda i: x(i) + b, "atan2": lambda i: torch.atan2(x(i), b), "mse_loss": lambda i: F.mse_loss(x(i), b),
                "smooth_l1_loss": lambda i: F.smooth_l1_loss(x(i), b)}[op]
    if op in ("layer_norm", "rms_norm"):
        n = sizes[0][-1]
        w, b = random((n,)), random((n,))
        return {"layer_norm": lambda i: F.layer_norm(x(i), (n,), w, b),
                "rms_norm": lambda i: F.rms_norm(x(i), (n,), w)}[op]
    other = torch.float32 if dtype == torch.bfloat16 else torch.bfloat16
    return {"copy": lambda i: x(i).clone(), "transpose": lambda i: x(i).t().contiguous(), "cast": lambda i: x(i).to(other),
            "mul_number": lambda i: x(i) * 1.5, "relu": lambda i: x(i).relu(), "gelu": lambda i: F.gelu(x(i)),
            "exp": lambda i: x(i).exp(), "softmax": lambda i: x(i).softmax(-1), "sum_all": lambda i: x(i).sum(),
            "sum_rows": lambda i: x(i).sum(-1), "sum_columns": lambda i: x(i).sum(0),
            "logsumexp_columns": lambda i: x(i).logsumexp(0), "cumsum_rows": lambda i: x(i).cumsum(1),
            "topk_10": lambda i: x(i).topk(10)[0], "group_norm_8": lambda i: F.group_norm(x(i), 8),
            "bilinear_x2": lambda i: F.interpolate(x(i), scale_factor=2, mode="bilinear")}[op]


class Rounds:
    """Median of rounds; with `cpu_time`, the minimum of CPU time."""

    def __init__(self, work, device, cpu_time=False):
        self.work, self.cuda, self.samples, self.i = work, device.startswith("cuda"), [], 0
        self.clock = time.process_time if cpu_time else time.perf_counter
        self.pick = min if cpu_time else statistics.median
        self.calls, ms = 1, self.round(1)
        if ms > 10 * SLOW_MS:
            self.samples.append(ms)
            return
        for _ in range(3):
            ms = self.round(1)
        self.calls = max(1, int(ROUND_MS / max(ms, 1e-4)))
        if self.calls > 1:
            self.round(self.calls)

    def round(self, calls):
        if self.cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(calls):
                self.work(self.i)
                self.i += 1
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / calls
        start = self.clock()
        for _ in range(calls):
            self.work(self.i)
            self.i += 1
        return (self.clock() - start) * 1e3 / calls

    def ns(self, rounds):
        for _ in range(rounds):
            if sum(self.samples) < 10 * SLOW_MS:
                self.samples.append(self.round(self.calls))
        return self.pick(self.samples) * 1e6


def rounds_for(name, mode):
    if not mode.startswith("threads="):
        return Rounds(work_of(name, mode), mode)
    threads = int(mode.removeprefix("threads="))
    torch.set_num_threads(threads)
    return Rounds(engine_work(name), "cpu", cpu_time=threads == 1)


def main():
    peer = f"torch {torch.__version__.split('+')[0]}"
    current, rounds = None, None
    torch.set_grad_enabled(False)
    for line in sys.stdin:
        name, _, rest = line.strip().partition("\t")
        mode, _, count = rest.partition("\t")
        answer = {"case": name, "peer": peer, "ns_per_op": None}
        if name:
            try:
                if current != (name, mode):
                    current, rounds = None, None  # frees the inputs of the last case first
                    rounds, current = rounds_for(name, mode), (name, mode)
                answer["ns_per_op"] = rounds.ns(int(count))
            except Exception as error:  # an unknown case is no reason to end
                answer["error"] = str(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
