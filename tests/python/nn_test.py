"""Modules, layers, optimizers, schedules, files and data in Python."""

import copy
import io
import os
import pickle
import tempfile
import unittest

import deft
import deft.nn.functional as F
from deft import nn, optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 2)
        self.register_buffer("seen", deft.zeros(1), persistent=False)
        self.scale = nn.Parameter(deft.ones(1))

    def forward(self, x):
        return self.last(F.relu(self.norm(self.first(x)))) * self.scale


class Modules(unittest.TestCase):
    def test_attributes_are_registered(self):
        net = Net()
        self.assertEqual([n for n, _ in net.named_parameters()],
                         ["scale", "first.weight", "first.bias", "norm.weight", "norm.bias", "last.weight", "last.bias"])
        self.assertEqual([n for n, _ in net.named_buffers()],
                         ["seen", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"])
        self.assertEqual([n for n, _ in net.named_children()], ["first", "norm", "last"])
        self.assertNotIn("seen", net.state_dict())
        with self.assertRaises(TypeError):
            net.scale = deft.ones(1)
        net.scale = None
        self.assertNotIn("scale", dict(net.named_parameters()))
        del net.first
        with self.assertRaisesRegex(AttributeError, "first"):
            net.first
        with self.assertRaisesRegex(AttributeError, "nearest is 'norm'"):
            net.nrm

    def test_init_comes_first(self):
        class Late(nn.Module):
            def __init__(self):
                self.weight = nn.Parameter(deft.ones(1))

        with self.assertRaisesRegex(AttributeError, "before Module.__init__"):
            Late()

    def test_state_goes_around(self):
        a, b = Net(), Net()
        result = b.load_state_dict(a.state_dict())
        self.assertEqual(repr(result), "<All keys matched successfully>")
        x = deft.randn(3, 4)
        self.assertTrue(deft.equal(a.eval()(x), b.eval()(x)))
        state = a.state_dict()
        del state["last.bias"]
        state["more"] = deft.ones(1)
        with self.assertRaisesRegex(RuntimeError, 'Missing key.*last.bias'):
            b.load_state_dict(state)
        loose = b.load_state_dict(state, strict=False)
        self.assertEqual((loose.missing_keys, loose.unexpected_keys), (["last.bias"], ["more"]))
        state["last.weight"] = deft.ones(1)
        with self.assertRaisesRegex(RuntimeError, "size mismatch for last.weight"):
            b.load_state_dict(state, strict=False)

    def test_modes_types_and_copies(self):
        net = Net().eval()
        self.assertFalse(net.norm.training)
        weight = net.first.weight
        net.double()
        self.assertIs(net.first.weight, weight)
        self.assertIs(weight.dtype, deft.float64)
        self.assertIs(net.norm.num_batches_tracked.dtype, deft.int64)
        self.assertIs(net(deft.ones(2, 4, dtype=deft.float64)).dtype, deft.float64)
        other = copy.deepcopy(net)
        self.assertIsNot(other.first.weight, weight)
        self.assertTrue(deft.equal(other.first.weight, weight))
        again = pickle.loads(pickle.dumps(net))
        self.assertTrue(deft.equal(again.last.bias, net.last.bias))
        net.requires_grad_(False)
        self.assertFalse(any(p.requires_grad for p in net.parameters()))

    def test_hooks(self):
        net, calls = nn.Linear(2, 2), []
        handles = [net.register_forward_pre_hook(lambda m, args: (args[0] * 0,)),
                   net.register_forward_hook(lambda m, args, out: calls.append(out.shape) or out + 1),
                   net.register_full_backward_hook(lambda m, gi, go: calls.append((gi[0].shape, go[0].shape)))]
        x = deft.ones(3, 2, requires_grad=True)
        y = net(x)
        self.assertTrue(deft.allclose(y, (net.bias + 1).expand(3, 2)))
        y.sum().backward()
        self.assertEqual(calls, [(3, 2), ((3, 2), (3, 2))])
        for h in handles:
            h.remove()
        self.assertTrue(deft.equal(net(x), F.linear(x, net.weight, net.bias)))

    def test_containers(self):
        s = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        self.assertEqual(len(s), 3)
        self.assertIsInstance(s[-1], nn.Linear)
        self.assertEqual(len(s[:2]), 2)
        s.append(nn.Tanh())
        self.assertEqual(list(s.state_dict()), ["0.weight", "0.bias", "2.weight", "2.bias"])
        m = nn.ModuleList([nn.Linear(1, 1)]).append(nn.ReLU())
        m.insert(0, nn.Identity())
        self.assertIsInstance(m[1], nn.Linear)
        d = nn.ModuleDict({"a": nn.ReLU()})
        self.assertIn("a", d)
        p = nn.ParameterList([deft.ones(1), deft.ones(2)])
        self.assertEqual(len(list(p.parameters())), 2)
        q = nn.ParameterDict({"w": deft.ones(1)})
        self.assertIsInstance(q["w"], nn.Parameter)

    def test_text(self):
        s = nn.Sequential(nn.Linear(2, 3), nn.ReLU(inplace=True), nn.Dropout(0.1))
        self.assertEqual(repr(s), "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): ReLU(inplace=True)\n"
                                  "  (2): Dropout(p=0.1, inplace=False)\n)")
        self.assertEqual(repr(nn.Conv2d(3, 6, 5, padding=2)), "Conv2d(3, 6, kernel_size=(5, 5), stride=(1, 1), padding=(2, 2))")


class Layers(unittest.TestCase):
    def check(self, layer, x, shape):
        y = layer(x)
        self.assertEqual(tuple(y.shape), shape)
        if y.requires_grad:
            y.square().sum().backward()
            for name, p in layer.named_parameters():
                self.assertIsNotNone(p.grad, name)

    def test_shapes_and_gradients(self):
        x4, x3, x5 = deft.randn(2, 4, 8, 8), deft.randn(2, 4, 8), deft.randn(1, 4, 4, 4, 4)
        for layer, x, shape in [
            (nn.Conv2d(4, 6, 3, padding=1, stride=2), x4, (2, 6, 4, 4)), (nn.Conv1d(4, 6, 3, padding="same"), x3, (2, 6, 8)),
            (nn.Conv3d(4, 2, 3), x5, (1, 2, 2, 2, 2)), (nn.ConvTranspose2d(4, 2, 2, stride=2), x4, (2, 2, 16, 16)),
            (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect", groups=2), x4, (2, 4, 8, 8)),
            (nn.BatchNorm2d(4), x4, (2, 4, 8, 8)), (nn.GroupNorm(2, 4), x4, (2, 4, 8, 8)), (nn.LayerNorm(8), x4, (2, 4, 8, 8)),
            (nn.RMSNorm(8), x4, (2, 4, 8, 8)), (nn.InstanceNorm2d(4, affine=True), x4, (2, 4, 8, 8)),
            (nn.MaxPool2d(2), x4, (2, 4, 4, 4)), (nn.AvgPool1d(2), x3, (2, 4, 4)), (nn.AdaptiveAvgPool2d((1, None)), x4, (2, 4, 1, 8)),
            (nn.AdaptiveMaxPool2d(2), x4, (2, 4, 2, 2)), (nn.Flatten(), x4, (2, 256)), (nn.Unflatten(1, (2, 2)), x4, (2, 2, 2, 8, 8)),
            (nn.ReflectionPad2d(1), x4, (2, 4, 10, 10)), (nn.ZeroPad2d((1, 0, 2, 0)), x4, (2, 4, 10, 9)),
            (nn.Upsample(scale_factor=2, mode="bilinear"), x4, (2, 4, 16, 16)), (nn.PixelShuffle(2), x4, (2, 1, 16, 16)),
            (nn.PReLU(4), x4, (2, 4, 8, 8)), (nn.GLU(1), x4, (2, 2, 8, 8)), (nn.Bilinear(3, 3, 2), None, None),
            (nn.LocalResponseNorm(3), x4, (2, 4, 8, 8)), (nn.Unfold(2), x4, (2, 16, 49)),
        ]:
            if x is not None:
                with self.subTest(type(layer).__name__):
                    self.check(layer, x, shape)
        self.check(nn.Embedding(5, 3, padding_idx=0), deft.tensor([[0, 4]]), (1, 2, 3))

    def test_activations_are_their_functions(self):
        x = deft.randn(3, 4)
        for name, function in [("ReLU", F.relu), ("GELU", F.gelu), ("SiLU", F.silu), ("Softplus", F.softplus), ("ELU", F.elu),
                               ("Hardswish", F.hardswish), ("LeakyReLU", F.leaky_relu), ("Sigmoid", deft.sigmoid)]:
            self.assertTrue(deft.equal(getattr(nn, name)()(x), function(x)), name)
        self.assertTrue(deft.allclose(nn.Softmax(dim=1)(x).sum(1), deft.ones(3)))
        y = x.clone()
        nn.ReLU(inplace=True)(y)
        self.assertTrue(deft.equal(y, x.relu()))

    def test_dropout_is_for_training(self):
        x, layer = deft.ones(1000), nn.Dropout(0.5)
        self.assertGreater(int((layer(x) == 0).sum()), 300)
        self.assertTrue(deft.equal(layer.eval()(x), x))

    def test_recurrent_layers_match_their_cells(self):
        x = deft.randn(5, 3, 4)
        for layer, cell, suffix in ((nn.LSTM(4, 6), nn.LSTMCell(4, 6), "_l0"), (nn.GRU(4, 6), nn.GRUCell(4, 6), "_l0"),
                                    (nn.RNN(4, 6, nonlinearity="relu"), nn.RNNCell(4, 6, nonlinearity="relu"), "_l0")):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(cell, name).data = getattr(layer, name + suffix).data
            output, _ = layer(x)
            state = None
            for step in range(5):
                state = cell(x[step], state)
                h = state[0] if isinstance(state, tuple) else state
                self.assertTrue(deft.allclose(output[step], h, atol=1e-5), type(layer).__name__)
        both = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True, dropout=0.1)
        y, (h, c) = both(x.transpose(0, 1))
        self.assertEqual((tuple(y.shape), tuple(h.shape)), ((3, 5, 12), (4, 3, 6)))
        y.sum().backward()
        self.assertIsNotNone(both.weight_hh_l1_reverse.grad)
        y, (h, c) = nn.LSTM(4, 6, proj_size=2)(x)
        self.assertEqual((tuple(y.shape), tuple(h.shape), tuple(c.shape)), ((5, 3, 2), (1, 3, 2), (1, 3, 6)))

    def test_packed_sequences(self):
        from deft.nn.utils import rnn

        x = deft.randn(4, 3, 2)
        lstm = nn.LSTM(2, 5)
        packed = rnn.pack_padded_sequence(x, [2, 4, 1], enforce_sorted=False)
        output, lengths = rnn.pad_packed_sequence(lstm(packed)[0])
        self.assertEqual(lengths.tolist(), [2, 4, 1])
        alone, _ = lstm(x[:2, :1])
        self.assertTrue(deft.allclose(output[:2, :1], alone, atol=1e-6))
        self.assertEqual(output[2:, 0].abs().sum().item(), 0)

    def test_attention_with_and_without_weights(self):
        x, attention = deft.randn(2, 5, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        padding = deft.tensor([[False] * 5, [False] * 3 + [True] * 2])
        a, w = attention(x, x, x, key_padding_mask=padding)
        b, none = attention(x, x, x, key_padding_mask=padding, need_weights=False)
        self.assertTrue(deft.allclose(a, b, atol=1e-5))
        self.assertIsNone(none)
        self.assertEqual(w[1, :, 3:].abs().sum().item(), 0)

    def test_transformers(self):
        model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        mask = nn.Transformer.generate_square_subsequent_mask(3)
        y = model(deft.randn(2, 4, 16), deft.randn(2, 3, 16), tgt_mask=mask)
        self.assertEqual(tuple(y.shape), (2, 3, 16))
        y.sum().backward()

    def test_losses(self):
        x, t = deft.randn(4, 3), deft.tensor([0, 2, 1, 0])
        self.assertTrue(deft.allclose(nn.CrossEntropyLoss()(x, t), nn.NLLLoss()(F.log_softmax(x, 1), t)))
        self.assertTrue(deft.allclose(nn.MSELoss(reduction="sum")(x, x * 0), x.square().sum()))
        p = deft.rand(4)
        self.assertTrue(deft.allclose(nn.BCEWithLogitsLoss()(p.logit() if hasattr(p, "logit") else (p / (1 - p)).log(), p.round()),
                                      nn.BCELoss()(p, p.round()), atol=1e-5))
        with self.assertRaises(ValueError):
            F.mse_loss(x, x, reduction="all")

    def test_init(self):
        w = deft.empty(200, 100)
        nn.init.kaiming_normal_(w, nonlinearity="relu")
        self.assertAlmostEqual(w.std().item(), (2 / 100) ** 0.5, delta=0.01)
        nn.init.orthogonal_(w)
        self.assertTrue(deft.allclose(w.t() @ w, deft.eye(100), atol=1e-4))
        nn.init.trunc_normal_(w, std=1, a=-0.5, b=0.5)
        self.assertLessEqual(w.abs().max().item(), 0.5)


class Optimizers(unittest.TestCase):
    def run_steps(self, make, steps=5):
        deft.manual_seed(0)
        w = nn.Parameter(deft.tensor([1.0, -2.0]))
        o = make([w])
        for _ in range(steps):
            o.zero_grad()
            (w * w).sum().backward()
            o.step()
        return w, o

    def test_numbers_by_hand(self):
        w, _ = self.run_steps(lambda p: optim.SGD(p, lr=0.1), 1)
        self.assertTrue(deft.allclose(w, deft.tensor([0.8, -1.6])))
        w, _ = self.run_steps(lambda p: optim.SGD(p, lr=0.1, momentum=0.9), 2)
        self.assertTrue(deft.allclose(w, deft.tensor([0.46, -0.92])))
        w, _ = self.run_steps(lambda p: optim.Adam(p, lr=0.1), 1)
        self.assertTrue(deft.allclose(w, deft.tensor([0.9, -1.9])))
        w, _ = self.run_steps(lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1), 1)
        self.assertTrue(deft.allclose(w, deft.tensor([0.89, -1.88])))

    def test_all_of_them_go_down_and_go_on(self):
        for make in (lambda p: optim.SGD(p, 0.05, momentum=0.9, nesterov=True), lambda p: optim.Adam(p, 0.05, amsgrad=True),
                     lambda p: optim.AdamW(p, 0.05), lambda p: optim.RMSprop(p, 0.05, momentum=0.5, centered=True),
                     lambda p: optim.Adagrad(p, 0.05), lambda p: optim.Lamb(p, 0.05)):
            w, o = self.run_steps(make)
            self.assertLess(float((w * w).sum()), 5, type(o).__name__)
            v = nn.Parameter(w.detach().clone())
            other = make([v])
            other.load_state_dict(pickle.loads(pickle.dumps(o.state_dict())))
            for q, opt in ((w, o), (v, other)):
                opt.zero_grad()
                (q * q).sum().backward()
                opt.step()
            self.assertTrue(deft.equal(w, v), type(o).__name__)

    def test_groups_and_what_has_no_gradient(self):
        a, b, c = (nn.Parameter(deft.ones(1)) for _ in range(3))
        o = optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.5)
        o.add_param_group({"params": [c]})
        (a + b).backward()
        o.step()
        self.assertEqual((a.item(), b.item(), c.item()), (0.5, 0, 1))
        with self.assertRaises(ValueError):
            o.add_param_group({"params": [a]})
        with self.assertRaises(ValueError):
            optim.SGD([], lr=0.1)
        with self.assertRaises(ValueError):
            optim.Adam([a], lr=-1)
        with self.assertRaises(TypeError):
            optim.Adam(a)

    def test_an_optimizer_of_ones_own(self):
        class Signs(optim.Optimizer):
            def __init__(self, params, lr):
                super().__init__(params, {"lr": lr})

            @deft.no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p.add_(p.grad.sign(), alpha=-group["lr"])

        w, _ = self.run_steps(lambda p: Signs(p, 0.25), 2)
        self.assertEqual(w.tolist(), [0.5, -1.5])

    def test_schedules(self):
        def rates(make, steps):
            o = optim.SGD([nn.Parameter(deft.ones(1))], lr=1.0)
            s, r = make(o), []
            for _ in range(steps):
                r.append(round(o.param_groups[0]["lr"], 6))
                o.step()
                s.step()
            return r

        L = optim.lr_scheduler
        self.assertEqual(rates(lambda o: L.StepLR(o, 2, 0.5), 5), [1, 1, 0.5, 0.5, 0.25])
        self.assertEqual(rates(lambda o: L.MultiStepLR(o, [1, 3], 0.1), 4), [1, 0.1, 0.1, 0.01])
        self.assertEqual(rates(lambda o: L.ExponentialLR(o, 0.5), 3), [1, 0.5, 0.25])
        self.assertEqual(rates(lambda o: L.CosineAnnealingLR(o, 4), 5), [1, 0.853553, 0.5, 0.146447, 0])
        self.assertEqual(rates(lambda o: L.LambdaLR(o, lambda e: 1 / (e + 1)), 3), [1, 0.5, 0.333333])
        self.assertEqual(rates(lambda o: L.LinearLR(o, 0.5, total_iters=2), 4), [0.5, 0.75, 1, 1])
        self.assertEqual(rates(lambda o: L.SequentialLR(o, [L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.5)], [2]), 5),
                         [0.1, 0.1, 1, 0.5, 0.25])
        one = rates(lambda o: L.OneCycleLR(o, 1.0, total_steps=10, cycle_momentum=False), 10)
        self.assertEqual((one[0], max(one)), (0.04, 1))
        o = optim.SGD([nn.Parameter(deft.ones(1))], lr=1.0)
        plateau = L.ReduceLROnPlateau(o, patience=1)
        for loss in (1, 1, 1, 1):
            plateau.step(loss)
        self.assertAlmostEqual(o.param_groups[0]["lr"], 0.1)

    def test_clipping(self):
        w = nn.Parameter(deft.tensor([3.0, 4.0]))
        w.sum().backward()
        w.grad = deft.tensor([3.0, 4.0])
        norm = nn.utils.clip_grad_norm_([w], 1.0)
        self.assertAlmostEqual(norm.item(), 5, places=5)
        self.assertTrue(deft.allclose(w.grad, deft.tensor([0.6, 0.8]), atol=1e-4))
        nn.utils.clip_grad_value_(w, 0.7)
        self.assertAlmostEqual(w.grad[1].item(), 0.7, places=5)

    def test_loss_scaling(self):
        w = nn.Parameter(deft.ones(1))
        o, scaler = optim.SGD([w], lr=1.0), deft.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
        scaler.scale((w * 0.5).sum()).backward()
        scaler.step(o)
        scaler.update()
        self.assertEqual((w.item(), scaler.get_scale()), (0.5, 16))
        w.grad = deft.tensor([float("inf")])
        scaler.step(o)
        scaler.update()
        self.assertEqual((w.item(), scaler.get_scale()), (0.5, 8))

    def test_a_network_learns(self):
        deft.manual_seed(1)
        x = deft.randn(64, 4)
        t = (x[:, 0] * x[:, 1] > 0).long()
        net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        o = optim.AdamW(net.parameters(), lr=0.02)
        for _ in range(150):
            o.zero_grad()
            loss = F.cross_entropy(net(x), t)
            loss.backward()
            o.step()
        self.assertLess(loss.item(), 0.1)


