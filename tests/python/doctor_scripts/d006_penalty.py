import torch
from torch import nn

model = nn.Linear(16, 4).eval()
total = 0.0
for _ in range(6):
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    with torch.no_grad():
        out = model(x)
    loss = nn.functional.cross_entropy(out, y) + 1e-4 * model.weight.square().sum()  # finds D006
    total += loss.item()
