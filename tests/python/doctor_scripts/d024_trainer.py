import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.model = nn.Linear(32, 32)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def step(self, x):
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad(False)  # finds D024
        loss.backward()
        self.optimizer.step()


trainer = Trainer()
for _ in range(10):
    trainer.step(torch.randn(8, 32))