class Files(unittest.TestCase):
    def test_round_trips(self):
        value = {"model": Net().state_dict(), "epoch": 3, "rate": 0.5, "list": [1, None, True, "text", (2, 3)],
                 "half": deft.ones(2, dtype=deft.bfloat16), "empty": deft.zeros(0, 3)}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.pt")
            deft.save(value, path)
            self.assertEqual(os.listdir(folder), ["a.pt"])
            back = deft.load(path)
        self.assertEqual((back["epoch"], back["rate"], back["list"]), (3, 0.5, [1, None, True, "text", (2, 3)]))
        for name, t in value["model"].items():
            self.assertTrue(deft.equal(back["model"][name], t), name)
        self.assertIs(back["half"].dtype, deft.bfloat16)
        self.assertEqual(tuple(back["empty"].shape), (0, 3))
        buffer = io.BytesIO()
        deft.save([deft.arange(3).view(3, 1).t()], buffer)
        buffer.seek(0)
        self.assertEqual(deft.load(buffer)[0].tolist(), [[0, 1, 2]])

    def test_optimizer_states_round_trip(self):
        w = nn.Parameter(deft.ones(2))
        o = optim.Adam([w])
        w.sum().backward()
        o.step()
        buffer = io.BytesIO()
        deft.save(o.state_dict(), buffer)
        buffer.seek(0)
        other = optim.Adam([nn.Parameter(deft.ones(2))])
        other.load_state_dict(deft.load(buffer))
        self.assertEqual(next(iter(other.state.values()))["step"], 1)

    def test_safetensors(self):
        from deft import safetensors

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.safetensors")
            safetensors.save_file({"x": deft.arange(3), "y": deft.ones(2, 2).half()}, path, {"by": "deft"})
            back = safetensors.load_file(path)
            self.assertEqual(back["x"].tolist(), [0, 1, 2])
            self.assertIs(back["y"].dtype, deft.float16)
            self.assertEqual(safetensors.load_metadata(path), {"by": "deft"})
            self.assertEqual(deft.load(path)["x"].tolist(), [0, 1, 2])

    def test_bad_files(self):
        with self.assertRaises(FileNotFoundError):
            deft.load("/no/such/file.pt")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.pt")
            with open(path, "wb") as f:
                f.write(b"PK\x03\x04 not an archive")
            with self.assertRaises(RuntimeError):
                deft.load(path)
            with self.assertRaises(RuntimeError):
                deft.save(1, os.path.join(folder, "no", "a.pt"))
            deft.save(1, path)
            with self.assertRaises(Exception):
                deft.save([1, lambda: 0], path)
            self.assertEqual((deft.load(path), os.listdir(folder)), (1, ["bad.pt"]))  # the old file is still there
        with self.assertRaises(NotImplementedError):
            deft.load("x", weights_only=False)


