import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(1)
texts = [torch.randint(1, 50, (int(n),)) for n in torch.cat([torch.randint(4, 10, (150,)), torch.full((50,), 64)])]


def collate(batch):
    return nn.utils.rnn.pad_sequence(batch, batch_first=True)


model = nn.Embedding(50, 8)
loader = DataLoader(texts, batch_size=16, shuffle=True, collate_fn=collate)
with torch.no_grad():
    for tokens in loader:  # finds D018
        model(tokens).mean()
