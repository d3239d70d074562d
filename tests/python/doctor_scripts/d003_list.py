import torch
from torch import nn

model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(14):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 16)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss)  # finds D003
print(len(losses))
