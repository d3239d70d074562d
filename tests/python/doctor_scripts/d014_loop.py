import torch
from torch import nn

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    x = torch.randn(300, 8)
    mean, spread = x.mean(), torch.zeros(())
    for row in x:
        spread = spread + (row - mean).square().sum()  # finds D014
    loss = model(x).mean() + spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
