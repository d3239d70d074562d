import torch

w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=1.0)
for _ in range(8):
    loss = torch.log(w.sum() - 2).mean()  # finds D021
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
