"""What Deft lacks runs in torch and is said; options; errors."""

import copy
import sys
import unittest
import warnings

from bridge_case import Case, bridged, cnn, deft, mlp, nn, state_after, torch

from deft.torch import _operators


class Torch(Case):
    """What Deft lacks runs in torch and is said."""

    def test_by_name(self):
        model, given = mlp(), torch.randn(2, 16)
        with torch.no_grad():
            torch.testing.assert_close(torch.compile(model, backend="deft")(given), model(given))

    def test_unknown_options_are_errors(self):
        with self.assertRaisesRegex(Exception, "found an option 'freezin', expected one of .*; the nearest is 'freezing'"):
            torch.compile(lambda a: a + 1, backend="deft", options={"freezin": True})(torch.ones(2))
        with self.assertRaisesRegex(ValueError, "the nearest is 'precision'"):
            deft.torch.compile(mlp(), precison="bf16")
        for wrong in ({"precision": "f8"}, {"freezing": 1}, {"plans": 0}):
            with self.assertRaisesRegex(ValueError, f"deft.torch: found {next(iter(wrong))}="):
                deft.torch.compile(mlp(), **wrong)

    def test_precision(self):
        """Products are rounded, results keep their types, forward and backward."""
        model, given = mlp(), torch.randn(8, 16)
        plain = copy.deepcopy(model)
        fast = deft.torch.compile(model, precision="bf16")
        for _ in range(2):
            model.zero_grad()
            y = fast(given)
            y.square().sum().backward()
        z = plain(given)
        z.square().sum().backward()
        self.assertEqual(y.dtype, torch.float32)
        for ours, theirs in [(y, z)] + [(p.grad, q.grad) for p, q in zip(model.parameters(), plain.parameters())]:
            off = ((ours - theirs).abs().max() / theirs.abs().max()).item()
            self.assertTrue(2.0**-16 < off < 2.0**-4, off)

    def test_freezing(self):
        """No call looks at the weights: one that the model got later is not seen."""
        model, given = cnn().eval(), torch.randn(4, 3, 12, 12)
        fast = deft.torch.compile(model, freezing=True)
        with torch.no_grad():
            before = model(given)
            for _ in range(2):
                torch.testing.assert_close(fast(given), before)
            model[4].weight = nn.Parameter(torch.zeros(16, 2, 3, 3))
            torch.testing.assert_close(fast(given), before)
            self.assertFalse(torch.allclose(model(given), before))

    def test_plans_are_bounded(self):
        record = []
        fast = torch.compile(lambda a: a.exp() + 1, backend=lambda gm, inputs, **k: deft.torch.backend(
            gm, inputs, record=record, options={"plans": 2}, **k), dynamic=True)
        for n in (4, 5, 6, 7, 7, 6):
            torch.testing.assert_close(fast(torch.ones(n, 3)), torch.ones(n, 3).exp() + 1)
        stats = record[-1].regions[0].bridge.stats()
        self.assertEqual((len(record), stats["plans"], stats["captures"], stats["replays"]), (1, 2, 4, 2))

    def test_parts_run_in_torch(self):
        class Mixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.BatchNorm1d(8)

            def forward(self, x):
                return self.norm(self.b(torch.special.i0(self.a(x)).relu())) + torch.special.i0(x)

        model, given = Mixed(), torch.randn(4, 8)
        plain, exact, record = copy.deepcopy(model), copy.deepcopy(model).double(), []
        fast = bridged(model, record)
        for _ in range(3):
            ours, theirs = state_after(model, fast, given), state_after(plain, plain, given)
            self.check(ours, theirs, state_after(exact, exact, given.double()))
        self.assertTrue(all(g.regions and g.reasons for g in record))
        said = deft.torch.explain(model, given)
        self.assertIn("aten.i0.default", str(said))
        self.assertEqual(said.to_dict()["graphs"], 2)
        self.assertTrue(0 < said.share < 1 and 0 < said.time_share < 1)
        self.assertTrue(all(r["why"] for r in said.rows if r["where"] == "torch"))

    def test_explain_leaves_the_model_alone(self):
        model = cnn()
        before = copy.deepcopy(model.state_dict())
        said = deft.torch.explain(model, torch.randn(4, 3, 12, 12))
        self.assertEqual((said.share, said.breaks), (1.0, {}))
        self.assertTrue(all(p.grad is None for p in model.parameters()))
        for k, v in model.state_dict().items():
            self.assertTrue(torch.equal(v, before[k]), k)

    def test_complex_numbers_run_in_torch(self):
        fast = bridged(lambda a: torch.fft.rfft(a).abs() + a.sum())
        given = torch.randn(8)
        for _ in range(2):
            torch.testing.assert_close(fast(given), torch.fft.rfft(given).abs() + given.sum())

    def test_tensors_in_the_graph(self):
        table = torch.randn(4)

        def function(a):
            return a + torch.tensor([1.0, 2.0, 3.0, 4.0]) * table

        fast, given = bridged(function), torch.randn(4)
        for _ in range(2):
            torch.testing.assert_close(fast(given), function(given))

    def test_another_type_runs_in_torch(self):
        fast = bridged(lambda a: a * 2)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                self.assertEqual(fast(torch.ones(3, dtype=torch.int16)).dtype, torch.int16)
        self.assertEqual(sum("int16" in str(w.message) for w in said), 1)

    def test_faults_of_rows_are_survived(self):
        gelu = torch.ops.aten.gelu.default
        row = _operators.TABLE[gelu]
        try:
            for broken in (lambda x, approximate="none": x.nothing(), lambda x, approximate="none": x.double(),
                           lambda x, approximate="none": x[:1]):
                torch._dynamo.reset()
                _operators.TABLE[gelu] = broken
                record = []
                fast = bridged(lambda a: nn.functional.gelu(a + 1) * 2, record)
                given = torch.randn(3, 4)
                for _ in range(2):
                    torch.testing.assert_close(fast(given), nn.functional.gelu(given + 1) * 2)
                self.assertEqual(len(record[0].refused), 1)
        finally:
            _operators.TABLE[gelu] = row

    def test_a_fault_while_compiling_is_survived(self):
        rewrite = deft.torch._backend.rewrite

        def broken(gm):
            raise KeyError("a fault")

        deft.torch._backend.rewrite = broken
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                model, given = mlp(), torch.randn(3, 16)
                torch.testing.assert_close(bridged(model)(given), model(given))
            self.assertTrue(any("runs in torch: KeyError" in str(w.message) for w in said))
        finally:
            deft.torch._backend.rewrite = rewrite

    def test_errors_are_torchs(self):
        fast = bridged(nn.Embedding(4, 2))
        with torch.no_grad():
            self.assertEqual(tuple(fast(torch.tensor([1, 3])).shape), (2, 2))
            with self.assertRaises(IndexError):
                fast(torch.tensor([1, 9]))
            self.assertEqual(tuple(fast(torch.tensor([1, 3])).shape), (2, 2))

    def test_without_the_table_of_functions(self):
        """As with a torch that has no __dlpack_c_exchange_api__."""
        table = torch.Tensor.__dlpack_c_exchange_api__ if hasattr(torch.Tensor, "__dlpack_c_exchange_api__") else None
        model, given = cnn(), torch.randn(4, 3, 12, 12)
        plain = copy.deepcopy(model)
        deft._C._bridge_library(None, torch.utils.dlpack.from_dlpack)
        try:
            self.assertFalse(deft._C._bridge_uses_table())
            fast = bridged(model)
            for _ in range(2):
                for a, b in zip(state_after(model, fast, given), state_after(plain, plain, given)):
                    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
        finally:
            deft._C._bridge_library(table, torch.utils.dlpack.from_dlpack)

    def test_import_deft_does_not_import_torch(self):
        import subprocess

        code = "import sys, deft, deft.nn, deft.optim; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, 0)


if __name__ == "__main__":
    unittest.main()
