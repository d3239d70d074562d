import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.stem(x))


net = Net()
net.stem.requires_grad_(False)
net.train()
optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad])


def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)  # finds D008
    loss.backward()
    optimizer.step()


for _ in range(6):
    step(torch.randn(8, 8), torch.randint(0, 2, (8,)))
