import copy

import torch
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
teacher = copy.deepcopy(student).eval().requires_grad_(False)
average = torch.optim.swa_utils.AveragedModel(student)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
history = []
for step in range(20):
    x = torch.randn(32, 16)
    with torch.no_grad():
        target = teacher(x).softmax(1)
    loss = nn.functional.kl_div(student(x).log_softmax(1), target, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(student)
    history.append(loss.item())
average.eval()
with torch.inference_mode():
    for _ in range(8):
        average(torch.randn(32, 16))
print(history[-1])
