"""An LSTM over sequences of several lengths: collate_fn, packing, a loss that ignores padding."""

import deft as torch
from deft import nn
from deft.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from deft.utils.data import DataLoader, Dataset


class Parity(Dataset):
    """Bits, and after each whether the number of ones so far is odd."""

    def __len__(self):
        return 128

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        bits = torch.randint(0, 2, (3 + i % 6,), generator=g)
        return bits, bits.cumsum(0) % 2


def collate(samples):
    bits, parities = zip(*samples)
    lengths = torch.tensor([len(b) for b in bits])
    return pad_sequence(bits, batch_first=True), lengths, pad_sequence(parities, batch_first=True, padding_value=-100)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(2, 8)
        self.lstm = nn.LSTM(8, 32, batch_first=True)
        self.out = nn.Linear(32, 2)

    def forward(self, bits, lengths):
        packed = pack_padded_sequence(self.embedding(bits), lengths, batch_first=True, enforce_sorted=False)
        output, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(output)


torch.manual_seed(1)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
criterion = nn.CrossEntropyLoss(ignore_index=-100)
for epoch in range(30):
    for bits, lengths, parities in DataLoader(Parity(), batch_size=32, shuffle=True, collate_fn=collate):
        loss = criterion(model(bits, lengths).flatten(0, 1), parities.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
assert loss.item() < 0.1, loss
print("the last loss is", "small" if loss.item() < 0.1 else "large")
