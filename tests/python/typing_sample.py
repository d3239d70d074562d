"""What type checkers see of the package: tests/python/typing_test.py runs mypy on this file."""

from typing import TYPE_CHECKING

import deft
import deft.nn.functional as F
from deft import nn, optim
from deft.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.ReLU())
        self.head = nn.Linear(width, 2, bias=False)

    def forward(self, x: deft.Tensor) -> deft.Tensor:
        result: deft.Tensor = self.head(self.body(x))
        return result


def train(steps: int) -> float:
    model = Net(8).to("cpu")
    optimizer = optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    schedule = optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
    x = deft.randn(16, 2)
    y = (x[:, 0] > 0).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    loss = deft.zeros(())
    for _ in range(steps):
        for inputs, labels in loader:
            optimizer.zero_grad()
            with deft.autocast("cpu", dtype=deft.bfloat16):
                scores = model(inputs)
            loss = F.cross_entropy(scores.float(), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()
    with deft.no_grad():
        right = (model(x).argmax(1) == y).float().mean()
    deft.save(model.state_dict(), "model.pt")
    model.load_state_dict(deft.load("model.pt"))
    return float(loss + right)


class Double(deft.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x * 2


if TYPE_CHECKING:
    x = deft.ones(2, 3)
    reveal_type(x @ x.T)  # Tensor
    reveal_type(x.shape)  # Size
    reveal_type(x.requires_grad)  # bool
    reveal_type(x.split(1))  # tuple[Tensor, ...]
    reveal_type(Net(3).eval())  # Net
    reveal_type(F.relu(x))  # Tensor
    reveal_type(deft.float32)  # dtype
    x.no_such_method()  # error
    nn.Linear("two", 3)  # error
    deft.softmax(x, dim=0, no_such_argument=1)  # error
    deft.no_such_function(x)  # error
    optim.Adma(Net(3).parameters())  # error
