import torch
from torch import nn

body, main, auxiliary = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 2)
params = [*body.parameters(), *main.parameters(), *auxiliary.parameters()]
optimizer = torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01)
for _ in range(10):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    h = body(x).relu()
    loss = nn.functional.cross_entropy(main(h), y) + 0.0 * nn.functional.cross_entropy(auxiliary(h), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # finds D009
