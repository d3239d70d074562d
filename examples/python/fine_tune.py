"""A trained body with a new head: weights by name, frozen layers, groups with their own rates, an average of the weights."""

import copy

import deft as torch
from deft import nn
from deft.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def network(classes):
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, classes))


def train(model, optimizer, x, target, steps, after=lambda: None):
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        after()
    return loss.item()


torch.manual_seed(0)
x = torch.randn(256, 8)
body = network(2)
train(body, torch.optim.Adam(body.parameters(), lr=0.01), x, (x[:, 0] > 0).long(), 60)

model = network(4)
weights = {name: value for name, value in body.state_dict().items() if not name.startswith("3.")}
report = model.load_state_dict(weights, strict=False)
print(report.missing_keys)
for parameter in model[0].parameters():
    parameter.requires_grad = False
before = copy.deepcopy(model[0].weight)
optimizer = torch.optim.SGD([{"params": model[3].parameters()}, {"params": model[1].parameters(), "lr": 0.01}], lr=0.2, momentum=0.9)
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
target = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
loss = train(model, optimizer, x, target, 150, lambda: average.update_parameters(model))
model.eval(), average.eval()
with torch.no_grad():
    right = [(m(x).argmax(1) == target).float().mean().item() for m in (model, average)]
assert torch.equal(before, model[0].weight) and min(right) > 0.8, right
print("frozen weights kept;", sum(p.requires_grad for p in model.parameters()), "trained tensors; learned")
