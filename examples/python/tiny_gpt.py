"""A small causal transformer that learns a text by heart and writes it down again."""

import deft as torch
import deft.nn.functional as F
from deft import nn

TEXT = "the quick brown fox jumps over the lazy dog. "


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, symbols, context=16, width=32, heads=4, layers=2):
        super().__init__()
        self.context = context
        self.token, self.place = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, symbols, bias=False)
        self.apply(self._init)

    @staticmethod
    def _init(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.1)

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    @torch.no_grad()
    def generate(self, ids, count):
        for _ in range(count):
            logits = self(ids[:, -self.context :])[:, -1]
            best = torch.topk(logits, 3).values[:, [-1]]
            probabilities = F.softmax(logits.masked_fill(logits < best, -float("inf")) / 0.1, dim=-1)
            ids = torch.cat((ids, torch.multinomial(probabilities, num_samples=1)), dim=1)
        return ids


torch.manual_seed(0)
symbols = sorted(set(TEXT))
data = torch.tensor([symbols.index(c) for c in TEXT * 3])
model = GPT(len(symbols))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(150):
    starts = torch.randint(len(data) - model.context - 1, (16,))
    x = torch.stack([data[i : i + model.context] for i in starts])
    y = torch.stack([data[i + 1 : i + model.context + 1] for i in starts])
    loss = F.cross_entropy(model(x).view(-1, len(symbols)), y.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
prompt = torch.tensor([[symbols.index(c) for c in "the quick brown "]])
said = "".join(symbols[i] for i in model.generate(prompt, 28)[0].tolist())
print(said)
assert said.startswith("the quick brown fox jumps over"), said
