"""Where the time of training steps goes."""

import deft as torch
from deft import nn
from deft.profiler import ProfilerActivity, profile, record_function

model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
x, target = torch.randn(64, 256), torch.randint(10, (64,))


def step():
    with record_function("forward"):
        loss = nn.functional.cross_entropy(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


step()
with profile(activities=[ProfilerActivity.CPU]) as prof:
    for _ in range(5):
        step()
rows = prof.key_averages()
print(rows.table(sort_by="cpu_time_total", row_limit=8))
forward = next(row for row in rows if row.key == "forward")
assert forward.count == 5 and forward.cpu_time_total > 0
