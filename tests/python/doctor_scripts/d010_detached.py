import torch
from torch import nn

encoder, head = nn.Linear(8, 8), nn.Linear(8, 2)
optimizer = torch.optim.Adam(list(encoder.parameters()) + list(head.parameters()))


def training_step(x, y):
    with torch.no_grad():
        h = encoder(x)
    return nn.functional.cross_entropy(head(h), y)


for _ in range(8):
    loss = training_step(torch.randn(8, 8), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # finds D010
