import os

import torch
from torch import nn

torch.set_num_threads(4 * os.cpu_count())  # finds D019
model = nn.Linear(4, 4).eval()
with torch.no_grad():
    for _ in range(6):
        model(torch.randn(2, 4))
