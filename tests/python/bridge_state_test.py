"""What the user does between calls of a bridged model."""

import copy
import threading
import unittest

from bridge_case import Case, bridged, cnn, mlp, nn, torch


class State(Case):
    """What the user does between calls."""

    def test_weights_that_change(self):
        model, given = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), torch.randn(32, 64)
        fast = bridged(model)

        def check(what):
            with torch.no_grad():
                for _ in range(3):
                    torch.testing.assert_close(fast(given), model(given), msg=what)

        check("the first calls")
        with torch.no_grad():
            model[0].weight.mul_(2)
        check("a write in place")
        model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
        check("load_state_dict")
        model[0].weight.data = torch.randn(64, 64)
        check("another memory")
        model[0].weight.data.copy_(torch.randn(64, 64))
        check("a write that counts no version")
        model[2].bias = nn.Parameter(torch.randn(8))
        check("another parameter")
        for k in range(5):
            with torch.no_grad():
                model[0].weight.add_(0.1)
            check(f"write {k}")

    def test_folded_batch_norm_follows(self):
        model, given = cnn().eval(), torch.randn(2, 3, 12, 12)
        fast = bridged(model)
        with torch.no_grad():
            for k in range(6):
                for _ in range(2):
                    torch.testing.assert_close(fast(given), model(given))
                model[1].running_mean.add_(0.5)
                model[4].weight.mul_(1.1)

    def test_buffers_are_written(self):
        class Counter(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(3))

            def forward(self, x):
                self.seen.add_(x.sum(0))
                return x * self.seen

        for grad in (True, False):
            model = Counter()
            plain = copy.deepcopy(model)
            fast, before = bridged(model), model.seen._version
            for _ in range(3):
                given = torch.randn(2, 3, requires_grad=grad)
                with torch.set_grad_enabled(grad):
                    torch.testing.assert_close(fast(given), plain(given))
                torch.testing.assert_close(model.seen, plain.seen)
            self.assertGreaterEqual(model.seen._version, before + 3)

    def test_inputs_are_written(self):
        fast = bridged(lambda a: a.add_(1).mul(2))
        for _ in range(3):
            given = torch.zeros(3)
            version = given._version
            torch.testing.assert_close(fast(given), torch.full((3,), 2.0))
            torch.testing.assert_close(given, torch.ones(3))
            self.assertGreater(given._version, version)

    def test_results_are_the_callers(self):
        fast = bridged(mlp())
        with torch.no_grad():
            a = fast(torch.ones(2, 16))
            kept = a.clone()
            b = fast(torch.zeros(2, 16))
            self.assertTrue(torch.equal(a, kept))
            self.assertFalse(torch.equal(a, b))
            del a, b
            view = fast(torch.ones(2, 16))[1:]
            fast(torch.zeros(2, 16))
            torch.testing.assert_close(view, kept[1:])

    def test_modes(self):
        model, given = mlp(), torch.randn(2, 16)
        fast = bridged(model)
        self.assertTrue(fast(given).requires_grad)
        with torch.no_grad():
            self.assertFalse(fast(given).requires_grad)
        with torch.inference_mode():
            y = fast(given)
            self.assertTrue(y.is_inference())
            torch.testing.assert_close(y, model(given))

    def test_random_numbers_follow_torch(self):
        model, given = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3)), torch.randn(4, 8)
        fast = bridged(model)
        for seed in (1, 2, 1):
            torch.manual_seed(seed)
            ours = fast(given), torch.rand(1)
            torch.manual_seed(seed)
            theirs = model(given), torch.rand(1)
            torch.testing.assert_close(ours, theirs)

    def test_threads(self):
        model, given = cnn().eval(), torch.randn(2, 3, 12, 12)
        fast, wrong = bridged(model), []
        with torch.no_grad():
            expected = model(given)

        def work():
            with torch.no_grad():
                for _ in range(20):
                    if not torch.allclose(fast(given), expected, atol=1e-5):
                        wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
