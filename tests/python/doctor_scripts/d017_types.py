import torch


class Scorer:
    def __init__(self):
        self.step = 0

    @torch.compile(backend="eager", dynamic=False)  # finds D017
    def score(self, x):
        return x.square().mean(0)


scorer = Scorer()
for width in range(2, 14):
    scorer.score(torch.ones(4, width))
