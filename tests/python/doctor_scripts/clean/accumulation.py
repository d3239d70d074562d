import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
running = torch.zeros(())
for step in range(48):
    loss = nn.functional.cross_entropy(model(torch.randn(32, 16)), torch.randint(0, 4, (32,))) / 4
    loss.backward()
    running += loss.detach()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
print(running.item())
