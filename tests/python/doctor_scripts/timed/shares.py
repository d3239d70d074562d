"""Spends known parts of each step in known ways, and prints what they were by its own clock."""
import json
import os
import threading
import time

import torch

REST = 0.006
spent = {}


def timed(name, began):
    spent.setdefault(name, []).append(time.perf_counter() - began)


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        began = time.perf_counter()
        time.sleep(REST)
        timed("data wait", began)
        return torch.ones(4)


class Rest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        began = time.perf_counter()
        time.sleep(REST)
        timed("backward", began)
        return g


class Resting(torch.optim.SGD):
    def step(self, closure=None):
        began = time.perf_counter()
        time.sleep(REST)
        timed("optimizer", began)


def drain(number):
    while True:
        time.sleep(REST)
        os.read(number, 1 << 16)


ends = os.pipe()
threading.Thread(target=drain, args=(ends[0],), daemon=True).start()
pipe = os.fdopen(ends[1], "wb", buffering=0)
w = torch.ones(4, requires_grad=True)
a = torch.randn(400, 400)
optimizer = Resting([w], lr=0.1)
begins = []
for x in torch.utils.data.DataLoader(Slow(), batch_size=1):
    begins.append(time.perf_counter())
    optimizer.zero_grad()
    Rest.apply(w * x).sum().backward()
    optimizer.step()
    began = time.perf_counter()
    pipe.write(b"x" * (1 << 16))
    timed("logging and I/O", began)
    began = time.perf_counter()
    while time.perf_counter() - began < REST: pass
    timed("Python", began)
    began = time.perf_counter()
    b = a @ a
    while time.perf_counter() - began < REST:
        b = a @ b
    timed("linear algebra", began)
print(json.dumps({"begins": begins, "spent": spent}))
