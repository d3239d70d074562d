import torch
from torch import nn


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, i):
        n = 5 + i % 7
        ids = torch.zeros(64, dtype=torch.long)
        ids[:n] = torch.arange(1, n + 1)
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}


model = nn.Sequential(nn.Embedding(80, 8), nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(Texts(), batch_size=8):  # finds D018
    optimizer.zero_grad()
    (model(batch["input_ids"]) * batch["attention_mask"].unsqueeze(-1)).mean().backward()
    optimizer.step()
