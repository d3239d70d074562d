"""torch.compile(model, backend="deft") on a GPU: models, training, streams. Says that it skips where there is none."""

import bridge_case  # starts a Python that has PyTorch, or skips

import copy
import sys
import unittest
import warnings

import torch
from torch import nn
import torch.nn.functional as F

import deft
import deft.torch
from bridge_case import flat

if not (torch.cuda.is_available() and deft.cuda.is_available()):
    print("skipped: no GPU that both PyTorch and Deft can use")
    sys.exit(77)


def relative(a, b):
    a, b = a.double(), b.double()
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()


class Small(nn.Module):
    """Convolutions and batch norm, whose statistics a call writes."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(self.norm2(self.conv2(x)))
        return self.head(x.mean((2, 3)))


class Attends(nn.Module):
    def __init__(self, width=64, heads=4, causal=False, drop=0.0):
        super().__init__()
        self.heads, self.causal, self.drop = heads, causal, drop
        self.norm, self.into, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        b, n, w = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.into(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        return x + F.dropout(self.out(y.transpose(1, 2).reshape(b, n, w)), self.drop, self.training)


class OnGpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def close(self, ours, theirs, bound, what=""):
        for a, b in zip(flat(ours), flat(theirs), strict=True):
            self.assertEqual((a.shape, a.dtype, a.device), (b.shape, b.dtype, b.device), what)
            self.assertTrue(relative(a, b) <= bound, f"{what}: off by {relative(a, b)}")

    def wholly(self, model, *inputs):
        """All operators run on Deft, and none in torch."""
        found = deft.torch.explain(model, *inputs)
        self.assertEqual([r for r in found.rows if r["where"] == "torch"], [])

    def step(self, model, fast, x, bound):
        """One training step of both: results, gradients, buffers."""
        ours, theirs = copy.deepcopy(model), model
        compiled = fast(ours)
        a, b = compiled(x), theirs(x)
        self.close(a, b, bound, "result")
        a.square().mean().backward()
        b.square().mean().backward()
        for (name, p), q in zip(ours.named_parameters(), theirs.parameters()):
            self.close(p.grad, q.grad, bound, name)
        for (name, p), q in zip(ours.named_buffers(), theirs.buffers()):
            self.close(p, q, bound, name)

    def test_inference(self):
        for model, x in ((Small(), torch.randn(4, 3, 32, 32)), (Attends(), torch.randn(2, 17, 64)),
                         (nn.Sequential(nn.Linear(8, 9), nn.GELU(), nn.Linear(9, 3)), torch.randn(5, 8))):
            model, x = model.cuda().eval(), x.cuda()
            with torch.no_grad():
                for options in ({}, {"freezing": True}):
                    fast = deft.torch.compile(model, **options)
                    for _ in range(5):  # the recorded calls, too
                        self.close(fast(x), model(x), 1e-5, str(options))
                    self.close(fast(x * 2), model(x * 2), 1e-5, "another address")
                self.wholly(model, x)

    def test_channels_last(self):
        model = Small().cuda().eval().to(memory_format=torch.channels_last)
        x = torch.randn(4, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            self.close(deft.torch.compile(model)(x), model(x), 1e-5)

    def test_training_steps(self):
        for model, x in ((Small(), torch.randn(4, 3, 32, 32)), (Attends(), torch.randn(2, 17, 64)),
                         (Attends(causal=True), torch.randn(2, 17, 64))):
            self.step(model.cuda(), deft.torch.compile, x.cuda(), 2e-5)

    def test_half_precision(self):
        for dtype in (torch.bfloat16, torch.float16):
            model = Attends(causal=True).cuda().to(dtype)
            x = torch.randn(2, 33, 64, device="cuda", dtype=dtype)
            wide = copy.deepcopy(model).float()
            exact, near = wide(x.float()), model(x)
            ours = deft.torch.compile(model)(x)
            bound = 8 * max(relative(near, exact), torch.finfo(dtype).eps)
            self.close(ours.float(), exact, bound, str(dtype))
            self.wholly(model, x)

    def test_masks(self):
        model = Attends().cuda().bfloat16().eval()
        x = torch.randn(2, 16, 64, device="cuda", dtype=torch.bfloat16)
        mask = torch.ones(2, 1, 16, 16, dtype=torch.bool, device="cuda")
        mask[1, :, :, 11:] = False
        with torch.no_grad():
            for m in (mask, torch.where(mask, 0.0, -1e4).bfloat16()):
                self.close(deft.torch.compile(model)(x, m), model(x, m), 0.02)

    def test_autocast_and_scaler(self):
        losses = {}
        start = Small().cuda()
        x, y = torch.randn(16, 3, 32, 32, device="cuda"), torch.randint(0, 10, (16,), device="cuda")
        for name, fast in (("eager", lambda m: m), ("deft", deft.torch.compile)):
            model = copy.deepcopy(start)
            optimizer, scaler = torch.optim.AdamW(model.parameters(), 1e-3), torch.amp.GradScaler("cuda")
            run, losses[name] = fast(model), []
            for _ in range(10):
                with torch.autocast("cuda", torch.float16):
                    loss = F.cross_entropy(run(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                losses[name].append(loss.item())
        for a, b in zip(losses["deft"], losses["eager"]):
            self.assertTrue(abs(a - b) <= 0.02 * abs(b) + 1e-3, losses)
        self.assertLess(losses["deft"][-1], losses["deft"][0])

    def test_dropout_follows_the_seed(self):
        model = Attends(drop=0.5).cuda()
        x = torch.randn(4, 64, 64, device="cuda")
        fast = deft.torch.compile(model)
        found = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            found.append(fast(x).detach())
        self.assertTrue(torch.equal(found[0], found[1]))
        self.assertFalse(torch.equal(found[0], found[2]))

    def test_other_streams(self):
        """Results are right for work before and behind on any stream of torch's, and memory is not handed out too early."""
        model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda().eval()
        with torch.no_grad():
            fast = deft.torch.compile(model)
            side = torch.cuda.Stream()
            for i in range(30):
                with torch.cuda.stream(side if i % 2 else torch.cuda.current_stream()):
                    x = torch.randn(2048, 512, device="cuda")
                    for _ in range(10):  # work that the plan must wait for
                        x = x @ torch.eye(512, device="cuda")
                    y, expected = fast(x), model(x)
                    z = y * 2
                    del y
                    again = fast(x + 1)  # may take the memory of y
                    self.close(z, expected * 2, 1e-4)
                    self.close(again, model(x + 1), 1e-4)
                torch.cuda.synchronize()

    def test_changed_weights(self):
        model = nn.Linear(8, 8).cuda()
        x = torch.randn(4, 8, device="cuda")
        fast = deft.torch.compile(model)
        with torch.no_grad():
            fast(x)
            model.weight.data.mul_(3)  # which no version tells of
            self.close(fast(x), model(x), 1e-5)
            model.weight = nn.Parameter(torch.randn(8, 8, device="cuda"))
            self.close(fast(x), model(x), 1e-5)

    def test_dynamic_batch(self):
        model = Small().cuda().eval()
        fast = deft.torch.compile(model, dynamic=True)
        with torch.no_grad():
            for n in (2, 5, 3, 8):
                x = torch.randn(n, 3, 32, 32, device="cuda")
                self.close(fast(x), model(x), 1e-5)

    def test_operators_in_torch(self):
        def f(x):
            return torch.linalg.svdvals(x.sin() @ x.cos().T).sum() + x.exp().mean()

        x = torch.randn(6, 6, device="cuda")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.close(deft.torch.compile(f)(x), f(x), 1e-5)

    def test_both_devices(self):
        def f(x, y):
            return (x * 2).cpu() + y.relu()

        x, y = torch.randn(5, device="cuda"), torch.randn(5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.close(deft.torch.compile(f)(x, y), f(x, y), 1e-6)


if __name__ == "__main__":
    unittest.main()
