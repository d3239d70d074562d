import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(30)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(40):
    loss = model(torch.ones(4, 16)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # finds D025
