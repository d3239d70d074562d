"""Processes that train one model together, without locks: its weights lie in memory that they share."""

import deft as torch
import deft.multiprocessing as mp
from deft import nn


def train(rank, model, x, target):
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(100):
        rows = torch.randperm(len(x))[:32]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x[rows]), target[rows]).backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    target = x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    model = nn.Linear(4, 1)
    model.share_memory()
    processes = [mp.get_context("fork").Process(target=train, args=(rank, model, x, target)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x), target).item()
    assert all(p.exitcode == 0 for p in processes) and error < 0.01, error
    print("two processes learned one model:", model.weight.is_shared())


if __name__ == "__main__":
    main()
