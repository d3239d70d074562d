import torch
from torch import nn


class Learner:
    def __init__(self, depth):
        self.net = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))
        self.opt = torch.optim.Adam([p for layer in self.net for p in layer.parameters()])

    def loss(self, x):
        for layer in self.net:
            x = layer(x).relu()
        return x.mean()

    def learn(self, x):
        self.opt.zero_grad()
        self.loss(x).backward()
        self.opt.step()  # finds D025


learner = Learner(20)
for _ in range(40):
    learner.learn(torch.ones(4, 8))
