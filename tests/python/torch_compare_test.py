"""The same expressions in PyTorch and in Deft: values, and gradients of what can be trained. Skipped where PyTorch is not installed."""

import math
import os
import subprocess
import sys
import unittest

from torch_python import torch_python

import deft

try:
    import torch
except ImportError:
    torch = None


def data(T):
    """Inputs of both, the same in every call."""
    f = T.arange(24, dtype=T.float32).reshape(2, 3, 4)
    a = T.tensor([3.0, 1.0, 2.0, -0.5])
    m = (T.arange(16, dtype=T.float32).reshape(4, 4) * 0.7).sin() + T.eye(4) * 2
    return f, a, m


# One expression per line: f is 2x3x4, a has 4 elements, m is a regular 4x4 matrix; T is the library.
EXPRESSIONS = """
T.addbmm(m[:3, :3], f[:, :, :3], f[:, :, :3], beta=2, alpha=0.5)
T.addmv(a, m, a), T.addr(m, a, a, beta=0.5), T.inner(f, a), T.vdot(a, a), T.kron(m[:2, :2], a), T.matrix_power(m, 3), m.matrix_power(-1)
T.cross(a[:3], m[0, :3], dim=0), T.linalg.cross(f[:, :, :3], f[:, :, :3].flip(-1)), T.trace(m), T.linalg.multi_dot([m, m, m])
T.cdist(m, m[:2]), T.cdist(m, m + 1, p=1.0), T.dist(a, a * 2, 3), T.renorm(m, 2, 0, 1.5)
T.inverse(m), T.det(m), T.logdet(m @ m.t()), T.linalg.slogdet(m)[1], T.linalg.solve(m, a), T.linalg.solve(m, m.t()), T.linalg.inv(m)
T.linalg.cholesky(m @ m.t() + T.eye(4)), T.linalg.qr(m)[0], T.linalg.qr(m)[1]
T.linalg.norm(m), T.linalg.norm(a, 1), T.linalg.matrix_norm(m, 1), T.linalg.matrix_norm(f, math.inf), T.linalg.vector_norm(f, 3, dim=(0, 2))
T.atleast_1d(T.tensor(1.0)), T.atleast_2d(a), T.atleast_3d(m), T.column_stack([a, a]), T.dstack([a, a]), T.block_diag(m, a)
T.tensor_split(a, 3), T.tensor_split(a, [1, 3]), T.hsplit(m, 2), T.vsplit(m, [1]), T.dsplit(f, 2), T.split_with_sizes(a, [1, 3])
T.cartesian_prod(a, a[:2]), T.combinations(a, 3), T.combinations(a[:2], with_replacement=True), T.fliplr(m), T.flipud(m), T.rot90(m, 3)
T.diagflat(a, 1), T.diag_embed(m), T.diag_embed(a, 1), T.diagonal_scatter(m, a), T.select_scatter(m, a, 1, 2)
T.slice_scatter(m, m[:2], 0, 1, 3), T.deg2rad(a), T.rad2deg(a), T.float_power(a.abs(), 1.5), T.heaviside(a, a), T.ldexp(a, T.tensor([1, 2]).repeat(2))
T.logaddexp2(a, a * 2), T.logit(a.sigmoid()), T.sinc(a), T.sgn(a), T.signbit(a), T.isneginf(a), T.isposinf(a / 0), T.isin(a, a[:2])
T.gcd(T.tensor([12, 18, 7]), T.tensor([8, 27, 0])), T.lcm(T.tensor([4, 6]), T.tensor([6, 9])), T.round(a * 1.23456, decimals=2)
T.nanmean(T.tensor([1.0, math.nan, 3.0])), T.nanmedian(T.tensor([1.0, math.nan, 3.0])), T.nanquantile(T.tensor([1.0, math.nan, 3.0]), 0.3)
T.kthvalue(m, 2), T.kthvalue(m, 2, 0, True), T.mode(T.tensor([[1, 2, 2], [3, 3, 1]])).values, T.msort(m), T.cummax(m, 1), T.cummin(m, 0)
T.logcumsumexp(m, 1), T.trapezoid(m), T.trapezoid(m, a.cumsum(0)), T.cumulative_trapezoid(a, dx=0.5), T.gradient(m), T.gradient(a, spacing=2.0)
T.cov(m), T.cov(m, fweights=T.tensor([1, 2, 1, 3])), T.corrcoef(m), T.bincount(T.tensor([1, 3, 1])), T.bincount(T.tensor([1, 0]), a[:2], 4)
T.histc(a, 4, -1, 3), T.histogram(a, 3), T.searchsorted(a.sort().values, m), T.bucketize(m, a.sort().values, right=True)
T.unique_consecutive(T.tensor([1, 1, 2, 1]), return_inverse=True, return_counts=True), T.index_copy(m, 0, T.tensor([2, 0]), m[:2])
T.index_fill(m, 1, T.tensor([3]), 9.0), T.masked_scatter(m, m > 0.5, T.arange(16.0)), T.take_along_dim(m, m.argsort(1), 1)
m.index_put((T.tensor([0, 1]), T.tensor([1, 1])), a[:2]), a.put(T.tensor([0, 3]), a[:2]), T.unravel_index(T.tensor([5, 7]), (2, 4))
T.repeat_interleave(a, T.tensor([2, 0, 1, 3])), T.repeat_interleave(T.tensor([2, 1])), m.repeat_interleave(T.tensor([2]), 1)
T.logspace(0, 2, 4), T.tril_indices(3, 3), T.triu_indices(2, 3, 1), T.vander(a, 3), T.vander(a, increasing=True)
T.hann_window(5), T.hamming_window(6, False), T.blackman_window(7), T.bartlett_window(5), T.empty_strided((2, 3), (1, 2)).stride()
T.special.expit(a), T.special.entr(a.abs()), T.special.ndtr(a), T.std_mean(m, 0), m.H, m.adjoint(), f.sum_to_size(3, 1), m.clone().fill_diagonal_(0)
m.clone().cumsum_(0), m.clone().tril_(), a.clone().unsqueeze_(0), m.clone().t_(), a.clone().resize_(2, 2), a.clone().index_fill_(0, T.tensor([1]), 5.0)
m.clone().index_copy_(0, T.tensor([1]), m[:1]), a.clone().put_(T.tensor([0]), a[:1] * 9), m.clone().addmm_(m, m), a.clone().apply_(lambda v: v + 1)
T.zeros(3).scatter_reduce_(0, T.tensor([0, 0, 2, 1]), a, "amax", include_self=False), T.finfo(T.float16).max, T.iinfo(T.int8).min, T.range(1, 4)
F.multi_margin_loss(m, T.tensor([0, 3, 1, 2]), p=2), F.multilabel_margin_loss(m, T.tensor([[0, 3, -1, 1]] * 4)), F.triplet_margin_with_distance_loss(m, m + 1, m.t(), swap=True)
F.ctc_loss(x60.view(6, 2, 5).log_softmax(2), T.tensor([[1, 2, 2], [3, 4, 0]]), T.tensor([6, 5]), T.tensor([3, 2]), reduction="none")
F.ctc_loss(x60.view(6, 2, 5).log_softmax(2), T.tensor([1, 2, 2, 3]), T.tensor([6, 4]), T.tensor([3, 1]))
F.ctc_loss(m.view(4, 1, 4).log_softmax(2), T.tensor([[1, 2]]), T.tensor([4]), T.tensor([2])), F.ctc_loss(m.log_softmax(1), T.tensor([3, 3]), T.tensor(4), T.tensor(2), blank=1)
F.ctc_loss(f.log_softmax(2), T.tensor([[1, 1], [2, 3], [0, 0]]), (2, 2, 1), (2, 2, 0), blank=1, zero_infinity=True, reduction="sum")
F.lp_pool1d(m.abs().unsqueeze(0), 2, 2), F.lp_pool2d(f.unsqueeze(0), 3, 2), F.max_unpool1d(*F.max_pool1d(m.unsqueeze(0), 2, return_indices=True), 2)
F.max_unpool2d(*F.max_pool2d(f.unsqueeze(0), 2, return_indices=True), 2, output_size=(3, 4)), F.embedding_bag(T.tensor([0, 1, 1, 3]), m, T.tensor([0, 0, 3]), mode="sum")
F.embedding_bag(T.tensor([[0, 1], [2, 2]]), m), F.embedding_bag(T.tensor([[0, 1], [2, 2]]), m, mode="max"), F.embedding_bag(T.tensor([[0, 1]]), m, mode="sum", per_sample_weights=a[None, :2])
F.grid_sample(f.unsqueeze(0), F.affine_grid(T.tensor([[[0.9, 0.1, 0.2], [0.0, 1.1, -0.1]]]), (1, 2, 4, 5), align_corners=False), align_corners=False)
F.grid_sample(f.unsqueeze(0), m.reshape(1, 2, 4, 2) * 0.8, padding_mode="border", align_corners=True), F.grid_sample(f.unsqueeze(0), m.reshape(1, 2, 4, 2), padding_mode="reflection", align_corners=False)
F.grid_sample(f.unsqueeze(0), m.reshape(1, 2, 4, 2) * 0.77, mode="nearest", align_corners=False), F.pdist(m), F.pdist(m, 1.0)
F.upsample_nearest(f.unsqueeze(0), scale_factor=2), F.selu_(m.clone()), F.max_pool2d_with_indices(f.unsqueeze(0), 2), T.pixel_shuffle(x60[:32].view(1, 8, 2, 2), 2)
nn.utils.parametrizations.weight_norm(fixed(nn.Linear(4, 3)))(m), nn.utils.weight_norm(fixed(nn.Linear(4, 3)), dim=None)(m)
nn.utils.fuse_conv_bn_eval(fixed(nn.Conv2d(2, 3, 2)).eval(), fixed(nn.BatchNorm2d(3)).eval())(f.unsqueeze(0))
fixed(nn.EmbeddingBag(5, 3, mode="sum"))(T.tensor([0, 4, 2]), T.tensor([0, 2])), fixed(nn.LSTM(4, 3, proj_size=2))(f)[0], fixed(nn.Linear(4, 3, bias=False))(m)
T.autograd.functional.jacobian(lambda t: t * t.sum(), a), T.autograd.functional.hessian(lambda t: (t ** 3).sum() * t[0], a)
T.autograd.functional.vjp(lambda t: t ** 2, a, a), T.autograd.functional.jvp(lambda t: t ** 2 * t[0], a, a), T.autograd.functional.hvp(lambda t: (t ** 3).sum(), a, a), T.autograd.functional.vhp(lambda t: (t ** 3).sum(), a, a)
T.lgamma(a), T.lgamma(m), T.special.gammaln(x60 * 7), T.lgamma(T.tensor([0.0, -1.0, -0.0, 1e10, -math.inf, math.inf, 1e-30]))
T.digamma(a), T.special.psi(m), T.digamma(x60.double() * 9), T.digamma(T.tensor([0.0, -0.0, -2.0, 1e9, math.inf])), T.mvlgamma(a.abs() + 2, 3)
T.polygamma(1, a), T.polygamma(1, x60.double() * 5.9), T.polygamma(2, a.abs()), T.polygamma(4, m.double().abs() + 0.1), a.polygamma(0), a.clone().lgamma_()
T.angle(a), T.angle(T.tensor([1, -2])), T.frexp(a), T.frexp(T.tensor([0.0, 8.0, 0.125, -3e38, 1e-45, 0.99999994])), m.t().dim_order(), a.is_set_to(a[:])
T.index_reduce(m, 0, T.tensor([2, 0, 2]), m[1:], "prod"), m.clone().index_reduce_(1, T.tensor([3, 3]), m[:, :2], "amax", include_self=False)
m.index_reduce(0, T.tensor([1, 1]), m[:2], "mean"), T.nonzero_static(T.tensor([0, 3, 0, 4]), size=3), T.nonzero_static(m > 0, size=2), a.to_dense()
T.as_strided_scatter(m, a, (4,), (5,)).detach(), T.unsafe_split(a, 2), T.unsafe_chunk(m, 2, 1), T.constant_pad_nd(a, (1, 2), 3.0), T.norm_except_dim(m, 2, 1)
T.clip_(a.clone(), -1, 1), T.addmv_(a.clone(), m, a), T.conj_physical(a), T.resolve_conj(a), T.is_conj(a), a.new_empty_strided((2, 3), (1, 2)).stride()
F.fractional_max_pool2d(f.unsqueeze(0), 2, (2, 3), _random_samples=T.tensor([[[0.3, 0.8], [0.1, 0.6]]]), return_indices=True)
F.fractional_max_pool2d(f, (1, 2), output_ratio=(0.7, 0.7), _random_samples=T.tensor([[[0.9, 0.2], [0.5, 0.4]]]))
F.fractional_max_pool3d(x60.view(1, 1, 4, 3, 5), (2, 1, 2), (2, 2, 3), _random_samples=T.tensor([[[0.3, 0.7, 0.55]]]), return_indices=True)
F.adaptive_max_pool2d_with_indices(f.unsqueeze(0), 2), F.conv_tbc(f, x60[:24].view(2, 4, 3), a[:3], 1)
F.embedding(T.tensor([[0, 1], [1, 3]]), m, scale_grad_by_freq=True) * a, F.embedding(T.tensor([1, 2, 1]), m.clone(), max_norm=0.8, norm_type=1.0)
F.embedding(T.tensor([3, 1]), m, padding_idx=-1), F.embedding_bag(T.tensor([0, 1, 1, 3]), m, T.tensor([0, 2, 2, 4]), include_last_offset=True)
F.embedding_bag(T.tensor([0, 1, 1, 3]), m, T.tensor([0, 1]), scale_grad_by_freq=True, mode="sum"), F.embedding_bag(T.tensor([0, 1, 3]), m, T.tensor([0, 2, 2]), mode="max", padding_idx=1)
F.embedding_bag(T.tensor([0, 3, 1, 3]), m, T.tensor([0, 3]), padding_idx=3), F.embedding_bag(T.tensor([[0, 1], [2, 2]]), m.clone(), max_norm=1.0)
fixed(nn.AdaptiveLogSoftmaxWithLoss(4, 10, [2, 5], head_bias=True))(m, T.tensor([0, 3, 9, 5])), fixed(nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3], div_value=2.0)).log_prob(m)
fixed(nn.AdaptiveLogSoftmaxWithLoss(4, 10, [2, 5]))(a, T.tensor(7)), fixed(nn.AdaptiveLogSoftmaxWithLoss(4, 10, [1, 5])).predict(m * 9)
nn.RNNBase("RNN_RELU", 4, 3).mode == "RNN_RELU", fixed(nn.GroupNorm(1, 3, bias=False))(f), fixed(nn.BatchNorm1d(3, bias=False))(f), list(nn.BatchNorm2d(3, bias=False).state_dict()) == []
F.interpolate(f.unsqueeze(0), scale_factor=1.7, mode="bilinear", recompute_scale_factor=True), F.interpolate(f.unsqueeze(0), scale_factor=0.6, mode="bilinear"), F.softmin(m, 0, dtype=T.float64)
fixed(nn.Embedding(4, 4, max_norm=0.7))(T.tensor([0, 0, 2])), fixed(nn.EmbeddingBag(4, 4, max_norm=0.7))(T.tensor([[0, 2], [1, 1]]))
""".strip().splitlines()

