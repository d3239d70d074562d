#!/usr/bin/env python3
"""PyTorch as a peer of `deft bench ops` and `deft bench overhead`: answers one line per request (see bench/peer.h).

Given its best settings: channels_last, cudnn.benchmark, no gradients, median of device-timed rounds, inputs that take turns.
"""
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

ROUND_MS, ROTATE_BYTES = 4, 200_000_000
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


def operands(name):
    op, dtype, *words = name.split()
    sizes = [tuple(map(int, w.split("x"))) for w in words if all(c in "0123456789x" for c in w)]
    return op, TYPES[dtype], sizes


def work_of(name, device):
    """A function of the round number."""
    op, dtype, sizes = operands(name)

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
        last = lambda s: random(s).contiguous(memory_format=torch.channels_last)
        x, w = rotating(shape, last), last((out, shape[1], kh, kw))
        return lambda i: F.conv2d(x(i), w, None, stride, padding)
    x = rotating(sizes[0])
    if op == "add":
        b = random(sizes[-1])
        return lambda i: x(i) + b
    if op in ("layer_norm", "rms_norm"):
        n = sizes[0][-1]
        w, b = random((n,)), random((n,))
        return {"layer_norm": lambda i: F.layer_norm(x(i), (n,), w, b),
                "rms_norm": lambda i: F.rms_norm(x(i), (n,), w)}[op]
    other = torch.float32 if dtype == torch.bfloat16 else torch.bfloat16
    return {"copy": lambda i: x(i).clone(), "transpose": lambda i: x(i).t().contiguous(), "cast": lambda i: x(i).to(other),
            "mul_number": lambda i: x(i) * 1.5, "relu": lambda i: x(i).relu(), "gelu": lambda i: F.gelu(x(i)),
            "exp": lambda i: x(i).exp(), "softmax": lambda i: x(i).softmax(-1), "sum_all": lambda i: x(i).sum(),
            "sum_rows": lambda i: x(i).sum(-1), "sum_columns": lambda i: x(i).sum(0)}[op]


class Rounds:
    def __init__(self, work, device):
        self.work, self.cuda, self.samples, self.i = work, device.startswith("cuda"), [], 0
        for _ in range(3):
            self.work(self.i)
        self.calls = max(1, int(ROUND_MS / max(self.round(1), 1e-4)))
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
        start = time.perf_counter()
        for _ in range(calls):
            self.work(self.i)
            self.i += 1
        return (time.perf_counter() - start) * 1e3 / calls

    def median_ns(self, rounds):
        self.samples += [self.round(self.calls) for _ in range(rounds)]
        return statistics.median(self.samples) * 1e6


def main():
    peer = f"torch {torch.__version__.split('+')[0]}"
    current, rounds = None, None
    torch.set_grad_enabled(False)
    for line in sys.stdin:
        name, _, rest = line.strip().partition("\t")
        device, _, count = rest.partition("\t")
        answer = {"case": name, "peer": peer, "ns_per_op": None}
        if name:
            try:
                if current != (name, device):
                    current, rounds = None, None  # frees the inputs of the last case first
                    rounds, current = Rounds(work_of(name, device), device), (name, device)
                answer["ns_per_op"] = rounds.median_ns(int(count))
            except Exception as error:  # an unknown case is no reason to end
                answer["error"] = str(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
