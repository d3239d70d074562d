import torch
from torch import nn

torch.manual_seed(0)
make = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
judge = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g, opt_d = torch.optim.Adam(make.parameters(), 2e-4), torch.optim.Adam(judge.parameters(), 2e-4)
bce = nn.BCEWithLogitsLoss()
for step in range(20):
    real = torch.randn(64, 16)
    fake = make(torch.randn(64, 8))
    opt_d.zero_grad()
    loss_d = bce(judge(real), torch.ones(64, 1)) + bce(judge(fake.detach()), torch.zeros(64, 1))
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g = bce(judge(fake), torch.ones(64, 1))
    loss_g.backward()
    opt_g.step()
print(loss_d.item(), loss_g.item())