OPTIMIZERS = {
    "SGD": dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), "Adam": dict(lr=0.1, amsgrad=True, weight_decay=0.1, decoupled_weight_decay=True), "AdamW": dict(lr=0.1),
    "Adamax": dict(lr=0.1, weight_decay=0.1), "NAdam": dict(lr=0.1, decoupled_weight_decay=True, weight_decay=0.1), "RAdam": dict(lr=0.1),
    "Adadelta": dict(lr=1.0, rho=0.8), "Adagrad": dict(lr=0.1, lr_decay=0.1), "RMSprop": dict(lr=0.1, centered=True, momentum=0.5),
    "Rprop": dict(lr=0.1), "ASGD": dict(lr=0.1, t0=3), "Adafactor": dict(lr=0.1, weight_decay=0.1),
}


def flat(value):
    """All numbers in a result, in order."""
    if hasattr(value, "detach"):
        value = value.detach().double().reshape(-1).tolist() if value.dtype is not None else value
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in flat(part)]
    return [float(value)]


def shapes(value):
    if hasattr(value, "detach"):
        return [tuple(value.shape)]
    return [s for part in value for s in shapes(part)] if isinstance(value, (list, tuple)) else []


def names_for(T):
    f, a, m = data(T)

    def fixed(module):
        with T.no_grad():
            for i, p in enumerate(module.parameters()):
                p.copy_((T.arange(p.numel(), dtype=T.float32) + i).cos().reshape(p.shape) * 0.5)
        return module

    return dict(T=T, F=T.nn.functional, nn=T.nn, math=math, fixed=fixed, f=f, a=a, m=m, x60=T.linspace(-1, 1, 60))


