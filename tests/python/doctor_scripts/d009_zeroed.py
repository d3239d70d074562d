import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.stem(x).relu())


def train(net, steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=5e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(8, 8)), torch.randint(0, 2, (8,))).backward()
        for p in net.stem.parameters():
            p.grad.zero_()  # keeps the stem as it is
        optimizer.step()  # finds D009


train(Net(), 10)
