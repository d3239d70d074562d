"""Follows "Add an op" of CONTRIBUTING.md on a copy of the source tree: the ops it makes compile, run and have gradients.

Compiler flags and the library come from the build folder DEFT_BUILD, libraries to link from DEFT_LIBS; without a build
only the text is checked.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DEFT_BUILD", ROOT / "build/release"))
LIBS = shlex.split(os.environ.get("DEFT_LIBS", "-lfmt -lhwy"))
SECTION = re.compile(r"^## Add an op\n(?P<text>.*?)^<!-- end of the section -->$", re.M | re.S)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
SOURCES = ["src/ops/unary.cpp", "src/ops/unary.cpu.cpp", "src/ops/row_scale.cpp", "tests/samples/row_scale_samples.cpp"]

PROGRAM = r"""
#include <cmath>
#include <cstdio>
#include "deft/deft.h"
#include "ops/sample.h"
using namespace deft;

int failures = 0;
void expect(bool good, const char* what) {
  if (!good) std::printf("failed: %s\n", what), ++failures;
}
double worst(const Tensor& a, const Tensor& b) {
  if (!(a.sizes() == b.sizes())) return NAN;
  return a.numel() ? (a.to(f64) - b.to(f64)).abs().amax().item() : 0;
}

void check_cube() {
  Tensor x = tensor({-2.0, 0.5, 3.0}).requires_grad_();
  Tensor y = cube(x);
  expect(worst(y, tensor({-8.0, 0.125, 27.0})) <= 1e-12, "cube");
  expect(worst(cube(randn({33}).fill_(2)), full({33}, 8)) <= 1e-5, "cube in f32, with a tail");
  y.sum().backward();
  expect(worst(x.grad(), tensor({12.0, 0.75, 27.0})) <= 1e-12, "gradient of cube");
  auto f = [](const Tensors& in) -> Tensors { return {cube(in[0])}; };
  gradcheck(f, {x});
  gradgradcheck(f, {x});
  Tensor z = full({3}, 2);
  expect(worst(cube_(z), full({3}, 8)) <= 1e-6, "cube_");
  expect(worst(tanh(z), full({3}, std::tanh(8.0))) <= 1e-6, "ops beside the new one");
}

void check_row_scale() {
  OpSamples samples = RowScale::samples();
  expect(samples.good.size() >= 8 && !samples.bad.empty(), "row_scale has samples");
  for (const Sample& s : samples.good) {
    Tensors in = {rand(s.args[0].sizes, f64)};
    expect(worst(s.call(in)[0], s.expect(in)[0]) <= 1e-12, s.note.c_str());
  }
  for (const BadSample& s : samples.bad) {
    try {
      s.call({rand(s.args[0].sizes, f64)});
      expect(false, s.note.c_str());
    } catch (const ValueError& e) {
      expect(std::string(e.what()).find(s.text) != std::string::npos, e.what());
    }
  }
  auto f = [](const Tensors& in) -> Tensors { return {row_scale(in[0].t(), 3)}; };
  Tensor x = rand({3, 5}, with_grad(f64));
  gradcheck(f, {x});
  gradgradcheck(f, {x});
  expect(std::string(f({x})[0].grad_fn_name()) == "row_scale", "row_scale is recorded");
}