def evaluate(expression, T):
    """Its value, and the gradients of the sum of what is trained in it."""
    names = names_for(T)
    value = eval(expression, names)
    gradients = []
    for name in ("f", "a", "m"):
        names = names_for(T)
        names[name].requires_grad_()
        try:
            parts = eval(expression, names)
            parts = parts if isinstance(parts, (list, tuple)) else (parts,)
            total = sum((p * p).sum() for p in parts if hasattr(p, "grad_fn") and p.requires_grad and p.is_floating_point())
            gradients.append(T.autograd.grad(total, names[name])[0] if hasattr(total, "grad_fn") else None)
        except (RuntimeError, TypeError, ValueError):
            gradients.append(None)  # one of the two writes in place, or has no gradient here
    return value, gradients


@unittest.skipIf(torch is None, "PyTorch is not installed; ./dev torch installs it")
class Compare(unittest.TestCase):
    def assert_close(self, ours, theirs, what, tolerance=2e-5):
        a, b = flat(ours), flat(theirs)
        self.assertEqual(len(a), len(b), what)
        for x, y in zip(a, b):
            self.assertTrue(x == y or (x != x and y != y) or abs(x - y) <= tolerance * max(1.0, abs(y)), f"{what}: {x} is not {y}")

    def test_expressions(self):
        compared = 0
        for line in EXPRESSIONS:
            with self.subTest(line[:70]):
                (ours, our_grads), (theirs, their_grads) = evaluate(line, deft), evaluate(line, torch)
                self.assertEqual(shapes(ours), shapes(theirs))
                self.assert_close(ours, theirs, line)
                for name, g, expected in zip("fam", our_grads, their_grads):
                    if g is not None and expected is not None:
                        compared += 1
                        self.assert_close(g, expected, f"the gradient of {name} in {line}", 2e-4)
        self.assertGreater(compared, 40)

    def steps(self, T, name, options, count, state=None):
        w = T.nn.Parameter(T.tensor([[1.0, -2.0], [3.0, 0.5]]) if state is None else state["w"].clone())
        b = T.nn.Parameter(T.tensor([0.5]) if state is None else state["b"].clone())
        optimizer = getattr(T.optim, name)([{"params": [w]}, {"params": [b], "lr": 0.05}], **options)
        if state is not None:
            optimizer.load_state_dict(state["optimizer"])
        for _ in range(count):
            optimizer.zero_grad()
            ((w * w).sum() * 0.5 + (w * b).sum() + (w[0] ** 3).sum() * 0.1).backward()
            optimizer.step()
        return {"w": w.detach(), "b": b.detach(), "optimizer": optimizer.state_dict()}

    def test_optimizers(self):
        for name, options in OPTIMIZERS.items():
            with self.subTest(name):
                ours, theirs = self.steps(deft, name, options, 8), self.steps(torch, name, options, 8)
                self.assert_close([ours["w"], ours["b"]], [theirs["w"], theirs["b"]], name)
                again = self.steps(deft, name, options, 3, ours)
                straight = self.steps(deft, name, options, 11)
                self.assert_close(again["w"], straight["w"], name + " after load_state_dict()", 1e-6)

    def test_muon(self):
        for options in (dict(lr=0.02), dict(lr=0.02, nesterov=False, adjust_lr_fn="match_rms_adamw", ns_steps=3)):
            results = []
            for T in (deft, torch):
                wide, tall = (T.nn.Parameter(T.arange(12, dtype=T.float32).cos().reshape(shape) + T.eye(*shape)) for shape in ((3, 4), (4, 3)))
                optimizer = T.optim.Muon([wide, tall], **options)
                for _ in range(3):
                    optimizer.zero_grad()
                    ((wide @ tall - 3 * T.eye(3)) ** 2).sum().backward()
                    optimizer.step()
                results.append([wide, tall])
            self.assert_close(*results, f"Muon {options}", 6e-3)  # its matrices are orthogonalized in bfloat16

    def test_lbfgs(self):
        for options in (dict(lr=0.5, line_search_fn="strong_wolfe"), dict(lr=0.1, max_iter=7)):
            results = []
            for T in (deft, torch):
                w = T.nn.Parameter(T.tensor([1.0, 2.0]))
                optimizer = T.optim.LBFGS([w], **options)

                def closure():
                    optimizer.zero_grad()
                    loss = ((w - 3) ** 4).sum() + (w[0] * w[1]) ** 2
                    loss.backward()
                    return loss

                results.append([optimizer.step(closure) for _ in range(3)] + [w])
            self.assert_close(*results, "LBFGS", 1e-3)

    def test_layers_print_alike(self):
        for text in ("Linear(2, 3)", "Conv2d(3, 6, 3, padding=1, bias=False)", "BatchNorm2d(3)", "LayerNorm(4)", "GroupNorm(2, 4)",
                     "ParameterList([nn.Parameter(T.ones(2))])", "ModuleList([nn.Linear(1, 1)] * 3)", "MaxUnpool2d(2)", "LPPool2d(2, 3)",
                     "EmbeddingBag(5, 2)", "Embedding(5, 2, padding_idx=-1)", "Embedding(5, 2, max_norm=1.0)", "Upsample(scale_factor=2)", "Sequential(nn.ReLU(), nn.Flatten())", "ChannelShuffle(2)",
                     "LazyLinear(3)(T.ones(1, 2)) is None"):
            shown = [repr(eval("nn." + text, {"nn": T.nn, "T": T})) for T in (deft, torch)]
            self.assertEqual(shown[0].replace("deft.", "torch."), shown[1])


if __name__ == "__main__":
    python = torch_python()
    if torch is None and python is not None:
        sys.exit(subprocess.run([python, "-W", "ignore", *sys.argv], env=os.environ).returncode)
    unittest.main()
