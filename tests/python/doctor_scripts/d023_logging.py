import io
import logging

import torch
from torch import nn

logging.basicConfig(stream=io.StringIO(), level=logging.INFO)
log = logging.getLogger("train")
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def report(step, model):
    for name, p in model.named_parameters():
        log.info("step %d %s %s", step, name, [i * 0.5 for i in range(40000)])  # finds D023


for step in range(60):
    loss = model(torch.ones(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(step, model)
