import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.temperature = nn.Linear(16, 4), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.net(x)


def accuracy(model, batches):
    good = 0
    for x, y in batches:
        with torch.no_grad():
            logits = model(x)
        scaled = logits * model.temperature.abs()  # finds D006
        good += (scaled.argmax(1) == y).sum().item()
    return good


print(accuracy(Scaled().eval(), [(torch.zeros(8, 16), torch.zeros(8).long()) for _ in range(6)]) >= 0)
