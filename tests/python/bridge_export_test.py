"""PyTorch models as files that run without torch."""

import copy
import os
import pathlib
import tempfile
import unittest

from bridge_case import IN_INFERENCE, MODELS, Case, cnn, deft, flat, in_float64, mlp, nn, torch, wrapped


# torch.export of 2.6 knows no shapes of the fused layer.
EXPORTED = [name for name in IN_INFERENCE if name != "encoder layer" or torch.__version__ >= "2.7"]


class Export(Case):
    """Models as files that run without torch."""

    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "model.plan")

    def exported(self, model, *given, **options):
        self.assertEqual(deft.torch.export(model, given, path=self.path, **options), self.path)
        return deft.load_plan(self.path)

    def check_plan(self, plan, model, *given):
        with torch.no_grad():
            ours = plan(*(deft.from_dlpack(t) for t in given))
            ours = [torch.from_dlpack(t) for t in (ours if isinstance(ours, tuple) else [ours])]
            exact = copy.deepcopy(model).double()(*in_float64(list(given)))
            self.check(ours, flat(model(*given)), flat(exact))
        return ours

    def test_models(self):
        for name in EXPORTED:
            with self.subTest(name):
                make, inputs = MODELS[name]
                model, given = make().eval(), inputs()
                plan = self.exported(model, given)
                self.assertEqual(plan.name, type(model).__name__)
                self.check_plan(plan, model, given)
                with self.assertRaisesRegex(ValueError, "no plan of the file serves"):
                    plan(deft.from_dlpack(given[:1]))

    def test_several_inputs_and_results(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 4)
                self.b = nn.Linear(4, 4)
                self.b.weight = self.a.weight

            def forward(self, x, y, scale):
                return self.a(x) * scale, self.b(y), x, y[1:]

        model, given = Two(), (torch.randn(3, 4), torch.randn(2, 4), torch.tensor(2.0))
        self.check_plan(self.exported(model, *given, name="two"), model, *given)

    def bits(self, t):
        return t.detach().contiguous().numpy().tobytes()

    def test_any_batch(self):
        for name in EXPORTED:
            with self.subTest(name):
                make, inputs = MODELS[name]
                model, given = make().eval(), inputs()
                plan = self.exported(model, given, dynamic_shapes=({0: torch.export.Dim("batch")},))
                for n in (1, 2, given.shape[0], 6, 13):
                    self.check_plan(plan, model, given[:1].repeat(n, *[1] * (given.dim() - 1)))
                fixed = deft.load_plan(deft.torch.export(model, (given,), path=self.path + ".fixed"))
                (a,), (b,) = self.check_plan(plan, model, given), self.check_plan(fixed, model, given)
                self.assertEqual(self.bits(a), self.bits(b), "another plan than that of the size alone")

    def test_any_batch_of_images_with_channels_last(self):
        model, form = cnn().eval().to(memory_format=torch.channels_last), {"memory_format": torch.channels_last}
        given = torch.randn(4, 3, 12, 12).contiguous(**form)
        plan = self.exported(model, given, dynamic_shapes=({0: torch.export.Dim("batch")},))
        for n in (4, 1, 6):
            self.check_plan(plan, model, torch.randn(n, 3, 12, 12).contiguous(**form))

    def test_any_batch_and_length(self):
        Dim = torch.export.Dim
        make, inputs = MODELS["gpt"]
        model, given = make().eval(), inputs()
        plan = self.exported(model, given, dynamic_shapes=({0: Dim("batch"), 1: Dim("length", max=16)},))
        for batch, length in ((2, 9), (1, 9), (5, 1), (1, 1), (3, 16), (7, 4)):
            self.check_plan(plan, model, torch.randint(0, 50, (batch, length)))
        with self.assertRaisesRegex(ValueError, "dimension 1 of input 0 is 17, expected 1 to 16"):
            plan(deft.from_dlpack(torch.randint(0, 50, (2, 17))))

    def test_inputs_that_share_a_size(self):
        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = nn.Linear(6, 6)

            def forward(self, x, *, mask):
                places = torch.arange(x.shape[1])
                return torch.where(mask[..., None], self.line(x) + places[:, None], x).flatten(0, 1)

        model, sizes = Pair(), {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
        make = lambda b, n: (torch.randn(b, n, 6), torch.rand(b, n) > 0.5)
        x, mask = make(3, 4)
        plan = deft.load_plan(deft.torch.export(model, (x,), kwargs={"mask": mask}, path=self.path,
                                                dynamic_shapes={"x": sizes, "mask": sizes}))
        for b, n in ((3, 4), (1, 4), (5, 1), (8, 9)):
            x, mask = make(b, n)
            ours = plan(deft.from_dlpack(x), deft.from_dlpack(mask))
            torch.testing.assert_close(torch.from_dlpack(ours), model(x, mask=mask).detach())
        with self.assertRaisesRegex(ValueError, "no plan of the file serves"):
            plan(deft.from_dlpack(make(3, 4)[0]), deft.from_dlpack(make(5, 4)[1]))

    def test_sizes_that_follow_no_rule(self):
        class Third(nn.Module):
            def forward(self, x):
                return x[: x.shape[0] // 3].exp()

        model, sizes, given = Third(), ({0: torch.export.Dim.AUTO},), torch.randn(9, 2)
        with self.assertRaisesRegex(deft.torch.ExportError, "found no rule for all sizes: .*; give the sizes you need by more_args"):
            deft.torch.export(model, (given,), sizes, path=self.path)
        self.assertFalse(os.path.exists(self.path))

    def test_sizes_that_are_given(self):
        model = cnn().eval()
        given = [torch.randn(n, 3, 12, 12) for n in (4, 1, 7)]
        plan = self.exported(model, given[0], dynamic_shapes=({0: torch.export.Dim.AUTO},), more_args=[(g,) for g in given[1:]])
        for g in given:
            self.check_plan(plan, model, g)
        with self.assertRaisesRegex(ValueError, "no plan of the file serves"):
            plan(deft.from_dlpack(torch.randn(5, 3, 12, 12)))

    def test_weights_are_in_the_file(self):
        model, given = mlp(), torch.randn(8, 16)
        plan = self.exported(model, given)
        before = model(given).detach()
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        torch.testing.assert_close(torch.from_dlpack(plan(deft.from_dlpack(given))), before)

    def test_the_command_line_gives_the_same_bits(self):
        """C++ alone, by `deft infer`: the file is its only input."""
        for options in ({}, {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}):
            with self.subTest(options):
                self.compare_with_the_command_line(options)

    def compare_with_the_command_line(self, options):
        import json
        import subprocess

        program = pathlib.Path(deft.__file__).parents[2] / "bin/deft"
        if not program.exists():
            self.skipTest("deft's command line is not built")
        model, given = cnn().eval(), torch.randn(6, 3, 12, 12)
        plan = self.exported(model, given[:4] if options else given, **options)
        (ours,) = self.check_plan(plan, model, given)
        array = os.path.join(self.folder.name, "pictures.npy")
        __import__("numpy").save(array, given.numpy())
        command = [program, "infer", "--plan", self.path, "-i", array, "--top", "5", "--logits", "-o", "json"]
        run = subprocess.run(command + (["--batch", "6"] if options else []), capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = json.loads(run.stdout)["results"]
        self.assertEqual(len(rows), 30)
        for row in rows:
            self.assertEqual(row["logit"], ours[row["case"], row["class"]].item())

    def test_what_no_plan_holds(self):
        given = torch.randn(4, 3, 12, 12)
        for model, why in ((cnn(), "a model that writes .*running_mean.*call model.eval"),
                           (nn.Sequential(nn.Dropout()), "it draws random numbers"),
                           (wrapped(torch.special.i0), "found aten.i0.default.*Deft has no such operator"),
                           (wrapped(lambda t: (t, 3)), "found a result 3, expected tensors only")):
            with self.subTest(why), self.assertRaisesRegex(deft.torch.ExportError, why):
                deft.torch.export(model, (given,), path=self.path)
        self.assertFalse(os.path.exists(self.path))


if __name__ == "__main__":
    unittest.main()
