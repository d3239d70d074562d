import time

import torch
from torch import nn
from torch.utils.data import DataLoader


def decode(batch):
    time.sleep(0.012)
    return torch.stack(batch)


class Trainer:
    def __init__(self):
        self.net = nn.Linear(8, 1)
        self.loader = DataLoader(torch.ones(80, 8), batch_size=2, collate_fn=decode)

    def run(self):
        optimizer = torch.optim.Adam(self.net.parameters())
        for x in self.loader:  # finds D020
            loss = self.net(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


Trainer().run()
