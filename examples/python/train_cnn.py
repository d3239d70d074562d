"""A classifier of small pictures: worker processes, batch norm, a schedule, validation, and a checkpoint to go on from."""

import os
import tempfile

import deft as torch
import deft.nn.functional as F
from deft import nn
from deft.utils.data import DataLoader, Dataset, random_split


class Stripes(Dataset):
    """Noisy pictures of stripes: horizontal, vertical or diagonal."""

    def __len__(self):
        return 240

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        y, x = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="ij")
        kind = i % 3
        stripes = ((y, x, x + y)[kind] // 2 % 2).float()
        return (stripes + 0.3 * torch.randn(12, 12, generator=g)).unsqueeze(0), kind


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(3))
        self.head = nn.Linear(16 * 9, 3)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, target in loader:
            right += (model(x).argmax(1) == target).sum().item()
            total += target.size(0)
    return right / total


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set = random_split(Stripes(), [200, 40], generator=torch.Generator().manual_seed(0))
    train = DataLoader(train_set, batch_size=20, shuffle=True, num_workers=2)
    val = DataLoader(val_set, batch_size=20)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
    for epoch in range(3):
        model.train()
        for x, target in train:
            optimizer.zero_grad()
            F.cross_entropy(model(x.to(device)), target.to(device)).backward()
            optimizer.step()
        schedule.step()
        torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    checkpoint = torch.load(path, map_location=device)
    again = Net().to(device)
    print(again.load_state_dict(checkpoint["model"]))
    found = accuracy(again, val)
    assert found == accuracy(model, val) and found > 0.9, found
    print(f"epoch {checkpoint['epoch']}, right: {'most' if found > 0.9 else 'few'}")


if __name__ == "__main__":
    main()
