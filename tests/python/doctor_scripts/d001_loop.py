import torch
from torch import nn

model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
with torch.no_grad():
    before = model(x).argmax(1)
    for step in range(4):
        loss = nn.functional.cross_entropy(model(x), y)
        try:
            loss.backward()  # finds D001
        except RuntimeError:
            break
        optimizer.step()
print(before.shape)
