import os

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(64.0))
loader = DataLoader(data, batch_size=8, num_workers=4 * os.cpu_count())  # finds D019
print(len(loader))
