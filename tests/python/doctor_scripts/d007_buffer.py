import torch


def make_mask():
    with torch.inference_mode():
        return torch.ones(3)


def train():
    w = torch.randn(3, requires_grad=True)
    mask = make_mask()
    loss = (w * mask).sum()  # finds D007
    loss.backward()


train()
