import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
images = torch.randn(16, 48, 48, 3)
for _ in range(8):
    x = images.permute(0, 3, 1, 2).contiguous()  # finds D015
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
