import torch
from torch import nn

torch.manual_seed(0)
rnn, head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 8)
optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
state, tokens = None, torch.randn(4, 320, 8)
for at in range(0, 320, 20):
    out, state = rnn(tokens[:, at:at + 20], state)
    loss = (head(out) - tokens[:, at:at + 20]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = tuple(s.detach() for s in state)
print(loss.item())