class Rows(deft.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        if i == 99:
            raise KeyError("99")
        return deft.tensor([float(i)]), i


class Data(unittest.TestCase):
    def test_batches(self):
        from deft.utils import data

        loader = data.DataLoader(Rows(), batch_size=4)
        self.assertEqual([b[1].tolist() for b in loader], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
        self.assertEqual((len(loader), len(data.DataLoader(Rows(), 4, drop_last=True))), (3, 2))
        deft.manual_seed(3)
        order = [i for b in data.DataLoader(Rows(), 3, shuffle=True) for i in b[1].tolist()]
        self.assertEqual(sorted(order), list(range(10)))
        self.assertNotEqual(order, list(range(10)))
        a, b = data.random_split(Rows(), [0.7, 0.3])
        self.assertEqual(sorted([a[i][1] for i in range(7)] + [b[i][1] for i in range(3)]), list(range(10)))
        t = data.TensorDataset(deft.arange(4), deft.ones(4))
        self.assertEqual(next(iter(data.DataLoader(t, 2)))[0].tolist(), [0, 1])

    def test_worker_processes(self):
        from deft.utils import data

        deft.ones(300, 300) @ deft.ones(300, 300)  # threads have started before the fork
        loader = data.DataLoader(Rows(), batch_size=3, num_workers=2)
        self.assertEqual([b[1].tolist() for b in loader], [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]])
        bad = data.DataLoader(Rows(), batch_sampler=[[1], [99]], num_workers=1)
        with self.assertRaisesRegex(KeyError, "worker process"):
            list(bad)

    def test_checkpointing_gives_the_same_gradients(self):
        from deft.utils.checkpoint import checkpoint, checkpoint_sequential

        net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
        x = deft.randn(2, 3)
        net(x).sum().backward()
        want = [p.grad.tolist() for p in net.parameters()]
        for run in (lambda: checkpoint(net, x, use_reentrant=False), lambda: checkpoint_sequential(net, 2, x)):
            net.zero_grad()
            run().sum().backward()
            self.assertEqual([p.grad.tolist() for p in net.parameters()], want)

    def test_compiled_modules_and_functions(self):
        net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)).eval()
        fast, x = deft.compile(net), deft.randn(2, 3)
        with deft.no_grad():
            for _ in range(3):
                self.assertTrue(deft.allclose(fast(x), net(x), atol=1e-6))
        self.assertGreater(fast.stats()["replays"], 0)
        fast(x).sum().backward()

        @deft.compile
        def both(a, b=None, scale=2):
            return {"sum": a + b, "scaled": [a * scale]}

        for _ in range(3):
            r = both(deft.ones(2), b=deft.ones(2), scale=3)
        self.assertEqual((r["sum"].tolist(), r["scaled"][0].tolist()), ([2, 2], [3, 3]))
        self.assertEqual(both(deft.ones(2), deft.ones(2))["scaled"][0].tolist(), [2, 2])


if __name__ == "__main__":
    unittest.main()
