import torch
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.body(self.embed(tokens), mask=mask, is_causal=True))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
for step in range(12):
    tokens = torch.randint(0, 50, (8, 17))
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    tokens = torch.zeros(1, 1, dtype=torch.long)
    for _ in range(6):
        tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(1, keepdim=True)], 1)
print(loss.item(), tokens.tolist())
