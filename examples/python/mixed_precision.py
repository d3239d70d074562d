"""autocast and GradScaler, gradients summed over several batches, clipping, and a schedule that warms up."""

import deft as torch
from deft import nn

torch.manual_seed(0)
x = torch.randn(64, 16)
target = (x[:, :4].sum(1, keepdim=True) > 0).float()

model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 1))
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() <= 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=5e-3)
schedule = torch.optim.lr_scheduler.SequentialLR(
    optimizer, [torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
                torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=35)], milestones=[5])
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
criterion = nn.BCEWithLogitsLoss()
parts = 4
for step in range(40):
    for rows, wanted in zip(x.chunk(parts), target.chunk(parts)):
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            loss = criterion(model(rows), wanted) / parts
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    assert torch.isfinite(norm)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    schedule.step()

with torch.inference_mode():
    right = ((model(x) > 0).float() == target).float().mean().item()
assert right > 0.95, right
print("learned; the weights are", model[0].weight.dtype == torch.float32 and "float32")
