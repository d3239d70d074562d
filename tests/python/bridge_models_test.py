"""Small models under torch.compile(backend="deft"): inference, training steps and loops."""

import copy
import unittest

from bridge_case import IN_INFERENCE, IN_TRAINING, MODELS, Case, bridged, cnn, deft, flat, in_float64, mlp, nn, state_after, torch, wholly

from deft.torch import _operators


class Models(Case):
    def test_inference(self):
        for name in IN_INFERENCE:
            make, inputs = MODELS[name]
            with self.subTest(name), torch.no_grad():
                model, given, record = make().eval(), inputs(), []
                exact = copy.deepcopy(model).double()(in_float64(given))
                fast = bridged(model, record)
                for _ in range(3):
                    self.check(fast(given), model(given), exact, name)
                self.assertTrue(wholly(record), [g.reasons for g in record])

    def test_training_step(self):
        for name in IN_TRAINING:
            make, inputs = MODELS[name]
            with self.subTest(name):
                model, given, record = make().train(), inputs(), []
                plain, exact = copy.deepcopy(model), copy.deepcopy(model).double()
                fast = bridged(model, record)
                for _ in range(2):  # the captures, and the plans
                    for m in (model, plain, exact):
                        m.zero_grad()
                    ours, theirs = state_after(model, fast, given), state_after(plain, plain, given)
                    self.check(ours, theirs, state_after(exact, exact, in_float64(given)), name)
                self.assertTrue(wholly(record), [g.reasons for g in record])
                self.assertEqual(len(record), 2)

    def losses(self, model, optimizer, call, data, target):
        found = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(call(data), target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    def test_training_loops_agree(self):
        for make_optimizer in (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.AdamW(p, lr=0.01)):
            model = mlp()
            plain = copy.deepcopy(model)
            data, target = torch.randn(32, 16), torch.randint(0, 5, (32,))
            ours = self.losses(model, make_optimizer(model.parameters()), bridged(model), data, target)
            theirs = self.losses(plain, make_optimizer(plain.parameters()), plain, data, target)
            self.assertLess(theirs[-1], 0.8 * theirs[0])
            for a, b in zip(ours, theirs):
                self.assertTrue(abs(a - b) <= 1e-4 * abs(b), (ours, theirs))

    def test_parts_are_joined(self):
        def function(a):
            q, k, v = a[0], a[1], a[2]
            left, right = a[..., :3], a[..., 3:]
            return (q * k + v).sum() + (left.exp().sum() * right.sin().sum())

        record = []
        fast = bridged(function, record)
        given, plain = (torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
        fast(given).backward()
        function(plain).backward()
        torch.testing.assert_close(given.grad, plain.grad)
        targets = {str(n.target) for n in record[-1].gm.graph.nodes}
        self.assertIn("aten.stack.default", targets)
        self.assertNotIn("aten.select_backward.default", targets)

    def test_heads_are_split_without_copies(self):
        """Batch and heads that a model joins and splits again, and parts that are stacked and turned, forward and backward."""
        def function(a):
            q, k, v = a.view(7, 2, 3, 12).permute(2, 0, 1, 3)
            q, k, v = (t.reshape(7, 8, 3).transpose(0, 1).reshape(2, 4, 7, 3) for t in (q, k, v))
            return nn.functional.scaled_dot_product_attention(q, k, v).permute(2, 0, 1, 3).reshape(14, 12)

        record = []
        fast, given = bridged(function, record), torch.randn(7, 2, 36, requires_grad=True)
        plain, exact = given.detach().clone().requires_grad_(), given.detach().double().requires_grad_()
        for _ in range(2):
            for x in (given, plain, exact):
                x.grad = None
            results = [f(x) for f, x in ((fast, given), (function, plain), (function, exact))]
            for y in results:
                y.square().sum().backward()
            self.check([results[0], given.grad], [results[1], plain.grad], [results[2], exact.grad])
        self.assertTrue(wholly(record), [g.reasons for g in record])
        before = record[0].regions[0].bridge.explain().split("scaled_dot_product_attention")[0]
        self.assertNotIn(" = clone(", before)

    def test_saved_tensors_reach_torch_as_it_traced_them(self):
        """The backward pass runs in torch, and views what the forward pass of Deft left with channels innermost."""
        model, given = cnn().train(), torch.randn(4, 3, 12, 12)
        plain, exact, record = copy.deepcopy(model), copy.deepcopy(model).double(), []
        backward = torch.ops.aten.native_batch_norm_backward.default
        row = _operators.TABLE.pop(backward)
        try:
            fast = bridged(model, record)
            for _ in range(2):
                for m in (model, plain, exact):
                    m.zero_grad()
                self.check(state_after(model, fast, given), state_after(plain, plain, given),
                           state_after(exact, exact, given.double()))
            self.assertEqual([bool(g.reasons) for g in record], [False, True])
        finally:
            _operators.TABLE[backward] = row

    def test_copies_of_what_is_written_stay(self):
        def function(a):
            before = a.clone()
            a.add_(1)
            return before, a * 2

        fast = bridged(function)
        for _ in range(3):
            given = torch.zeros(3)
            before, after = fast(given)
            self.assertEqual((before.tolist(), after.tolist(), given.tolist()), ([0.0] * 3, [2.0] * 3, [1.0] * 3))

    def test_memory_formats(self):
        """Results lie as torch's do, in inference and training."""
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
        fast = bridged(model)
        for form in (torch.contiguous_format, torch.channels_last):
            given = torch.randn(2, 3, 8, 8).contiguous(memory_format=form).requires_grad_()
            for grad in (True, False):
                with torch.set_grad_enabled(grad):
                    for _ in range(2):
                        ours, theirs = fast(given), model(given)
                        self.assertEqual(ours.stride(), theirs.stride())
                        torch.testing.assert_close(ours, theirs)

    def test_threads_are_torchs(self):
        before = torch.get_num_threads()
        fast = bridged(mlp())
        try:
            for n in (1, 2):
                torch.set_num_threads(n)
                fast(torch.randn(2, 16))
                self.assertEqual(deft.get_num_threads(), n)
        finally:
            torch.set_num_threads(before)

    def test_lstm(self):
        model, given = nn.LSTM(6, 8, batch_first=True), torch.randn(2, 5, 6)
        fast = bridged(model)
        with torch.no_grad():
            for a, b in zip(flat(fast(given)), flat(model(given))):
                torch.testing.assert_close(a, b)

    def test_autocast_stays_in_its_types(self):
        model, given, record = mlp(), torch.randn(8, 16), []
        fast = bridged(model, record)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours, theirs = fast(given), model(given)
        self.assertEqual((ours.dtype, theirs.dtype), (torch.bfloat16, torch.bfloat16))
        self.check([ours], [theirs], [model(given)])
        ours.float().sum().backward()
        self.assertTrue(wholly(record), [g.reasons for g in record])

    def test_sizes_that_change(self):
        model, record = cnn().eval(), []
        fast = bridged(model, record)
        with torch.no_grad():
            for n in (4, 7, 3, 1, 7, 4):
                given = torch.randn(n, 3, 12, 12)
                torch.testing.assert_close(fast(given), model(given))
        train = bridged(mlp())
        for n in (4, 7, 3):
            given = torch.randn(n, 16)
            loss = train(given).square().sum()
            loss.backward()


if __name__ == "__main__":
    unittest.main()
