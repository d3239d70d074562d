import torch


def f(x):
    return (x * 2).sum()


fast = torch.compile(f, backend="eager", dynamic=False)  # finds D017
for n in range(2, 14):
    fast(torch.ones(n))