int main() {
  check_cube();
  check_row_scale();
  return failures;
}
"""


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def files_of(root):
    folders = (root / "src/ops", root / "tests/samples")
    return {path.relative_to(root): path.read_bytes() for folder in folders for path in folder.iterdir()}


class NewOp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("src", "include", "tools", "tests/samples"):
            shutil.copytree(ROOT / name, self.root / name)
        shutil.copy(ROOT / "CONTRIBUTING.md", self.root)

    def follow_the_document(self):
        section = SECTION.search((self.root / "CONTRIBUTING.md").read_text(encoding="utf-8"))
        self.assertTrue(section, "CONTRIBUTING.md has no section 'Add an op' with its end marked")
        commands = COMMANDS.findall(section["text"])
        self.assertEqual(len(commands), 2)
        for command in commands:
            result = run(["bash", "-euc", command], cwd=self.root)
            self.assertEqual(result.returncode, 0, f"{command}{result.stderr}")
            self.assertIn("./dev test", result.stdout)

    def compile_command(self):
        """How the build compiles src/ops/unary.cpu.cpp, but quickly and with the copy's headers."""
        for entry in json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8")):
            if entry["file"].endswith("/src/ops/unary.cpu.cpp"):
                words = shlex.split(entry["command"])
                start = next(i for i, word in enumerate(words) if word.startswith("-"))
                kept = [word for word in words[start:] if re.match(r"-(I|D|f|W|std|isystem)|/", word)]
                flags = [word for word in kept if word != entry["file"]]
                return [words[start - 1], f"-I{self.root}/src", f"-I{self.root}/include", f"-I{self.root}/tests", *flags, "-Werror", "-O0"]
        self.fail(f"{BUILD}/compile_commands.json has no src/ops/unary.cpu.cpp")

    def test_the_document(self):
        self.follow_the_document()
        layers = run([sys.executable, "-B", self.root / "tools/check_layers", self.root])
        self.assertNotIn("row_scale", layers.stdout + layers.stderr)
        archive = BUILD / "lib/libdeft.a"
        if not archive.exists() or not (BUILD / "compile_commands.json").exists():
            self.skipTest(f"nothing is built in {BUILD}; set DEFT_BUILD")

        compiler = self.compile_command()
        (self.root / "main.cpp").write_text(PROGRAM, encoding="utf-8")
        sources = [self.root / name for name in SOURCES] + [self.root / "main.cpp"]
        objects = [path.with_suffix(".o") for path in sources]
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            builds = pool.map(lambda pair: run([*compiler, "-c", pair[0], "-o", pair[1]]), zip(sources, objects))
            for source, build in zip(sources, builds):
                self.assertEqual(build.returncode, 0, f"{source.name}\n{build.stderr}")
        # The new unary objects come first: they count, also where the library has the old ones in an object with others.
        link = run([*compiler, "-fno-lto", "-Wl,--allow-multiple-definition", *objects, archive, *LIBS, "-pthread", "-o", self.root / "program"])
        self.assertEqual(link.returncode, 0, link.stderr)
        result = run([self.root / "program"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def refuse(self, text, *words):
        before = files_of(self.root)
        result = run([sys.executable, "-B", self.root / "tools/new_op", *words])
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(text, result.stderr)
        self.assertEqual(files_of(self.root), before, "a refused call changes nothing")

    def test_refusals(self):
        self.refuse("no name for an op", "op", "RowScale")
        self.refuse("there is a softmax already, in softmax.h", "op", "softmax")
        self.refuse("there is a relu already, in activation", "unary", "relu", "x", "g")
        self.refuse("needs --uses input, not output", "unary", "cube", "x * x * x", "g * V(3) * x * x", "--uses", "output")
        self.refuse("not closed", "unary", "cube", "x * (x * x", "g")
        self.refuse("outside of parentheses", "unary", "cube", "x, x", "g")
        self.refuse("reads y", "unary", "cube", "y * x", "g")

    def test_twice(self):
        self.follow_the_document()
        self.refuse("there is a cube already", "unary", "cube", "x", "g")
        self.refuse("there is a row_scale already", "op", "row_scale")

    def test_other_root(self):
        other = self.root / "other"
        (other / "src").mkdir(parents=True)
        shutil.copytree(self.root / "src/ops", other / "src/ops")
        before = files_of(self.root)
        result = run([sys.executable, "-B", self.root / "tools/new_op", "op", "my_op", "--root", other])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("struct MyOp", (other / "src/ops/my_op.h").read_text())
        self.assertEqual(files_of(self.root), before)


if __name__ == "__main__":
    unittest.main()
