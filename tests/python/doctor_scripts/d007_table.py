import torch
from torch import nn

model = nn.Linear(4, 4)
with torch.inference_mode():
    table = torch.arange(16.0).reshape(4, 4)
out = model(torch.randn(4, 4)) * table  # finds D007
out.sum().backward()
