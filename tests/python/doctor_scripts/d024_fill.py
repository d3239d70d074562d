import torch
from torch import nn

model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    optimizer.zero_grad(set_to_none=False)  # finds D024
    model(torch.randn(4, 64)).square().mean().backward()
    optimizer.step()
