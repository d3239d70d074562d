import torch


def penalty(x):
    with torch.inference_mode(False), torch.no_grad():
        x = x.clone()
        x.requires_grad_(True)  # finds D002
        return (x * x).sum()


print(penalty(torch.ones(3)).item())
