import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(160, 16), torch.randint(0, 4, (160,)))
train, valid = DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=32)
for epoch in range(2):
    model.train()
    for x, y in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    correct = 0
    for x, y in valid:
        correct += (model(x).argmax(1) == y).sum().item()  # finds D004
