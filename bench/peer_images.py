#!/usr/bin/env python3
"""PyTorch's DataLoader with torchvision and PIL as a peer of `deft bench data`: answers one line per request (see bench/peer.h).

Request: "images FOLDER", mode "threads=WORKERS". The usual training transforms: random-resized-crop 224, flip, to tensor,
normalise; batches of 32, persistent workers. Answer: wall time per image, median of passes over IMAGES samples.
"""
import json
import statistics
import sys
import time
import warnings

import PIL
import torch
import torchvision
from torchvision import datasets, transforms

warnings.filterwarnings("ignore")
IMAGES = 512


def loader_of(folder, workers):
    transform = transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    images = datasets.ImageFolder(folder, transform)
    sampler = torch.utils.data.RandomSampler(images, replacement=True, num_samples=IMAGES)
    return torch.utils.data.DataLoader(images, 32, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)


def pass_seconds(loader):
    start = time.perf_counter()
    for _ in loader:
        pass
    return (time.perf_counter() - start) / IMAGES


def main():
    peer = f"torch {torch.__version__}, torchvision {torchvision.__version__}, PIL {PIL.__version__}"
    current, loader, samples = None, None, []
    for line in sys.stdin:
        name, _, rest = line.strip().partition("\t")
        mode, _, count = rest.partition("\t")
        answer = {"case": name, "peer": peer, "ns_per_op": None}
        if name:
            try:
                if current != (name, mode):
                    loader, samples, current = None, [], (name, mode)
                    word, _, folder = name.partition(" ")
                    if word != "images":
                        raise KeyError(f"not images: {name}")
                    loader = loader_of(folder, int(mode.partition("=")[2] or 1))
                    pass_seconds(loader)
                samples += [pass_seconds(loader) for _ in range(int(count))]
                answer["ns_per_op"] = statistics.median(samples) * 1e9
            except Exception as error:  # an unknown case is no reason to end
                answer["error"] = str(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
