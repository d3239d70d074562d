import torch
from torch import nn

model = nn.Linear(8, 2).eval()
with torch.no_grad():
    for i in range(4):
        x = torch.randn(1, 8)
        x.requires_grad_()  # finds D002
        score = model(x).max()
print(score.requires_grad)
