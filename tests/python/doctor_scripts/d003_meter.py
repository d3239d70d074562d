import torch
from torch import nn


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum = self.sum + value * n  # finds D003
        self.count += n


class Trainer:
    def __init__(self):
        self.model = nn.Linear(16, 4)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.meter = AverageMeter()

    def step(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.meter.update(loss, len(x))


trainer = Trainer()
for _ in range(12):
    trainer.step(torch.randn(32, 16), torch.randint(0, 4, (32,)))
