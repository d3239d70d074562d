"""Weights from anywhere: damaged checkpoints, other libraries' files, sizes and names that come from the file, and
`deft infer` of pictures and tokens. The program is named by DEFT_CLI."""
import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

DEFT = os.environ["DEFT_CLI"]
PICTURES = sorted((pathlib.Path(__file__).parent.parent / "fixtures" / "images").rglob("*.png"))
QUICK = ["-m", "mlp", "-d", "glyphs", "--train-size", "128", "--test-size", "64", "-b", "32", "-t", "1"]


def deft(*arguments):
    return subprocess.run([DEFT, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def results(*arguments):
    run = deft(*arguments, "-o", "json")
    assert run.returncode == 0, f"deft {' '.join(map(str, arguments))}: exit {run.returncode}\n{run.stderr}"
    return json.loads(run.stdout)["results"]


def newest(folder):
    return max(pathlib.Path(folder).glob("*.safetensors"))


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_safetensors(path, tensors):
    """Of name -> (shape, bytes of f32)."""
    header, body = {}, b""
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def weights_alone(checkpoint, path, rename=lambda name: name):
    """What other libraries write: the tensors of the model and nothing else."""
    header, body = read_safetensors(checkpoint)
    tensors = {}
    for name, entry in header.items():
        if name.startswith("model.") and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[rename(name.removeprefix("model."))] = (entry["shape"], body[begin:end])
    write_safetensors(path, tensors)


def write_tokens(path, rows):
    head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    head = head.ljust(128 - 10 - 1) + "\n"
    values = [token for row in rows for token in row]
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + struct.pack(f"<{len(values)}q", *values))


class InFolder(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.holder.name)

    def tearDown(self):
        self.holder.cleanup()


class Damage(InFolder):
    def test_one_flipped_bit_is_refused_by_every_verb(self):
        results("train", *QUICK, "-e", "1", "--out", self.folder / "run")
        weights = newest(self.folder / "run")
        whole = weights.read_bytes()
        for at in (len(whole) // 2, len(whole) - 3):  # in the weights, in the optimizer
            bad = bytearray(whole)
            bad[at] ^= 0x40
            weights.write_bytes(bad)
            for arguments in (["eval", *QUICK, "-w", weights], ["infer", *QUICK, "-w", weights], ["generate", "-w", weights],
                              ["compile", *QUICK, "-w", weights, "--out", self.folder / "plan"],
                              ["profile", "-m", weights, "--steps", "1"], ["profile", *QUICK, "-w", weights, "--steps", "1"]):
                run = deft(*arguments)
                self.assertEqual((run.returncode, run.stdout), (3, ""), f"{arguments}: {run.stderr}")
                self.assertIn("damaged after it was written", run.stderr)
                self.assertIn(str(weights), run.stderr)


class Misfit(InFolder):
    def test_five_differences_and_the_likely_model(self):
        random_bytes = bytes(16)
        write_safetensors(self.folder / "gpt2.safetensors",
                          {f"h.{i}.{part}.weight": ([4], random_bytes) for i in range(40) for part in ("ln_1", "ln_2")}
                          | {"wte.weight": ([2, 2], random_bytes)})
        run = deft("infer", "-m", "resnet18", "-w", self.folder / "gpt2.safetensors")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("looks like weights of gpt2", run.stderr)
        self.assertEqual(run.stderr.count(" is missing") + run.stderr.count(" is not in the model"), 5, run.stderr)
        self.assertLess(len(run.stderr), 700)


class Sizes(InFolder):
    def train_on_folders(self):
        for part in ("train", "val"):
            for i, name in enumerate(("cat", "dog", "eel")):
                folder = self.folder / part / name
                folder.mkdir(parents=True)
                (folder / "0.png").write_bytes(PICTURES[i].read_bytes())
        results("train", "-m", "resnet18", "-d", "images", "--path", self.folder, "--image-size", "32", "-b", "3", "-e", "1",
                "--out", self.folder / "run")
        return newest(self.folder / "run")

    def test_pictures_with_names_and_logits(self):
        weights = self.train_on_folders()
        rows = results("infer", "-w", weights, PICTURES[0], PICTURES[1], "--top", "3", "--logits")
        self.assertEqual([r["file"] for r in rows[::3]], [str(PICTURES[0]), str(PICTURES[1])])
        self.assertEqual({r["name"] for r in rows[:3]}, {"cat", "dog", "eel"})
        self.assertAlmostEqual(sum(r["probability"] for r in rows[:3]), 1, places=5)
        self.assertGreaterEqual(rows[0]["logit"], rows[1]["logit"])
        # The same pictures through the test set: the same answers.
        whole = results("infer", "-w", weights, "--path", self.folder, "--top", "3")
        self.assertEqual([(r["class"], round(r["probability"], 4)) for r in whole[:6]],
                         [(r["class"], round(r["probability"], 4)) for r in rows])
        run = deft("infer", "-w", weights, self.folder / "run")
        self.assertEqual(run.returncode, 3, run.stderr)

    def test_a_file_of_torchvision_s_kind(self):
        weights_alone(self.train_on_folders(), self.folder / "resnet18.safetensors")
        (self.folder / "names.txt").write_text("feline\ncanine\nfish\n")
        # Without num_batches_tracked, as all tensors are f32 here: a difference to be named, not to be guessed.
        run = deft("infer", "-m", "resnet18", "-w", self.folder / "resnet18.safetensors", PICTURES[0])
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("num_batches_tracked is missing", run.stderr)

    def test_classes_come_from_the_weights(self):
        results("train", "-m", "cnn", "-d", "glyphs", "--train-size", "64", "--test-size", "32", "-b", "32", "-e", "1", "--out",
                self.folder / "run")
        header, body = read_safetensors(newest(self.folder / "run"))
        tensors = {}
        for name, entry in header.items():
            if not name.startswith("model."):
                continue
            begin, end = entry["data_offsets"]
            shape, data = entry["shape"], body[begin:end]
            if name in ("model.classifier.weight", "model.classifier.bias"):  # 7 of 20 classes
                data, shape = data[: len(data) // 20 * 7], [7, *shape[1:]]
            tensors[name.removeprefix("model.")] = (entry["dtype"], shape, data)
        new, out = {}, b""
        for name, (dtype, shape, data) in tensors.items():
            new[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(out), len(out) + len(data)]}
            out += data
        text = json.dumps(new).encode()
        plain = self.folder / "cnn.safetensors"
        plain.write_bytes(len(text).to_bytes(8, "little") + text + out)
        (self.folder / "names.txt").write_text("".join(f"class {i}\n" for i in range(7)))
        # Its kind, channels and classes come from the file; what it was trained on does not.
        rows = results("infer", "-w", plain, "--test-size", "2", "--top", "20", "--classes", self.folder / "names.txt")
        self.assertEqual(len(rows), 14)
        self.assertEqual(rows[0]["name"], f"class {rows[0]['class']}")
        run = deft("eval", "-w", plain, "--test-size", "32")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("7 classes", run.stderr)

    def hugging_face_gpt2(self, heads):
        """A small GPT-2 under Hugging Face's names, with their masks and the head that is the embedding again."""
        chance = random.Random(1)
        hidden, vocabulary, positions = 16, 300, 24
        folder = self.folder / f"heads{heads}"
        folder.mkdir()

        def tensor(*shape):
            count = 1
            for n in shape:
                count *= n
            return (list(shape), struct.pack(f"<{count}f", *(chance.gauss(0, 0.5) for _ in range(count))))

        tensors = {"transformer.wte.weight": tensor(vocabulary, hidden), "transformer.wpe.weight": tensor(positions, hidden)}
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
        for i in range(2):
            block = f"transformer.h.{i}."
            tensors[block + "attn.bias"] = tensor(1, 1, positions, positions)
            for name, (rows, columns) in {"attn.c_attn": (hidden, 3 * hidden), "attn.c_proj": (hidden, hidden),
                                          "mlp.c_fc": (hidden, 4 * hidden), "mlp.c_proj": (4 * hidden, hidden)}.items():
                tensors[block + name + ".weight"], tensors[block + name + ".bias"] = tensor(rows, columns), tensor(columns)
            for name in ("ln_1", "ln_2"):
                tensors[block + name + ".weight"], tensors[block + name + ".bias"] = tensor(hidden), tensor(hidden)
        tensors["transformer.ln_f.weight"], tensors["transformer.ln_f.bias"] = tensor(hidden), tensor(hidden)
        write_safetensors(folder / "model.safetensors", tensors)
        (folder / "config.json").write_text(json.dumps({"n_head": heads, "model_type": "gpt2"}))
        return folder / "model.safetensors"

    def test_gpt2_of_hugging_face(self):
        write_tokens(self.folder / "tokens.npy", [[1, 2, 299, 7], [5, 5, 5, 5]])
        answers = []
        for heads in (1, 4):
            rows = results("infer", "-w", self.hugging_face_gpt2(heads), "-i", self.folder / "tokens.npy", "--top", "2", "--logits")
            self.assertEqual([(r["case"], r["position"], r["rank"]) for r in rows], [(0, 3, 1), (0, 3, 2), (1, 3, 1), (1, 3, 2)])
            answers.append([r["logit"] for r in rows])
        self.assertNotEqual(*answers)  # the number of heads comes from config.json
        weights = self.folder / "heads4" / "model.safetensors"
        run = deft("generate", "-w", weights, "--prompt-tokens", "1,2,299", "-n", "5", "--temperature", "0")
        self.assertEqual(run.returncode, 0, run.stderr)
        tokens = [int(t) for t in run.stdout.split(",")]
        self.assertEqual((tokens[:3], len(tokens)), ([1, 2, 299], 8))
        for arguments, word in ((["generate", "-w", weights, "-p", "text"], "--prompt-tokens"),
                                (["generate", "-w", weights, "--prompt-tokens", "300"], "below 300"),
                                (["infer", "-w", weights, PICTURES[0]], "takes tokens")):
            run = deft(*arguments)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(word, run.stderr)
        text = self.folder / "text"
        text.write_text("the cat sat on the mat. " * 600)
        run = deft("eval", "-w", weights, "--path", text)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("300 tokens", run.stderr)


if __name__ == "__main__":
    unittest.main()
