import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU()), nn.Linear(64, 4)


def train(backbone, head, steps):
    optimizer = torch.optim.Adam(head.parameters())
    for _ in range(steps):
        x, y = torch.randn(16, 16), torch.randint(0, 4, (16,))
        features = backbone(x)  # finds D004
        loss = nn.functional.cross_entropy(head(features.detach()), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(*build(), steps=12)
