import torch
from torch import nn


def predict(model, data):
    answers = []
    with torch.no_grad():
        for i in range(len(data)):
            answers.append(model(data[i:i + 1]).argmax(1))  # finds D014
    return torch.cat(answers)


print(predict(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval(), torch.randn(64, 16)).shape)
