"""`deft data`, `deft bench data` and training through the loader, as a user runs them."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

DEFT = os.environ["DEFT_CLI"]
PICTURES = sorted(p for p in (pathlib.Path(__file__).parent.parent / "fixtures" / "images").rglob("*")
                  if p.suffix in (".jpg", ".png"))


def deft(*arguments):
    return subprocess.run([DEFT, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def results(run):
    return json.loads(run.stdout)["results"]


class Folders(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        for part in ("train", "val"):
            for i, name in enumerate(("cat", "dog")):
                folder = self.root / part / name
                folder.mkdir(parents=True)
                for k in range(4):
                    picture = PICTURES[(i + k) % len(PICTURES)]
                    shutil.copy(picture, folder / f"{k}{picture.suffix}")

    def tearDown(self):
        shutil.rmtree(self.root, ignore_errors=True)

    def test_inspect_counts_and_names_what_is_broken(self):
        run = deft("data", "inspect", "--path", self.root / "train", "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        row = results(run)[0]
        self.assertEqual((row["samples"], row["broken"], row["classes"]), (8, 0, 2))
        (self.root / "train" / "cat" / "9.jpg").write_bytes(b"\xff\xd8\xff\xe0 not a picture")
        run = deft("data", "inspect", "--path", self.root / "train", "-o", "json")
        self.assertEqual(run.returncode, 4, run.stderr)
        row = results(run)[0]
        self.assertEqual((row["samples"], row["broken"]), (8, 1))
        self.assertIn("cat/9.jpg", row["errors"][0])

    def test_inspect_sees_one_flipped_bit(self):
        name = next(p for p in (self.root / "train").rglob("*.png"))
        data = bytearray(name.read_bytes())
        data[len(data) * 2 // 3] ^= 1
        name.write_bytes(data)
        run = deft("data", "inspect", "--path", self.root / "train", "-o", "json")
        self.assertEqual(run.returncode, 4, run.stderr)
        self.assertEqual(results(run)[0]["broken"], 1)
        self.assertIn(name.name, results(run)[0]["errors"][0])

    def test_train_size_is_honoured_and_keeps_every_class(self):
        run = deft("train", "-m", "resnet18", "-d", "images", "--path", self.root, "--image-size", 16, "-b", 2, "-e", 1,
                   "--train-size", 4, "--test-size", 3, "-q", "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(results(run)[0]["steps"], 2)

    def test_broken_pictures_stop_or_are_left_out(self):
        common = ["train", "-m", "resnet18", "-d", "images", "--path", self.root, "--image-size", 16, "-b", 4, "-e", 1, "-q",
                  "-o", "json", "--out", self.root / "run"]
        for part in ("train", "val"):
            (self.root / part / "cat" / "9.jpg").write_bytes(b"\xff\xd8\xff\xe0 not a picture")
        run = deft(*common)
        self.assertEqual((run.returncode, run.stdout), (3, ""), run.stderr)
        self.assertIn("cat/9.jpg", run.stderr)
        self.assertIn("--on-error skip", run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        run = deft(*common, "--on-error", "skip", "--resume")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertGreaterEqual(results(run)[0]["left_out_samples"], 1)
        self.assertIn("val/cat/9.jpg", run.stderr)
        weights = max((self.root / "run").glob("*.safetensors"))
        run = deft("eval", "-w", weights, "--path", self.root, "--on-error", "skip", "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual((results(run)[0]["samples"], results(run)[0]["left_out_samples"]), (8, 1))
        self.assertEqual(deft("eval", "-w", weights, "--path", self.root).returncode, 3)
        self.assertEqual(deft("train", "--on-error", "stpo").returncode, 2)

    def test_another_picture_size_is_another_run(self):
        common = ["train", "-m", "resnet18", "-d", "images", "--path", self.root, "-b", 4, "-e", 1, "-q", "--out", self.root / "run"]
        self.assertEqual(deft(*common, "--image-size", 16).returncode, 0)
        run = deft(*common, "--image-size", 32, "--resume")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("picture is 3x16x16 there, 3x32x32 here", run.stderr)

    def test_bench_of_a_folder(self):
        run = deft("data", "bench", "--path", self.root / "train", "-b", 4, "--size", 32, "--seconds", 0.3, "--rate", 1000,
                   "--workers", 1, "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        row = results(run)[0]
        self.assertGreater(row["samples_per_second"], 0)
        self.assertGreater(row["cpu_ms_per_sample"], 0)
        self.assertTrue(0 <= row["stall_percent"] <= 100)

    def test_training_on_a_folder(self):
        run = deft("train", "-m", "resnet18", "-d", "images", "--path", self.root, "--image-size", 32, "-b", 4, "-e", 1,
                   "--workers", 1, "-q", "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(results(run)[0]["steps"], 2)


class Commands(unittest.TestCase):
    def test_inspect_of_text_draws_lengths(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join("x" * n for n in range(1, 101)) + "\n")
            file.flush()
            row = results(deft("data", "inspect", "--path", file.name, "-o", "json"))[0]
            self.assertEqual((row["samples"], row["shortest"], row["longest"]), (100, 1, 100))
            self.assertEqual(sum(row["histogram"]["counts"]), 100)
            text = deft("data", "inspect", "--path", file.name).stdout
            self.assertIn("padding", text)

    def test_wrong_paths(self):
        for verb in ("inspect", "bench"):
            run = deft("data", verb, "--path", "/no/such/place")
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("/no/such/place", run.stderr)
            self.assertEqual(deft("data", verb).returncode, 2)

    def test_bench_data_runs(self):
        run = deft("bench", "data", "--part", "loader,images", "--quick", "-q", "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual({row["part"] for row in results(run)}, {"loader", "images"})

    # FI15, FI16: what is learned does not depend on the number of workers.
    def test_workers_never_show(self):
        losses = set()
        for workers in (0, 1, 4):
            run = deft("train", "-m", "mlp", "-d", "glyphs", "--train-size", 512, "--test-size", 128, "-b", 32, "-e", 2,
                       "--workers", workers, "-q", "-o", "json")
            self.assertEqual(run.returncode, 0, run.stderr)
            losses.add(results(run)[0]["test_loss"])
        self.assertEqual(len(losses), 1)


if __name__ == "__main__":
    unittest.main()
